"""Calibration: what is put in comes out, and what the data cannot know is refused by name."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from calibrated import ABOUT, TRUE, costs, decode_s, measurements
from pyarrow import parquet
from small_runs import exponential, small
from typer.testing import CliRunner

from areal_sim.__main__ import app
from areal_sim.calibration.assemble import calibrate
from areal_sim.calibration.read import read_all
from areal_sim.calibration.samples import Measured, of_rows
from areal_sim.executor.task import header
from areal_sim.simulation import Simulation
from interfaces.calibration import read_calibration, write_calibration
from interfaces.errors import DataError
from interfaces.profile import DecodeRow, Measurement, PrefillRow, TrainRow, write_profile
from interfaces.trace import TraceWriter


def measured(rows: list[Measurement]) -> Measured:
    return Measured(samples=of_rows(rows, "test"), about=[ABOUT], sources=["test"])


def test_exact_data_give_the_true_costs() -> None:
    made, _ = calibrate(measured(measurements(repeats=2)))
    for part, values in TRUE.items():
        for name, value in values.items():
            assert made.parts[part].parameters[name].value == pytest.approx(value, rel=1e-4, abs=1e-15), name


def test_outliers_do_not_move_the_costs_and_intervals_hold_the_truth() -> None:
    made, _ = calibrate(measured(measurements(noise=0.02, outliers=0.08, repeats=6)), "line")
    inside = 0
    for name, value in TRUE["decode"].items():
        found = made.parts["decode"].parameters[name]
        assert found.value == pytest.approx(value, rel=0.08), name
        inside += found.low <= value <= found.high
    assert inside >= 2
    assert made.parts["decode"].median_error < 0.03
    assert made.parts["decode"].worst_error > 0.3  # the outliers are seen, not followed


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """40 profiles of 21 decode rows with other noise each: 95 % intervals, 3 parameters."""
    hits = 0
    for seed in range(40):
        chance = random.Random(seed)
        rows: list[Measurement] = [
            row.model_copy(
                update={"seconds": decode_s(row.batch, row.context_tokens) * chance.gauss(1, 0.03)}
            )
            for row in measurements()
            if isinstance(row, DecodeRow)
        ]
        made, _ = calibrate(measured(rows), "line")
        found = made.parts["decode"].parameters
        hits += sum(found[name].low <= value <= found[name].high for name, value in TRUE["decode"].items())
    assert 0.88 * 120 <= hits <= 120


def test_a_mixture_of_experts_gets_a_table() -> None:
    """Steps grow like the distinct experts that a batch touches: no line fits."""
    rows: list[Measurement] = [
        DecodeRow(
            batch=batch, context_tokens=float(batch * context),
            seconds=0.004 + 0.03 * (1 - (1 - 8 / 128) ** batch) + 1e-6 * batch * context,
        )
        for batch in (1, 2, 4, 8, 16, 32, 64, 128)
        for context in (100, 500, 1500)
    ]  # fmt: skip
    made, residuals = calibrate(measured(rows))
    part = made.parts["decode"]
    assert part.knots == (1, 2, 4, 8, 16, 32, 64, 128)
    assert part.worst_error < 1e-3
    assert part.parameters["context_token_s"].value == pytest.approx(1e-6, rel=1e-2)
    assert len(residuals) == len(rows)
    with pytest.raises(DataError, match="--decode table"):
        calibrate(measured(rows), "line")


def only(rows: list[Measurement], kind: type) -> list[Measurement]:
    return [row for row in rows if isinstance(row, kind)]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [row for row in measurements(repeats=2) if isinstance(row, DecodeRow) and row.batch == 8],
            r"decode: 6 measurements cannot tell step_s from sequence_s .*sequences 8;.*two batch sizes",
        ),
        (
            [
                DecodeRow(batch=b, context_tokens=100.0 * b, seconds=decode_s(b, 100.0 * b))
                for b in (1, 2, 4, 8, 16)
            ],
            r"cannot tell sequence_s from context_token_s.*two or more context lengths",
        ),
        (
            [row for row in measurements(repeats=3) if isinstance(row, PrefillRow) and row.tokens == 16],
            r"prefill: .* cannot tell call_s from token_s",
        ),
        (
            [
                row.model_copy(update={"microbatches": 4, "optimizer_steps": 1})
                for row in measurements()
                if isinstance(row, TrainRow)
            ],
            r"train: .* cannot tell optimizer_step_s from microbatch_s.*--fix train.optimizer_step_s=SECONDS",
        ),
        (only(measurements(), DecodeRow)[2:5], r"decode: 3 measurements cannot give 3 parameters"),
        (
            [
                PrefillRow(tokens=t, squared_tokens=0.0, seconds=0.01 + 1e-4 * t)
                for t in (16, 64, 256, 512, 1024)
            ],
            r"prefill: 5 measurements cannot identify squared_token_s",
        ),
    ],
)
def test_what_the_data_cannot_identify_is_refused_by_name(rows: list[Measurement], told: str) -> None:
    with pytest.raises(DataError, match=told):
        calibrate(measured(rows))


def test_a_parameter_lost_in_noise_is_refused() -> None:
    """Contexts that hardly differ, measured to 20 %: the interval moves predictions by half."""
    chance = random.Random(1)
    rows: list[Measurement] = [
        DecodeRow(
            batch=b, context_tokens=b * 100.0 + chance.uniform(-1, 1), seconds=0.02 * chance.uniform(0.8, 1.2)
        )
        for b in (1, 2, 4, 8)
        for _ in range(3)
    ]
    with pytest.raises(DataError, match=r"scatter too much.*context_token_s"):
        calibrate(measured(rows), "line")


def test_a_parameter_set_by_hand_is_taken_and_said() -> None:
    rows = [row for row in measurements(repeats=2) if isinstance(row, DecodeRow) and row.batch == 8]
    made, _ = calibrate(measured([*rows]), fixed={("decode", "sequence_s"): 3e-4})
    part = made.parts["decode"]
    assert part.assumed == {"sequence_s": "set by hand"}
    assert part.parameters["step_s"].value == pytest.approx(2e-2, rel=1e-4)
    assert part.parameters["sequence_s"].value == 3e-4


def test_simplify_leaves_out_what_cannot_be_told_and_says_so() -> None:
    """Micro-batches and optimizer steps as many in every row: one of them carries both."""
    rows: list[Measurement] = [
        row.model_copy(update={"microbatches": 4, "optimizer_steps": 4, "seconds": 4.0 + 1e-3 * row.tokens})
        for row in measurements()
        if isinstance(row, TrainRow)
    ]
    with pytest.raises(DataError, match="or use --simplify"):
        calibrate(measured(rows))
    part = calibrate(measured(rows), simplify=True)[0].parts["train"]
    assert part.assumed == {"microbatch_s": "0: left out, the data cannot tell it"}
    assert part.parameters["optimizer_step_s"].value == pytest.approx(1.0, rel=1e-3)
    assert part.parameters["token_s"].value == pytest.approx(1e-3, rel=1e-3)


def test_averages_keep_outliers_and_sums_come_out_right() -> None:
    rows = only(measurements(noise=0.05, outliers=0.2, repeats=8), DecodeRow)
    whole = sum(row.seconds for row in rows)

    def predicted(*, keep_outliers: bool) -> float:
        _, residuals = calibrate(measured(rows), "line", keep_outliers=keep_outliers)
        return sum(row.predicted_s for row in residuals)

    assert predicted(keep_outliers=True) == pytest.approx(whole, rel=0.03)
    assert predicted(keep_outliers=False) < 0.9 * whole


def test_noise_alone_does_not_make_predictions_small() -> None:
    """Weights by what was measured would make them 1 - variance = 0.91 of the truth."""
    rows = only(measurements(noise=0.3, repeats=30), DecodeRow)
    _, residuals = calibrate(measured(rows), "line", keep_outliers=True)
    assert sum(row.predicted_s for row in residuals) == pytest.approx(
        sum(row.seconds for row in rows), rel=0.03
    )


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(DataError, match="holds nothing to fit"):
        calibrate(Measured(sources=["empty"]))


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """The trace of a run with known costs: batches that change, interruptions, several lengths."""
    (tmp_path / "cost.json").write_text(write_calibration(costs()))
    resolved = small(
        run={"steps": 12},
        cluster={"hardware": "h800", "rollout_gpus": 2, "trainer_gpus": 1},
        trainer={"minibatches": 2, "max_tokens_per_microbatch": 4096},
        engine={"max_num_seqs": 24},
        workload={
            "batch_size": 8, "group_size": 4, "response_tokens": exponential(300.0),
            "prompt_tokens": {"type": "lognormal", "median": 60.0, "sigma": 0.8},
        },
        policy={"name": "areal", "max_staleness": 1},
        cost={"model": "fitted", "file": str(tmp_path / "cost.json"), "decode_step_s": None, "train_s": None},
    )  # fmt: skip
    path = tmp_path / "run" / "trace.jsonl.gz"
    path.parent.mkdir()
    writer = TraceWriter(path, header(resolved))
    Simulation(resolved, writer).run()
    writer.close()
    return path.parent


def test_the_trace_of_a_run_gives_back_its_costs(traced: Path) -> None:
    """Windows are sums over changing batches, yet linear; their ends cut a decode step in two."""
    made, _ = calibrate(read_all([traced]), fixed={("train", "optimizer_step_s"): 0.5})
    for name, value in TRUE["decode"].items():
        assert made.parts["decode"].parameters[name].value == pytest.approx(value, rel=0.05), name
    for name in ("microbatch_s", "token_s", "squared_token_s"):
        value = TRUE["train"][name]
        assert made.parts["train"].parameters[name].value == pytest.approx(value, rel=1e-2), name
    assert made.parts["load"].parameters["fixed_s"].value == pytest.approx(0.3, rel=0.2)
    assert made.parts["publish"].parameters["fixed_s"].value == pytest.approx(0.2)
    assert set(made.parts["prefill"].assumed) == {"call_s", "squared_token_s"}
    assert made.told("hardware") == "H800-SXM"
    assert made.tensor_parallel == 1


def test_profiles_and_traces_add_up(traced: Path, tmp_path: Path) -> None:
    write_profile(tmp_path / "p.jsonl", ABOUT, measurements(repeats=2))
    made, _ = calibrate(read_all([tmp_path / "p.jsonl", traced]))
    assert made.parts["prefill"].rows == 12  # single calls tell more than a trace's totals, which give way
    assert made.parts["prefill"].assumed == {}
    assert made.parts["decode"].rows > 42
    assert made.sources == ("p.jsonl", "run/trace.jsonl.gz")


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_tables_of_step_times_are_read(tmp_path: Path) -> None:
    rows = [row.model_dump() for row in only(measurements(), DecodeRow)]
    write_table(tmp_path / "steps.csv", [{k: v for k, v in row.items() if k != "kind"} for row in rows])
    in_ms = [
        {"batch": row["batch"], "context_tokens": row["context_tokens"], "milliseconds": 1e3 * row["seconds"]}
        for row in rows
    ]
    parquet.write_table(pa.Table.from_pylist(in_ms), tmp_path / "steps.parquet")
    for name in ("steps.csv", "steps.parquet"):
        made, _ = calibrate(read_all([tmp_path / name]))
        found = {key: one.value for key, one in made.parts["decode"].parameters.items()}
        assert found == pytest.approx(TRUE["decode"], rel=1e-4), name


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", "a,b\n1,2\n", "has no kind"),
        ("a.csv", "batch,context_tokens,seconds\n1,5,-2\n", "seconds = -2"),
        ("a.csv", "batch,context_tokens\n", "has no rows"),
        ("a.parquet", "no parquet", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=told):
        read_all([tmp_path / name])


def test_the_command_writes_costs_and_residual_plots(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.jsonl", ABOUT, measurements(noise=0.02, repeats=3))
    cost, page = tmp_path / "cost.json", tmp_path / "residuals.html"
    done = CliRunner().invoke(
        app, ["calibrate", "--from", str(tmp_path / "p.jsonl"), "-o", str(cost), "--page", str(page)]
    )
    assert done.exit_code == 0, done.output
    assert "squared_token_s" in done.output
    made = read_calibration(cost)
    assert made.about == (ABOUT,)
    assert set(made.parts) == set(TRUE)
    text = page.read_text()
    assert all(f"residuals-{part}" in text for part in TRUE)


def test_the_command_refuses_in_words(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.jsonl", ABOUT, only(measurements(), DecodeRow)[:3])
    run = CliRunner().invoke
    place = str(tmp_path / "cost.json")
    few = run(app, ["calibrate", "--from", str(tmp_path / "p.jsonl"), "-o", place])
    assert isinstance(few.exception, DataError)
    for fix, told in (("decode.steps=1", "is not PART"), ("decode.step_s=-1", "a number >= 0")):
        wrong = run(app, ["calibrate", "--from", str(tmp_path / "p.jsonl"), "-o", place, "--fix", fix])
        assert told in str(wrong.exception)
    assert not Path(place).exists()


def test_json_output_is_the_file(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.jsonl", ABOUT, measurements(repeats=2))
    cost = tmp_path / "cost.json"
    done = CliRunner().invoke(
        app, ["calibrate", "--from", str(tmp_path / "p.jsonl"), "-o", str(cost), "--json"]
    )
    assert json.loads(done.stdout) == json.loads(cost.read_text())
