"""`areal-sim lengths`: a distribution for the workload, from a column or from published numbers."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from areal_report.terminal.options import Json

if TYPE_CHECKING:
    from areal_sim.lengths.forms import Form


def lengths(  # noqa: PLR0917
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="CSV or Parquet file.", show_default=False)
    ] = None,
    column: Annotated[str | None, typer.Option(metavar="C", help="Its column of lengths.")] = None,
    mean: Annotated[float | None, typer.Option(min=1, metavar="M", help="Published mean length.")] = None,
    truncated_share: Annotated[
        float | None, typer.Option(metavar="S", help="Published share of responses cut at the cap.")
    ] = None,
    cap: Annotated[
        float | None, typer.Option(min=2, metavar="L", help="Longest length; found by itself in a column.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit length distributions and print the one to paste into a scenario.

    [bold]areal-sim lengths rollouts.parquet --column response_tokens[/]

    [bold]areal-sim lengths --mean 8000 --truncated-share 0.12 --cap 16384[/]
    """
    if file is not None and column is not None and mean is None and truncated_share is None:
        _from_column(file, column, cap, as_json)
    elif file is None and mean is not None and (truncated_share is None) == (cap is None):
        _from_numbers(mean, truncated_share, cap, as_json)
    else:
        raise typer.BadParameter(
            "give FILE --column C (--cap L), or --mean M --truncated-share S --cap L, or --mean M"
        )


def _from_column(file: Path, column: str, cap: float | None, as_json: bool) -> None:
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, grid
    from areal_sim.lengths.fit import detect_cap, fit_all
    from areal_sim.quantiles import read_column
    from interfaces.distributions import Empirical

    source = Empirical(type="empirical", file=str(file.absolute()), column=column)
    values = read_column(source, str(file), "lengths")
    limit = cap if cap is not None or not len(values) else detect_cap(values)
    fits = fit_all(values, limit)
    rows = [
        {**_told(fitted.form), "log_likelihood": fitted.log_likelihood, "aic": fitted.aic, "ks": fitted.ks}
        for fitted in fits
    ]
    capped = values if limit is None else values.clip(max=limit)
    data = {
        "count": len(values), "mean": float(capped.mean()), "cap": limit,
        "truncated_share": 0.0 if limit is None else float((values >= limit).mean()),
    }  # fmt: skip
    empirical = f'{{type = "empirical", file = "{file.name}", column = "{column}"}}'
    if as_json:
        typer.echo(to_json({"data": data, "fits": rows, "empirical": empirical}), nl=False)
        return
    shown = f", {data['truncated_share']:.1%} at the cap {limit:g}" if limit is not None else ", no cap"
    typer.echo(f"{len(values):,} lengths, mean {data['mean']:,.0f}{shown}")
    table = grid("form", "KS distance", "log-likelihood", "AIC - best", "mean", "median", "p95", no_wrap=True)
    for row in rows:
        table.add_row(
            row["form"], f"{row['ks']:.4f}", f"{row['log_likelihood']:,.1f}",
            f"{row['aic'] - rows[0]['aic']:,.1f}", f"{row['mean']:,.0f}", f"{row['p50']:,.0f}",
            f"{row['p95']:,.0f}",
        )  # fmt: skip
    console().print(table)
    typer.echo(f"response_tokens = {rows[0]['toml']}")
    typer.echo(f"# or what was measured, whatever its form: response_tokens = {empirical}")


def _from_numbers(mean: float, share: float | None, cap: float | None, as_json: bool) -> None:
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, grid
    from areal_sim.lengths.summary import from_mean, from_truncation

    forms = from_mean(mean) if share is None or cap is None else from_truncation(mean, share, cap)
    rows = [_told(form) for form in forms]
    if as_json:
        typer.echo(to_json({"fits": rows}), nl=False)
        return
    table = grid("form", "mean", "median", "p95", "p99", no_wrap=True)
    for row in rows:
        table.add_row(row["form"], *(f"{row[key]:,.0f}" for key in ("mean", "p50", "p95", "p99")))
    console().print(table)
    for row in rows:
        typer.echo(f"response_tokens = {row['toml']}")
    if share is None:
        typer.echo("# one number fits one parameter; --truncated-share and --cap give log-normal and gamma")


def _told(form: "Form") -> dict[str, Any]:
    import numpy as np

    from areal_sim.lengths import forms

    quantiles = forms.values_at(form, np.array([0.5, 0.95, 0.99]))
    names = ("p50", "p95", "p99")
    shown = {name: float(value) for name, value in zip(names, quantiles, strict=True)}
    return {"form": form.type, "toml": forms.toml(form), "mean": forms.mean(form), **shown}
