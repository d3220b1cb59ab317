"""Messages between the run and its trainer process: JSON and raw arrays, nothing that executes.

A frame is a length (8 bytes, little endian), then a JSON head and the bytes of its arrays, end to end.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

LENGTH = struct.Struct("<Q")
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    head: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def encode(head: Mapping[str, Any], arrays: Arrays | None = None) -> bytes:
    """Bytes of a frame, its length in front."""
    layout = [[name, array.dtype.str, list(array.shape)] for name, array in (arrays or {}).items()]
    text = json.dumps({"head": dict(head), "arrays": layout}).encode()
    body = b"".join([LENGTH.pack(len(text)), text, *(a.tobytes() for a in (arrays or {}).values())])
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Frame:
    """The frame whose bytes (without the length in front) these are."""
    (size,) = LENGTH.unpack_from(body)
    described = json.loads(body[LENGTH.size : LENGTH.size + size])
    offset = LENGTH.size + size
    arrays = {}
    for name, dtype, shape in described["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, dtype, count, offset).reshape(shape)
        offset += arrays[name].nbytes
    return Frame(described["head"], arrays)


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next frame, blocking; None at the end of the stream, even in the middle of a frame."""
    length = stream.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    body = stream.read(size)
    return decode(body) if len(body) == size else None
