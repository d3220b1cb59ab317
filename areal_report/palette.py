"""One colour and one name for each kind of time, the same in every chart and on dark and light pages."""

from typing import NamedTuple


class Kind(NamedTuple):
    """How a kind of time is shown."""

    label: str
    colour: str
    counted: str = ""
    """What the number in a span's detail is: `{} tokens`, `version {}`."""
    mark: bool = False
    """Short but telling: kept and drawn at least a pixel wide at every zoom."""


KINDS: dict[str, Kind] = {
    "decode": Kind("decode", "#4f8fd6"),
    "prefill": Kind("prefill", "#2bb5a8", "{} tokens"),
    "recompute": Kind("recompute after interruption", "#e4572e", "{} tokens", mark=True),
    "load": Kind("load weights (interruption)", "#9163cb", "version {}", mark=True),
    "train": Kind("train", "#4aa564", "step {}", mark=True),
    "publish": Kind("publish weights", "#d0569f", "version {}", mark=True),
    "checkpoint": Kind("checkpoint", "#a8794a", "step {}", mark=True),
    "evaluation": Kind("evaluation", "#7f8f2f", "step {}", mark=True),
    "switch": Kind("change of role", "#6c7fa6", mark=True),
    "down": Kind("down", "#8a1c2c", mark=True),
    "idle:staleness_gate": Kind("idle: staleness gate", "#e5b945"),
    "idle:concurrency": Kind("idle: concurrency", "#f0d58a"),
    "idle:batch_barrier": Kind("idle: batch barrier", "#c79a3a"),
    "idle:round": Kind("idle: end of the round", "#a9925a"),
    "idle:buffer_full": Kind("idle: buffer full", "#c2b5a0"),
    "idle:rollouts": Kind("idle: waits for rollouts", "#b4bac3"),
    "idle:straggler": Kind("idle: waits for a straggler", "#d99a6c"),
    "idle:training": Kind("idle: GPUs train", "#c9d6b4"),
    "idle:data": Kind("idle: no data left", "#d7c9e0"),
    "idle:starting": Kind("idle: starting", "#d8dce1"),
}

_OTHER = ("#9aa6b2", "#c2b280", "#a9c0a6", "#c0a0b0", "#8fb0b5")
SERIES = ("#4f8fd6", "#e4572e", "#4aa564", "#9163cb", "#e5b945", "#2bb5a8", "#d0569f", "#a8794a")
"""Colours of runs or of lines in one chart."""
ROLLOUT, TRAINER, MEASURE, MUTED = "#4f8fd6", "#4aa564", "#c2702f", "#8b949e"
SCALE = ((0.0, "rgba(79,143,214,0.05)"), (1.0, "rgba(79,143,214,1)"))
"""Of shares in heat maps: nothing fades into the page."""
VALUES = "Viridis"
"""Of numbers in heat maps."""


def kind(name: str) -> Kind:
    """Of a time kind; an idle cause of a user's policy gets a colour of its own."""
    known = KINDS.get(name)
    if known is not None:
        return known
    return Kind(name.replace(":", ": ").replace("_", " "), _OTHER[sum(map(ord, name)) % len(_OTHER)])


def ordered(names: set[str]) -> list[str]:
    """Kinds in the order of a legend: work first, idle last."""
    order = list(KINDS)
    return sorted(names, key=lambda name: (order.index(name) if name in KINDS else len(order), name))


def series(index: int) -> str:
    """Colour of the n-th run or line."""
    return SERIES[index % len(SERIES)]
