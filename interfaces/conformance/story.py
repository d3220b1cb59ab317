"""Turns a violation into a story: the law, a short table of events, and Python that replays it."""

from collections.abc import Collection, Iterable, Sequence

from interfaces import actions, events
from interfaces.actions import Action
from interfaces.conformance.target import Target
from interfaces.conformance.violation import LAWS, InvariantViolation, Step
from interfaces.events import Event
from interfaces.loop import TrainingLoop
from interfaces.rollout import Segment
from interfaces.view import LoopConfig

SHOWN = 40
"""Events of a long history that are printed (the last ones)."""


def tell(violation: InvariantViolation) -> str:
    """The whole story as text."""
    law = LAWS[violation.number]
    parts = [
        f"law {law.number} ({law.name}): {law.sentence}",
        f"  expected:     {violation.expected}",
        f"  seen:         {violation.seen}",
        f"  likely cause: {violation.likely_cause}",
    ]
    if violation.context:
        parts.append(f"  run:          {violation.context}")
    if violation.history:
        note = ["(the steps that matter, of a longer run)"] if violation.excerpt else []
        parts += ["", *note, table(violation.history)]
    if violation.snippet:
        parts += ["", "replay it with:", "", violation.snippet]
    return "\n".join(parts)


def table(history: Sequence[Step]) -> str:
    """One line an event: number, what happened, version then, staleness trained, what the core answered."""
    skipped = max(0, len(history) - SHOWN)
    rows = [("#", "event", "version", "staleness", "answer")]
    for number, step in enumerate(history[skipped:], skipped + 1):
        what = "KILLED, restored from its snapshot" if step.event is None else describe(step.event)
        age = "" if step.staleness is None else str(step.staleness)
        rows.append((str(number), what, str(step.version), age, answer(step.answer)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]
    return "\n".join(
        [*([f"... {skipped} earlier events"] if skipped else []), *(line.rstrip() for line in lines)]
    )


def describe(event: Event) -> str:  # noqa: PLR0911 (one a kind)
    """An event in a few words."""
    match event:
        case events.RunStarted():
            return f"run starts, replicas {_list(event.replicas)}"
        case events.RolloutFinished():
            reward = "reward due" if event.reward is None else f"reward {event.reward:g}"
            return f"rollout {event.rollout} finishes ({_segments(event.segments)}; {reward})"
        case events.RolloutAborted():
            return f"rollout {event.rollout} comes back ({_segments(event.segments)})"
        case events.RolloutFailed():
            return f"rollout {event.rollout} is lost"
        case events.RewardReady():
            return f"reward of rollout {event.rollout} is {event.reward:g}"
        case events.TrainingFinished():
            return f"training of step {event.step} finishes"
        case events.WeightsPublished():
            return f"version {event.version} is published"
        case events.WeightsLoaded():
            return f"replica {event.replica} has loaded v{event.version}"
        case events.ReplicaDown():
            return f"replica {event.replica} dies"
        case events.ReplicaUp():
            return f"replica {event.replica} is back with v{event.version}"
        case _:
            values = ", ".join(f"{value}" for value in event[1:])
            return f"{type(event).__name__}({values})"


def answer(given: Iterable[Action]) -> str:
    """What the core answered, in a few words; admission news is left out."""
    words = []
    starts: dict[int, list[str]] = {}
    for action in given:
        match action:
            case actions.Generate():
                resumed = f"+{action.resume_tokens}" if action.resume_tokens else ""
                starts.setdefault(action.replica, []).append(f"{action.rollout}{resumed}")
            case actions.Train():
                mask = "" if action.mask_below is None else f" mask<{action.mask_below}"
                words.append(f"train step {action.step} v{action.version}: {_list(action.rollouts)}{mask}")
            case actions.LoadWeights():
                fate = "" if action.in_flight is None else f" {action.in_flight.value}"
                words.append(f"load v{action.version} on {action.replica}{fate}")
            case actions.Publish():
                words.append(f"publish v{action.version}")
            case actions.Discard():
                words.append(f"discard {_list(action.rollouts)} ({action.reason})")
            case actions.Abort():
                words.append(f"abort {action.rollout}")
            case actions.SwitchRole():
                words.append(f"switch to {action.role}")
            case actions.EndRun():
                words.append(f"end ({action.reason})")
            case actions.AdmissionBlocked():
                pass
            case _:
                words.append(type(action).__name__)
    words += [f"start {' '.join(rollouts)} on {replica}" for replica, rollouts in starts.items()]
    return "; ".join(words)


def _segments(segments: tuple[Segment, ...]) -> str:
    return " ".join(f"{tokens} tok v{version}" for version, tokens in segments) or "no tokens"


def _list(items: Iterable[int]) -> str:
    return ",".join(str(item) for item in items)


def snippet(
    violation: InvariantViolation,
    target: Target,
    config: LoopConfig,
    loop_class: type[TrainingLoop] = TrainingLoop,
    ignore: Collection[int] = (),
) -> str:
    """Python that feeds the same events to the same policy; a kill goes on from a snapshot of its moment."""
    rest = f", ignore={sorted(ignore)})" if ignore else ")"
    kinds = sorted({type(step.event).__name__ for step in violation.history if step.event is not None})
    loop = loop_class.__name__
    lines = [
        "from interfaces.conformance import Monitor",
        f"from interfaces.events import {', '.join(kinds)}",
        f"from {loop_class.__module__} import {loop}",
        "from interfaces.rollout import Segment",
        "from interfaces.view import LoopConfig",
        *([target.imports] if target.imports else []),
        "",
        f"config = {config!r}",
        f"monitor = Monitor({loop}({target.source}, config){rest}"
        if "#" not in target.source
        else f"monitor = Monitor({loop}(policy, config){rest}  # policy: the object that was checked",
    ]
    lines += [
        "monitor.kill_and_restore()" if step.event is None else f"monitor.feed({step.event!r})"
        for step in violation.history
    ]
    return "\n".join(f"    {line}".rstrip() for line in lines)
