"""Results as JSON and CSV text: plain numbers, no NaN or infinity, the same keys every time."""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any


def finite(value: Any) -> Any:
    """The same data with null where a number is not finite: JSON has no name for those."""
    if isinstance(value, dict):
        return {str(key): finite(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [finite(below) for below in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any) -> str:
    """JSON text, indented, with a line end."""
    return json.dumps(finite(value), indent=2, allow_nan=False) + "\n"


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, keys joined by dots: `step_time_s.mean`. Histograms and series are left out."""
    flat: dict[str, Any] = {}
    for key, below in value.items():
        if key.endswith("histogram") or isinstance(below, list):
            continue
        if isinstance(below, dict):
            flat |= flatten(below, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = below
    return flat


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """CSV text with one header line; columns in the order in which the rows first name them."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(finite(row) for row in rows)
    return text.getvalue()
