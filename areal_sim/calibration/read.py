"""Reads what a user gives to `calibrate --from`: profiles, traces and run directories, tables."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from areal_report.run_directory import find_trace
from areal_sim.calibration.samples import Measured, of_rows
from areal_sim.calibration.traces import add_trace
from interfaces.errors import DataError
from interfaces.profile import About, parse_row, read_profile

_TABLES = (".csv", ".parquet")
_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("decode", frozenset({"batch", "context_tokens"})),
    ("train", frozenset({"tokens", "microbatches"})),
    ("prefill", frozenset({"tokens"})),
)
"""Kind of a table that has no `kind`, by its columns."""


def read_all(paths: Iterable[Path]) -> Measured:
    """Everything that these files measured.

    Raises:
        DataError: a file is none of those, or damaged.
        TraceError: a trace is damaged.
    """
    measured = Measured()
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file; give a profile, a run directory, or a table")
        if path.is_dir() or _is_trace(path):
            add_trace(measured, find_trace(path))
        elif path.suffix.lower() in _TABLES:
            _add_table(measured, path)
        else:
            measured.add_profile(path, read_profile(path))
    return measured


def _is_trace(path: Path) -> bool:
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                return file.read(10).startswith(b'{"schema"')
        with path.open("rb") as plain:
            return plain.read(10).startswith(b'{"schema"')
    except OSError:
        return False


def _add_table(measured: Measured, path: Path) -> None:
    rows = _rows(path)
    kinds = [kind for kind, needed in _KINDS if rows and needed <= rows[0].keys()]
    for number, row in enumerate(rows):
        where = f"{path}: row {number} (the first is 0)"
        if "kind" not in row:
            if not kinds:
                raise DataError(
                    f"{where}: has no kind; add a column kind (decode, prefill, train, load, publish)"
                )
            row["kind"] = kinds[0]
        parsed = parse_row(_as_row(row), where)
        if not isinstance(parsed, About):
            measured.samples += of_rows([parsed], path.name)
    measured.about.append(About(where=path.name))
    measured.sources.append(path.name)


def _as_row(row: dict[str, Any]) -> dict[str, Any]:
    """Columns of this row's kind have values; a count may have been read as a float."""
    filled = {key: value for key, value in row.items() if value is not None and value == value}  # noqa: PLR0124
    whole = {
        k: int(v) for k, v in filled.items() if isinstance(v, float) and v.is_integer() and k != "seconds"
    }
    filled |= whole
    if "milliseconds" in filled:
        filled["seconds"] = filled.pop("milliseconds") / 1e3
    if filled["kind"] == "prefill" and "squared_tokens" not in filled and isinstance(filled["tokens"], int):
        filled["squared_tokens"] = filled["tokens"] ** 2 / filled.get("sequences", 1)
    return filled


def _rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 - only tables need it
    from pyarrow import csv, parquet  # noqa: PLC0415

    try:
        table = csv.read_csv(path) if path.suffix.lower() == ".csv" else parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]}); check the file") from None
    rows: list[dict[str, Any]] = table.to_pylist()
    if not rows:
        raise DataError(f"{path}: has no rows; see docs/reference/profile.md")
    return rows
