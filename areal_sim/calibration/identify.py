"""Says in words which parameter the data cannot identify, and what to measure."""

from collections.abc import Sequence

from areal_sim.calibration.samples import Sample
from interfaces.calibration import PartName
from interfaces.errors import DataError

REMEDIES: dict[tuple[PartName, str], str] = {
    ("decode", "step_s"): "measure at least two batch sizes",
    ("decode", "sequence_s"): "measure at least two batch sizes",
    ("decode", "context_token_s"): "measure each batch size at two or more context lengths",
    ("prefill", "call_s"): "measure short and long prefills",
    ("prefill", "token_s"): "measure prefills of different numbers of tokens",
    (
        "prefill",
        "squared_token_s",
    ): "measure the same number of tokens in one long and in many short sequences",
    ("train", "optimizer_step_s"): "measure steps of few and of many tokens, with different optimizer steps",
    ("train", "microbatch_s"): "measure the same batch cut into few and into many micro-batches",
    ("train", "token_s"): "measure batches of different numbers of tokens",
    ("train", "squared_token_s"): "measure the same number of tokens in long and in short sequences",
    ("load", "fixed_s"): "measure weights of two sizes",
    ("load", "byte_s"): "measure weights of two sizes",
    ("publish", "fixed_s"): "measure weights of two sizes",
    ("publish", "byte_s"): "measure weights of two sizes",
}


def refuse_few(part: PartName, rows: int, parameters: Sequence[str]) -> None:
    """Refuse a fit without a row to spare.

    Raises:
        DataError: there is none; the message says what to measure.
    """
    if rows > len(parameters):
        return
    remedy = "measure it more than once"
    if len(parameters) > 1:
        remedy = "; ".join(dict.fromkeys(_remedy(part, name) for name in parameters))
    raise DataError(
        f"{part}: {_rows(rows)} cannot give {_counted(len(parameters), 'parameter')} "
        f"({', '.join(parameters)}) and their error: {remedy}; "
        f"or set one by hand: {_by_hand(part, parameters[0])}"
    )


def refusal(part: PartName, names: Sequence[str], samples: Sequence[Sample]) -> DataError:
    """The error for parameters that these samples cannot tell apart."""
    remedy = "; ".join(dict.fromkeys(_remedy(part, name) for name in names))
    what = f"cannot identify {names[0]}" if len(names) == 1 else f"cannot tell {' from '.join(names)}"
    return DataError(
        f"{part}: {_rows(len(samples))} {what} ({_seen(samples)}): {remedy}; "
        f"or set one by hand: {_by_hand(part, names[0])}; or use --simplify"
    )


def scattered(part: PartName, names: Sequence[str], samples: Sequence[Sample]) -> DataError:
    """The error for parameters whose intervals are too wide: enough different rows, too much noise."""
    return DataError(
        f"{part}: {_rows(len(samples))} scatter too much to give {', '.join(names)} ({_seen(samples)}): "
        f"measure more often, on an idle machine, or over a wider range"
        f"{_or_table(part, names)}; or set one by hand: {_by_hand(part, names[0])}; or use --simplify"
    )


def _or_table(part: PartName, names: Sequence[str]) -> str:
    """Scatter around a line may be a curve."""
    return ", or use --decode table" if part == "decode" and names[0] in {"step_s", "sequence_s"} else ""


def _rows(number: int) -> str:
    return _counted(number, "measurement")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _remedy(part: PartName, name: str) -> str:
    return REMEDIES.get((part, name), "measure more context lengths at each batch size")


def _by_hand(part: PartName, name: str) -> str:
    return f"--fix {part}.{name}=SECONDS"


def _seen(samples: Sequence[Sample]) -> str:
    """`sequences 8; context_tokens 100 to 900`."""
    told = []
    for name in samples[0].validity:
        values = [sample.validity[name] for sample in samples if name in sample.validity]
        low, high = min(values), max(values)
        told.append(f"{name} {low:g}" if low == high else f"{name} {low:g} to {high:g}")
    return "; ".join(told) or "only totals"
