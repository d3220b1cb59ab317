"""Random numbers that belong to a name, not to a moment: pure functions of (seed, stream, prompt, member).

Whoever asks first, in whatever order, with however many replicas: the same rollout gets the same number,
and a new stream shifts no other. Counter-based: SplitMix64's finaliser (Steele, Lea, Flood, "Fast
splittable pseudorandom number generators", OOPSLA 2014) over a salted counter.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MUL_1, _MUL_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_UNIT = 2.0**-52

UInts = NDArray[np.uint64]
Floats = NDArray[np.float64]


def _mix(z: int) -> int:
    z = (z ^ (z >> 30)) * _MUL_1 & _MASK
    z = (z ^ (z >> 27)) * _MUL_2 & _MASK
    return z ^ (z >> 31)


def _step(key: int, counter: int) -> int:
    return _mix((key + _GOLDEN * (counter + 1)) & _MASK)


def _step_many(key: UInts, counter: UInts) -> UInts:
    z = key + np.uint64(_GOLDEN) * (counter + np.uint64(1))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MUL_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MUL_2)
    mixed: UInts = z ^ (z >> np.uint64(31))
    return mixed


class Stream:
    """One named source of uniform numbers in the open interval (0, 1)."""

    __slots__ = ("_key",)

    def __init__(self, seed: int, name: str) -> None:
        digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
        self._key = int.from_bytes(digest, "little")

    def _base(self, attempt: int, draw: int) -> int:
        return _step(_step(self._key, attempt), draw)

    def one(self, prompt: int, member: int, attempt: int = 0, draw: int = 0) -> float:
        """The number of one member; equal to that entry of `members`."""
        bits = _step(_step(self._base(attempt, draw), prompt), member)
        return ((bits >> 12) + 0.5) * _UNIT

    def prompts(self, prompts: UInts) -> Floats:
        """One number a prompt, shape (prompts,); the same for every attempt."""
        key = np.full(1, self._base(0, 0), dtype=np.uint64)
        return _to_unit(_step_many(key, prompts))

    def members(self, prompts: UInts, members: int, attempt: int = 0, draw: int = 0) -> Floats:
        """One number a member of each prompt's group, shape (prompts, members).

        `draw` counts the numbers that one member needs from this stream.
        """
        key = np.full(1, self._base(attempt, draw), dtype=np.uint64)
        by_prompt = _step_many(key, prompts)[:, None]
        return _to_unit(_step_many(by_prompt, np.arange(members, dtype=np.uint64)))


def _to_unit(bits: UInts) -> Floats:
    """52 bits and a half: exact in a double, and never 0 or 1."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * _UNIT
