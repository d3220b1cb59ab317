"""Directed checks: laws that chance rarely shows, each on one small run with durations."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from interfaces.actions import Discard, Dismiss, Generate, Train
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.target import Target
from interfaces.conformance.timed import Durations, Timed
from interfaces.conformance.violation import Step
from interfaces.loop import TrainingLoop
from interfaces.view import LoopConfig

STRAGGLER_TOKENS = 9
STEPS = 36
PATIENCE = 16
"""Versions by which a prompt may be overtaken, beyond the bound."""


def directed_checks(
    target: Target, loop_class: type[TrainingLoop] = TrainingLoop
) -> Iterator[tuple[str, Callable[[], None]]]:
    """The checks by name."""
    yield "tightness", lambda: check_tightness(target, loop_class)
    yield "credit", lambda: check_credit(target, loop_class)
    yield "starvation", lambda: check_starvation(target, loop_class)


def _config(target: Target, steps: int, max_retries: int = 1) -> LoopConfig:
    config = LoopConfig(target.fixed_batch or 2, 1, steps, max_retries=max_retries)
    if getattr(target.policy(config).buffering, "filter_zero_variance", False):
        return replace(config, group_size=2)
    return config


def _run(target: Target, config: LoopConfig, durations: Durations, loop_class: type[TrainingLoop]) -> Monitor:
    monitor = Monitor(loop_class(target.policy(config), config))
    backend = Timed(monitor, 2, durations)
    backend.run()
    if not backend.ended:
        view = monitor.loop.view
        seen = f"{view.steps_finished} of {config.steps} steps after {len(monitor.history)} events"
        monitor.report(
            6, "a run with ordinary durations ends", seen, "a livelock: work is thrown away and done again"
        )
    return monitor


def check_tightness(target: Target, loop_class: type[TrainingLoop] = TrainingLoop) -> None:
    """Law 15: with a generator much faster than the trainer, staleness reaches the declared bound.

    A hard bound may also be one that only long rollouts reach.
    """
    promise = target.policy(_config(target, 1)).guarantees
    bound = promise.max_staleness
    if bound is None or bound > STEPS:
        return
    config = _config(target, int(bound) + 6)
    monitor = _run(target, config, Durations(train_s=8.0 * (bound + 1)), loop_class)
    tokens = 0
    while promise.hard and monitor.max_staleness_seen < bound and tokens < 4 * (bound + 3):
        tokens += 2
        durations = Durations(tokens=partial(_one_long, tokens), train_s=4.0)
        monitor = _run(target, config, durations, loop_class)
    if monitor.max_staleness_seen < bound:
        seen = f"at most {monitor.max_staleness_seen}"
        cause = "admission: the gate is tighter than declared, off by one or counting something twice"
        expected = f"staleness reaches the declared bound {bound:g}"
        monitor.report(15, expected, seen, cause, lambda step: step.staleness is not None)


def _one_long(tokens: int, prompt: int, member: int) -> int:  # noqa: ARG001
    """Prompt 1 has a long response."""
    return tokens if prompt == 1 else 1


def check_credit(target: Target, loop_class: type[TrainingLoop] = TrainingLoop) -> None:
    """Law 1: as many groups are outstanding late in a run with failed and filtered groups as early in it."""
    config = _config(target, STEPS, max_retries=0)
    durations = Durations(
        train_s=30.0,
        fails=lambda prompt, attempt: prompt % 4 == 1,  # noqa: ARG005
        reward=lambda prompt, member: 0.0 if prompt % 4 == 2 else float(member % 2),
    )
    monitor = _run(target, config, durations, loop_class)
    early, late = _peak(monitor, 1, STEPS // 3), _peak(monitor, 2 * STEPS // 3, STEPS - 1)
    if late < early:
        seen = f"{late} from version {2 * STEPS // 3} on"
        cause = "credit of failed, filtered or expired groups is not returned"
        expected = f"up to {early} rollouts are outstanding, as early in the run"
        monitor.report(1, expected, seen, cause, lambda step: any(type(a) is Discard for a in step.answer))


def _peak(monitor: Monitor, first: int, last: int) -> int:
    """Most rollouts started and neither trained nor discarded at any time of these versions."""
    outstanding: set[int] = set()
    peak = 0
    for step in monitor.history:
        for action in step.answer:
            if type(action) is Generate:
                outstanding.add(action.rollout)
            elif isinstance(action, Train | Discard | Dismiss):
                outstanding.difference_update(action.rollouts)
        if first <= step.version < last:
            peak = max(peak, len(outstanding))
    return peak


def check_starvation(target: Target, loop_class: type[TrainingLoop] = TrainingLoop) -> None:
    """Law 6: a policy that promises to drop nothing trains even its longest rollout, and its oldest group."""
    promise = target.policy(_config(target, 1)).guarantees
    if not promise.no_drops:
        return
    config = _config(target, STEPS)
    bound = min(promise.max_staleness or 0, STEPS)
    long = Durations(tokens=partial(_one_long, STRAGGLER_TOKENS), train_s=2.0)
    for durations in (long, Durations(train_s=20.0)):
        monitor = _run(target, config, durations, loop_class)
        first: dict[int, int] = {}
        for step in monitor.history:
            for action in step.answer:
                if type(action) is Generate:
                    first.setdefault(action.prompt, step.version)
        newest = max(
            (version for prompt, version in first.items() if prompt in monitor.books.trained), default=0
        )
        waiting = [
            prompt
            for prompt, version in first.items()
            if version + bound + PATIENCE <= newest and prompt not in monitor.books.trained
        ]
        if waiting:
            expected = f"no prompt is overtaken by others started {bound + PATIENCE:g} versions later"
            seen = f"prompts {waiting[:8]} were, and never trained in {STEPS} steps"
            cause = (
                "sync: long rollouts are restarted at every load; or buffering: the oldest groups never go"
            )
            monitor.report(6, expected, seen, cause, partial(_concerns, _rollouts_of(monitor, waiting[0])))


def _rollouts_of(monitor: Monitor, prompt: int) -> set[int]:
    """Rollouts that were started for a prompt."""
    starts = (action for step in monitor.history for action in step.answer if type(action) is Generate)
    return {action.rollout for action in starts if action.prompt == prompt}


def _concerns(rollouts: set[int], step: Step) -> bool:
    """Whether a step is about one of these rollouts."""
    if step.event is not None and getattr(step.event, "rollout", None) in rollouts:
        return True
    return any(getattr(action, "rollout", None) in rollouts for action in step.answer)
