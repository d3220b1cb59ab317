"""Measured times of an engine are rows that a cost model can be fitted to."""

from pathlib import Path

from engine_kit import Bench

from areal_real.engine.profile import Grid, measure
from interfaces.profile import About, DecodeRow, LoadRow, PrefillRow, read_profile, write_profile


def test_a_profile_has_a_row_for_all_that_was_asked(bench: Bench, tmp_path: Path) -> None:
    grid = Grid(batches=(1, 8), contexts=(16, 256), steps=12, repeats=1, loads=2)
    rows = bench.run(measure(bench.config(), grid))
    decode = {(row.batch, row.context_tokens): row.seconds for row in rows if isinstance(row, DecodeRow)}
    assert sorted(decode) == [(1, 26.0), (1, 266.0), (8, 208.0), (8, 2128.0)]
    prefill = [(row.tokens, row.squared_tokens, row.sequences) for row in rows if isinstance(row, PrefillRow)]
    assert prefill == [(n * length, float(n * length**2), n) for length in (16, 256) for n in (1, 4, 16)]
    size = (bench.directory / "model" / "model.safetensors").stat().st_size
    loads = [row.bytes for row in rows if isinstance(row, LoadRow)]
    assert len(loads) == 2
    assert all(abs(bytes_ - size) < 1000 for bytes_ in loads)
    write_profile(tmp_path / "profile.jsonl", About(engine="vllm"), rows)
    assert list(read_profile(tmp_path / "profile.jsonl").rows) == rows


def test_the_grid_of_a_scenario_fits_its_engine(bench: Bench) -> None:
    config = bench.config()
    grid = Grid.of(config)
    assert grid.batches == (1, 2, 4, 8, 16)
    assert max(grid.contexts) + grid.steps <= config.context_limit_tokens
