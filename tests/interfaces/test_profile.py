"""Files of measured times: what is written is read back, and what is wrong is named."""

import json
from pathlib import Path

import pytest

from interfaces.errors import DataError
from interfaces.profile import (
    About,
    DecodeRow,
    LoadRow,
    PrefillRow,
    PublishRow,
    TrainRow,
    read_profile,
    write_profile,
)

ROWS = (
    DecodeRow(batch=8, context_tokens=960.0, seconds=0.004),
    PrefillRow(tokens=512, squared_tokens=32768.0, sequences=8, seconds=0.02),
    TrainRow(tokens=4096, squared_tokens=5e5, sequences=32, microbatches=4, seconds=1.7),
    LoadRow(bytes=2**21, seconds=0.03),
    PublishRow(bytes=2**21, seconds=0.01),
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    about = About(where="here", when="2026-01-31", engine="vllm", engine_version="0.32.0", dtype="float32")
    write_profile(tmp_path / "p.jsonl", about, ROWS)
    profile = read_profile(tmp_path / "p.jsonl")
    assert profile.rows == ROWS
    assert profile.about == about
    assert profile.about.model_extra == {"dtype": "float32"}


def test_a_list_is_as_good_as_lines(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps([row.model_dump() for row in ROWS], indent=1))
    assert read_profile(tmp_path / "p.json").rows == ROWS


def test_whole_numbers_count_as_seconds_and_tokens(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"kind": "decode", "batch": 1, "context_tokens": 3, "seconds": 1}\n\n')
    assert read_profile(tmp_path / "p.jsonl").rows == (DecodeRow(batch=1, context_tokens=3.0, seconds=1.0),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"kind": "decode", "batch": 0, "context_tokens": 3, "seconds": 1}', r"p.jsonl:1: batch = 0"),
        ('\n{"kind": "decode", "batch": 1, "seconds": 1}', r"p.jsonl:2: context_tokens"),
        ('{"kind": "load", "bytes": 1, "seconds": 1, "byte": 1}', "byte = 1"),
        ('{"kind": "sleep", "seconds": 1}', "sleep"),
        ("{", "is not JSON"),
        ('{"kind": "about"}', "holds no measurement"),
        ("[3]", "object 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "p.jsonl").write_text(text)
    with pytest.raises(DataError, match=told):
        read_profile(tmp_path / "p.jsonl")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl: cannot be read"):
        read_profile(tmp_path / "nothing.jsonl")
