"""`areal-sim validate`: every published number held against its prediction."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from areal_report.terminal.options import Jobs, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from areal_sim.validation.predict import Scored
    from areal_sim.validation.protocol import Protocol, Row
    from areal_sim.validation.refit import LeftOut

Suite = Literal["areal", "other", "all"]


def validate(  # noqa: PLR0917
    suite: Annotated[Suite, typer.Option(help="Which publications.")] = "all",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW", help="Leave out a row; what was fitted on it is fitted again.", show_default=False
        ),
    ] = None,
    refit: Annotated[
        bool, typer.Option(help="Leave-one-out errors of the rows that were fitted on.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it as a page with plots.", show_default=False),
    ] = None,
    as_json: Json = False,
    jobs: Jobs = None,
) -> None:
    """Predict every published measurement there is and print the errors: hits and misses.

    [bold]areal-sim validate --suite areal[/]

    [bold]areal-sim validate --without fig5c/inf[/]
    """
    from areal_sim.validation.protocol import protocol
    from areal_sim.validation.refit import leave_one_out

    plan = protocol()
    rows = _rows(plan, suite, without or [])
    scored = _predict(plan, rows, without or [], jobs)
    left_out = leave_one_out(plan, rows, jobs) if refit else []
    if page is not None:
        _write(plan, scored, left_out, page)
    if as_json:
        _print_json(scored, left_out)
    else:
        _show(scored, left_out)


def _rows(plan: "Protocol", suite: Suite, without: list[str]) -> "list[Row]":
    """The rows asked for.

    Raises:
        ScenarioError: a row that is to be left out does not exist.
    """
    from interfaces.errors import ScenarioError
    from interfaces.scenario_errors import suggest

    known = [row.id for row in plan.row]
    for name in without:
        if name not in known:
            raise ScenarioError("validate", "--without", name, "is not a row", suggest(name, known, "rows"))
    return [row for row in plan.row if row.id not in without and suite in ("all", row.suite)]


def _predict(plan: "Protocol", rows: "list[Row]", without: list[str], jobs: int | None) -> "list[Scored]":
    """All rows, with what was fitted on a row left out fitted again.

    Raises:
        ScenarioError: what is left cannot determine the parameters.
    """
    from areal_sim.validation.predict import Scored, predicted, simulate
    from areal_sim.validation.refit import fit, settings
    from interfaces.errors import ScenarioError

    sets: dict[str, list[str]] = {}
    runs = [name for row in rows for name in row.runs]
    touched = {p.pair for p in plan.parameter if set(p.fitted_on) & set(without)}
    for pair in touched:
        parameters = [p for p in plan.parameter if p.pair == pair]
        left = [row for row in plan.row if row.id in parameters[0].fitted_on and row.id not in without]
        if len(left) < len(parameters):
            rule = f"leaves {len(left)} rows for the {len(parameters)} free parameters of {pair}"
            raise ScenarioError("validate", "--without", ", ".join(without), rule, "leave out fewer rows")
        values = fit(plan, parameters, left, jobs)
        typer.echo(", ".join(f"{name}: {value:.4g}" for name, value in values.items()), err=True)
        sets |= settings(plan, runs, parameters, values)
    seen = simulate(plan, runs, sets, jobs, "experiments")
    return [Scored(row, predicted(row, seen), row.id in plan.calibration) for row in rows]


def _show(scored: "Sequence[Scored]", left_out: "Sequence[LeftOut]") -> None:
    from areal_report.terminal.tables import console, grid
    from areal_sim.validation.score import score

    output = console()
    table = grid("", "published", "predicted", "error", "goal", "", no_wrap=True)
    for s in scored:
        note = "fitted" if s.in_calibration else "in doubt" if s.row.suspect else "" if s.hit else "miss"
        table.add_row(
            s.row.what, f"{s.row.published:.4g}", f"{s.predicted:.4g}", f"{s.error:+.1%}",
            f"{s.row.limit:.0%}", note,
        )  # fmt: skip
    output.print(table)
    summary = grid("suite", "rows", "hits", "mean error", "worst", "rank corr.", "pairs in order")
    for suite in dict.fromkeys(s.row.suite for s in scored):
        found = score([s for s in scored if s.row.suite == suite])
        if found is not None:
            rank = "" if found.rank_correlation is None else f"{found.rank_correlation:.2f}"
            summary.add_row(
                suite, str(found.rows), str(found.hits), f"{found.mape:.1%}", f"{found.worst.error:+.1%}",
                rank, f"{found.pairs_in_order} of {found.pairs}",
            )  # fmt: skip
    output.print(summary)
    for entry in left_out:
        text = "not identifiable without it" if entry.error is None else f"{entry.error:+.1%} when left out"
        typer.echo(f"{entry.row.id}: {text}")


def _print_json(scored: "Sequence[Scored]", left_out: "Sequence[LeftOut]") -> None:
    from areal_report.terminal.output import to_json

    rows = [
        {
            "id": s.row.id, "suite": s.row.suite, "what": s.row.what, "published": s.row.published,
            "predicted": s.predicted, "error": s.error, "goal": s.row.limit, "hit": s.hit,
            "in_calibration": s.in_calibration, "suspect": s.row.suspect or None,
        }
        for s in scored
    ]  # fmt: skip
    left = [{"id": entry.row.id, "error": entry.error, "parameters": entry.values} for entry in left_out]
    typer.echo(to_json({"rows": rows, "leave_one_out": left}), nl=False)


def _write(plan: "Protocol", scored: "Sequence[Scored]", left_out: "Sequence[LeftOut]", file: Path) -> None:
    from areal_report.run_directory import write_atomically
    from areal_sim.validation.page import page
    from areal_sim.validation.plots import by_regime, scatter

    images = file.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    write_atomically(file, page(plan, scored, left_out))
    write_atomically(images / "accuracy_scatter.svg", scatter(scored))
    write_atomically(images / "accuracy_by_regime.svg", by_regime(scored))
    typer.echo(f"written: {file}", err=True)
