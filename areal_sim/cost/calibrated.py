"""Costs from a `cost.json` of `areal-sim calibrate`; what it lacks comes from the roofline.

The coefficients are whole engine and trainer times, host overheads included, so nothing of the hardware
file is added to them. No answer undercuts the physical floor of the scenario's hardware. Amounts beyond the
range of the data are remembered and reported: such a prediction is an extrapolation.
"""

from bisect import bisect_left
from pathlib import Path

import numpy as np

from areal_sim.cost.protocol import Ints, TrainingTime
from areal_sim.cost.roofline import RooflineCost
from interfaces import memory
from interfaces.calibration import Calibration, Part, PartName, read_calibration
from interfaces.errors import DataError, ScenarioError
from interfaces.scenario import Resolved


class CalibratedCost(RooflineCost):
    """Fitted coefficients for decode, prefill, training, load and publish.

    Raises:
        ScenarioError: `cost.file` cannot be read.
    """

    def __init__(self, resolved: Resolved, calibration: Calibration | None = None) -> None:
        """`calibration` replaces the file that the scenario names."""
        file = resolved.scenario.cost.file
        if calibration is None:
            assert file is not None
            calibration = _read(resolved.where, file)
        self._parts = calibration.parts
        self._decode = calibration.parts.get("decode")
        self._weights = float(memory.replica_weight_bytes(resolved.model))
        self._seen: dict[tuple[PartName, str], tuple[float, float]] = {}
        super().__init__(resolved)
        self.provenance = _provenance(calibration)
        self._foreign = _foreign(calibration, resolved)
        if self._decode is not None:
            self.decode_per_context_token_s = max(
                self._decode.seconds("context_token_s"), self.floor.decode_per_context_token_s
            )

    def outside(self, largest_batch: int = 0, largest_context_tokens: int = 0) -> list[str]:
        """One sentence for each amount asked for beyond the range of the data, and for each foreign part.

        The two arguments are the largest decode step of the run; smaller ones are interpolated.
        """
        told = list(self._foreign)
        for name, value in (("sequences", largest_batch), ("context_tokens", largest_context_tokens)):
            if self._decode is not None and name in self._decode.validity:
                limit = self._decode.validity[name]
                told += _beyond("decode", name, (limit.low, float(value)), (limit.low, limit.high))
        for (part, name), asked in self._seen.items():
            valid = self._parts[part].validity.get(name)
            if valid is not None:
                told += _beyond(part, name, asked, (valid.low, valid.high))
        return told

    def _compute_base_s(self, n: int) -> float:
        if self._decode is None:
            return super()._compute_base_s(n)
        return max(_base_s(self._decode, n), self.floor.decode_base_s(n))

    def prefill_s(self, tokens: int, squared_tokens: float, sequences: int = 1) -> float:
        """See `CostModel`; a prefill measured alone has a step inside, which `shares_steps` may not cost."""
        part = self._parts.get("prefill")
        if part is None or tokens <= 0:
            return super().prefill_s(tokens, squared_tokens, sequences)
        self._note("prefill", "tokens", float(tokens))
        seconds = part.seconds("token_s") * tokens + part.seconds("squared_token_s") * squared_tokens
        if not self._prefill_shares_steps:
            seconds += part.seconds("call_s")
        return max(seconds, self.floor.prefill_floor_s(tokens, squared_tokens))

    def training_step_s(
        self, lengths: Ints, *, minibatches: int | None = None, update: bool = True
    ) -> TrainingTime:
        """See `CostModel`: micro-batches are cut as the roofline cuts them, their time is the fitted one."""
        cut = super().training_step_s(lengths, minibatches=minibatches, update=update)
        part = self._parts.get("train")
        if part is None:
            return cut
        sizes = np.asarray(lengths, dtype=np.float64)
        tokens, squared = float(sizes.sum()), float((sizes**2).sum())
        self._note("train", "tokens", tokens)
        steps = len(cut.minibatch_s)
        update_s = part.seconds("optimizer_step_s") if update else 0.0
        work_s = part.seconds("microbatch_s") * cut.microbatches + part.seconds("token_s") * tokens
        work_s += part.seconds("squared_token_s") * squared
        work_s = max(work_s, self.floor.training_floor_s(tokens, squared))
        share = (work_s / steps + update_s,) * steps
        return cut._replace(total_s=sum(share), forward_s=0.0, minibatch_s=share, update_s=update_s)

    def publish_s(self) -> float:
        """See `CostModel`."""
        return super().publish_s() if "publish" not in self._parts else self._moved_s("publish")

    def load_s(self, replicas_loading: int) -> float:
        """See `CostModel`; a measured load has its overhead inside, and is the same however many load."""
        return super().load_s(replicas_loading) if "load" not in self._parts else self._moved_s("load")

    def _moved_s(self, name: PartName) -> float:
        part = self._parts[name]
        self._note(name, "bytes", self._weights)
        return part.seconds("fixed_s") + part.seconds("byte_s") * self._weights

    def _note(self, part: PartName, name: str, value: float) -> None:
        low, high = self._seen.get((part, name), (value, value))
        if not low <= value <= high or (part, name) not in self._seen:
            self._seen[part, name] = min(low, value), max(high, value)


def _base_s(part: Part, n: int) -> float:
    """A decode step without context: a line, or between the knots of a table, beyond them on its slope."""
    if not part.knots:
        return part.seconds("step_s") + part.seconds("sequence_s") * n
    knots = part.knots
    times = [part.seconds(f"batch_{knot}_s") for knot in knots]
    if n <= knots[0] or len(knots) == 1:
        return times[0]
    right = min(bisect_left(knots, n), len(knots) - 1)
    slope = (times[right] - times[right - 1]) / (knots[right] - knots[right - 1])
    return max(times[right] + slope * (n - knots[right]), 0.0)


def _beyond(
    part: str, name: str, asked: tuple[float, float], valid: tuple[float, float]
) -> list[str]:  # fmt: skip
    if valid[0] <= asked[0] and asked[1] <= valid[1]:
        return []
    far = f"{asked[1]:,.0f}" if asked[1] > valid[1] else f"{asked[0]:,.0f}"
    return [f"{part}: {name} {far} is outside the measured {valid[0]:,.0f} to {valid[1]:,.0f}"]


def _read(where: str, file: str) -> Calibration:
    try:
        return read_calibration(Path(where).parent / file)
    except DataError as error:
        remedy = "write it with `areal-sim calibrate --from FILE -o cost.json`"
        raise ScenarioError(
            where, "cost.file", file, f"is not a file of calibrated costs: {error}", remedy
        ) from None


def _provenance(calibration: Calibration) -> str:
    told = [
        calibration.told(key) for key in ("model", "hardware", "engine", "engine_version", "where", "when")
    ]
    parts = ", ".join(calibration.parts)
    return f"calibrated ({parts}) from {', '.join(calibration.sources)}: {', '.join(filter(None, told))}"


def _foreign(calibration: Calibration, resolved: Resolved) -> list[str]:
    """What the costs were measured on that the scenario does not have."""
    asked = {
        "hardware": resolved.hardware.name, "model": resolved.model.name,
        "engine": resolved.scenario.engine.name,
    }  # fmt: skip
    told = [
        f"costs were measured for {key} {known}, the scenario has {value}"
        for key, value in asked.items()
        if (known := calibration.told(key)) and value.lower() not in known.lower()
    ]
    ranks = resolved.scenario.engine.tensor_parallel
    if calibration.tensor_parallel not in (0, ranks):
        measured = calibration.tensor_parallel
        told.append(f"costs were measured for tensor parallelism {measured}, the scenario has {ranks}")
    return told
