"""Weight files: whole or absent, and checked from their header alone."""

from pathlib import Path

import pytest
import torch

from areal_real.weight_file import WeightFileError, checksum_of, read_manifest, weights_path, write_weights


def state() -> dict[str, torch.Tensor]:
    embedding = torch.arange(12.0).reshape(4, 3)
    return {
        "embed": embedding,
        "bias": torch.ones(5, dtype=torch.bfloat16),
        "head": embedding,
        "scale": torch.tensor(2.0),
    }


def test_header_says_what_was_written(tmp_path: Path) -> None:
    written = write_weights(weights_path(tmp_path, 3), state(), 3)
    read = read_manifest(weights_path(tmp_path, 3))
    assert read == written
    assert read.version == 3
    assert {name: (info.shape, info.dtype) for name, info in read.tensors.items()} == {
        "embed": ((4, 3), "F32"),
        "bias": ((5,), "BF16"),
        "scale": ((), "F32"),
    }
    assert read.size_bytes == weights_path(tmp_path, 3).stat().st_size


def test_tied_tensors_are_written_once(tmp_path: Path) -> None:
    assert "head" not in write_weights(tmp_path / "w", state(), 0).tensors


def test_checksum_is_of_names_and_bytes(tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in state().items() if name != "head"}
    written = write_weights(tmp_path / "w", state(), 0)
    assert written.checksum == checksum_of(tensors.items())
    assert written.checksum == checksum_of(reversed(tensors.items()))
    changed = {**tensors, "scale": torch.tensor(2.0000002)}
    assert written.checksum != checksum_of(changed.items())
    renamed = {**tensors, "scale2": tensors["scale"]}
    del renamed["scale"]
    assert written.checksum != checksum_of(renamed.items())


def test_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    write_weights(tmp_path / "w", state(), 0)
    write_weights(tmp_path / "w", state(), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    assert read_manifest(tmp_path / "w").version == 1


@pytest.mark.parametrize("kept", [0, 5, 40, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    write_weights(tmp_path / "w", state(), 0)
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes()[:kept])
    with pytest.raises(WeightFileError, match="no whole weight file"):
        read_manifest(tmp_path / "w")


def test_what_is_no_weight_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes((30).to_bytes(8, "little") + b"[1, 2, 3]                     ")
    with pytest.raises(WeightFileError, match="no whole weight file"):
        read_manifest(tmp_path / "w")
    with pytest.raises(WeightFileError, match="cannot be read"):
        read_manifest(tmp_path / "absent")


def test_types_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightFileError, match="ids has type I64"):
        write_weights(tmp_path / "w", {"ids": torch.zeros(2, dtype=torch.int64)}, 0)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightFileError, match="cannot be written"):
        write_weights(tmp_path / "file" / "w", state(), 0)
