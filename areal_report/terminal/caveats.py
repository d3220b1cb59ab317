"""What a user must know about a prediction, on stderr."""

from collections.abc import Iterable
from typing import Any

import typer


def warn_outside(reports: Iterable[dict[str, Any] | None]) -> None:
    """Say once what these predictions asked of calibrated costs beyond the range of their data."""
    told = dict.fromkeys(
        sentence for report in reports if report for sentence in report.get("outside_calibration") or ()
    )
    for sentence in told:
        typer.echo(f"warning: {sentence}; the prediction is an extrapolation", err=True)
