"""Which parameter an answer hangs on: each one alone at both ends of its range, all else as it is.

All variants use the same random numbers, so differences are effects and not luck.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interfaces.calibration import Calibration, Estimate, read_calibration, write_calibration
from interfaces.distributions import Distribution, Mixture
from interfaces.scenario import Drift, Resolved

EFFICIENCY = 0.2
"""Relative range of an efficiency or overhead whose source gives none."""
WORKLOAD = 0.1
"""Relative range of what describes the workload."""


_NUMBERS = {
    "constant": ("value",),
    "lognormal": ("median", "sigma"),
    "exponential": ("mean",),
    "gamma": ("mean", "shape"),
}
"""Parameters of each distribution, its cap excepted: that is a decision, not an uncertainty."""


class Factor(NamedTuple):
    """One parameter, and the scenario at both ends of its range."""

    name: str
    value: float
    low: float
    high: float
    at_low: Resolved
    at_high: Resolved


def factors(resolved: Resolved, folder: Path) -> list[Factor]:
    """Everything that is uncertain about a scenario; `folder` takes changed cost files.

    Efficiencies of the hardware over the range that its file gives, or +-20 %; calibrated costs over their
    95 % intervals; constants of `[cost]` and overheads +-20 %; lengths, spreads and latencies +-10 %.
    """
    found = [*_efficiencies(resolved), *_costs(resolved, folder), *_workload(resolved)]
    return [factor for factor in found if factor.low < factor.high]


# ---- hardware and costs -----------------------------------------------------------------------------------


def _efficiencies(resolved: Resolved) -> Iterator[Factor]:
    if resolved.scenario.cost.model == "constant":
        return
    shares = resolved.hardware.efficiencies
    ranges: dict[str, tuple[float, float]] = getattr(shares, "given_ranges", dict)()
    for name, value in shares.model_dump().items():
        if not isinstance(value, float) or (ranges and name not in ranges):
            continue
        low, high = ranges.get(name, _around(value, EFFICIENCY))
        low = max(low, 1.0) if name == "decode_slowdown" else low
        high = min(high, 1.0) if name.endswith("_share") else high
        yield Factor(
            f"hardware.efficiencies.{name}", value, low, high,
            _with_efficiency(resolved, name, low), _with_efficiency(resolved, name, high),
        )  # fmt: skip


def _with_efficiency(resolved: Resolved, name: str, value: float) -> Resolved:
    shares = resolved.hardware.efficiencies.model_copy(update={name: value})
    hardware = resolved.hardware.model_copy(update={"efficiencies": shares})
    return resolved.model_copy(update={"hardware": hardware})


def _costs(resolved: Resolved, folder: Path) -> Iterator[Factor]:
    cost = resolved.scenario.cost
    if cost.model == "constant":
        for name in ("decode_step_s", "prefill_s", "train_s", "publish_s", "load_s"):
            yield from _scaled(resolved, "cost", name, EFFICIENCY)
    elif cost.model == "fitted" and cost.file is not None and cost.file.endswith(".json"):
        yield from _calibrated(resolved, Path(resolved.where).parent / cost.file, folder)
    yield from _scaled(resolved, "weight_sync", "overhead_s", EFFICIENCY)


def _calibrated(resolved: Resolved, file: Path, folder: Path) -> Iterator[Factor]:
    calibration = read_calibration(file)
    for part_name, part in calibration.parts.items():
        for name, estimate in part.parameters.items():
            if name in part.assumed:
                continue
            ends: list[Resolved] = []
            for end in (estimate.low, estimate.high):
                at = Estimate(value=end, low=end, high=end)
                changed = part.model_copy(update={"parameters": {**part.parameters, name: at}})
                parts = {**calibration.parts, part_name: changed}
                ends.append(
                    _with_costs(
                        resolved,
                        calibration.model_copy(update={"parts": parts}),
                        folder / f"{part_name}.{name}.{len(ends)}.json",
                    )
                )
            yield Factor(
                f"{file.name}: {part_name}.{name}", estimate.value, estimate.low, estimate.high, *ends
            )


def _with_costs(resolved: Resolved, calibration: Calibration, place: Path) -> Resolved:
    place.write_text(write_calibration(calibration), encoding="utf-8")
    return _changed(resolved, "cost", {"file": str(place.absolute())})


# ---- workload ---------------------------------------------------------------------------------------------


def _workload(resolved: Resolved) -> Iterator[Factor]:
    work, reward = resolved.scenario.workload, resolved.scenario.reward
    yield from _lengths(resolved, "workload", "prompt_tokens", work.prompt_tokens)
    yield from _lengths(resolved, "workload", "response_tokens", work.response_tokens)
    yield from _lengths(resolved, "reward", "latency_s", reward.latency_s)
    yield from _scaled(resolved, "workload", "group_correlation", WORKLOAD)
    if work.turns is not None:
        for name in ("number", "tool_time_s", "tool_tokens"):
            law: Distribution = getattr(work.turns, name)
            for key, value, low, high in _law_ends(law):
                ends = [
                    _changed(resolved, "workload", {"turns": work.turns.model_copy(update={name: end})})
                    for end in (low, high)
                ]
                label = f"workload.turns.{name}.{key}"
                yield Factor(label, value, *_around(value, WORKLOAD), ends[0], ends[1])


def _lengths(resolved: Resolved, section: str, name: str, law: Distribution) -> Iterator[Factor]:
    ends = list(_law_ends(law))
    for key, value, low, high in ends:
        variants = [_changed(resolved, section, {name: end}) for end in (low, high)]
        yield Factor(f"{section}.{name}.{key}", value, *_around(value, WORKLOAD), variants[0], variants[1])
    if not ends and name == "response_tokens":  # measured lengths are scaled by drift
        low_at, high_at = (_drifted(resolved, 1.0 + sign * WORKLOAD) for sign in (-1, 1))
        yield Factor(f"{section}.{name} (scale)", 1.0, *_around(1.0, WORKLOAD), low_at, high_at)


def _law_ends(law: Distribution) -> Iterator[tuple[str, float, Distribution, Distribution]]:
    """Each parameter of a distribution: its name, its value, the distribution at both ends."""
    if isinstance(law, Mixture):
        yield from _mixture_ends(law)
    for key in _NUMBERS.get(law.type, ()):
        value = getattr(law, key)
        if value:
            low, high = (law.model_copy(update={key: end}) for end in _around(value, WORKLOAD))
            yield key, value, low, high


def _mixture_ends(law: Mixture) -> Iterator[tuple[str, float, Distribution, Distribution]]:
    first, *rest = law.parts
    low, high = (_scaled_medians(law, scale) for scale in _around(1.0, WORKLOAD))
    yield "medians (scale)", 1.0, low, high
    if rest:
        low, high = (
            law.model_copy(update={"parts": (first.model_copy(update={"weight": weight}), *rest)})
            for weight in _around(first.weight, WORKLOAD)
        )
        yield "parts[0].weight", first.weight, low, high


def _scaled_medians(law: Mixture, scale: float) -> Mixture:
    parts = tuple(part.model_copy(update={"median": part.median * scale}) for part in law.parts)
    return law.model_copy(update={"parts": parts})


def _drifted(resolved: Resolved, scale: float) -> Resolved:
    drift = resolved.scenario.workload.drift
    points = tuple(point.model_copy(update={"scale": point.scale * scale}) for point in drift)
    if not drift or drift[0].step > 0:
        points = (Drift(step=0, scale=scale), *points)
    return _changed(resolved, "workload", {"drift": points})


# ---- small changes ----------------------------------------------------------------------------------------


def _around(value: float, share: float) -> tuple[float, float]:
    return value * (1.0 - share), value * (1.0 + share)


def _scaled(resolved: Resolved, section: str, name: str, share: float) -> Iterator[Factor]:
    """A number of a section; nothing where it is absent."""
    value = getattr(getattr(resolved.scenario, section), name)
    if value:
        low, high = _around(value, share)
        high = min(high, 0.99) if name == "group_correlation" else high
        ends = [_changed(resolved, section, {name: end}) for end in (low, high)]
        yield Factor(f"{section}.{name}", value, low, high, ends[0], ends[1])


def _changed(resolved: Resolved, section: str, update: dict[str, Any]) -> Resolved:
    table = getattr(resolved.scenario, section).model_copy(update=update)
    scenario = resolved.scenario.model_copy(update={section: table})
    return resolved.model_copy(update={"scenario": scenario})
