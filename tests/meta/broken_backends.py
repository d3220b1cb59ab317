"""Backends with one fault each. `BACKENDS`: name of the fault -> (backend, contract that must break)."""

import sys
import threading
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

from simulated import LONGEST, resolved

from areal_sim.parts import SimulatedBackend
from interfaces import events
from interfaces.actions import KEEPS, InFlight
from interfaces.rollout import Segment

LATE_REWARDS = {"latency_s": {"type": "exponential", "mean": 2.0}}


class Passes:
    """Carries everything out as it should; a fault overrides one method."""

    def __init__(self, inner, backend):
        self._inner, self.backend = inner, backend

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __len__(self):
        return len(self._inner)


class Broken(SimulatedBackend):
    """The simulator's backend; what it reports passes through `tell`, as a list of events."""

    engine_class = trainer_class = buffer_class = Passes

    def __init__(self, **sections):
        super().__init__(resolved(**sections), max_response_tokens=LONGEST, moment_s=0.3)
        self.engine = self.engine_class(self.engine, self)
        self.trainer = self.weights = self.trainer_class(self.trainer, self)
        self.buffer = self.buffer_class(self.buffer, self)
        self.told = deque()

    def tell(self, event):
        return [event]

    def wait(self, timeout_s):
        while not self.told:
            event = super().wait(timeout_s)
            if event is None:
                return None
            self.told.extend(self.tell(event))
        return self.told.popleft()


def telling(tell):
    return type(tell.__name__, (Broken,), {"tell": lambda self, event: tell(event)})


def twice(kind):
    def reports_twice(event):
        return [event, event] if isinstance(event, kind) else [event]

    return telling(reports_twice)


def never(kind):
    def never_reports(event):
        return [] if isinstance(event, kind) else [event]

    return telling(never_reports)


def changed(kind, **fields):
    def changes(event):
        return [event._replace(**fields)] if isinstance(event, kind) else [event]

    return telling(changes)


# ---- engines ------------------------------------------------------------------------------------------


class NeverAborts(Broken):
    class engine_class(Passes):  # noqa: N801
        def abort(self, action):
            pass


class CrashesOnUnknownAbort(Broken):
    class engine_class(Passes):  # noqa: N801
        known = set()  # noqa: RUF012

        def generate(self, action):
            self.known = self.known | {action.rollout}
            self._inner.generate(action)

        def abort(self, action):
            if action.rollout not in self.known:
                raise KeyError(action.rollout)
            self._inner.abort(action)


class FullLimitOnResume(Broken):
    class engine_class(Passes):  # noqa: N801
        def generate(self, action):
            self._inner.generate(action._replace(resume_tokens=0))


class IgnoresBudgets(Broken):
    class engine_class(Passes):  # noqa: N801
        def generate(self, action):
            self._inner.generate(action._replace(token_budget=None))


class TakesExceptionsForTheRule(Broken):
    class engine_class(Passes):  # noqa: N801
        def load(self, action):
            fate = action.exceptions[0][1] if action.exceptions else action.in_flight
            self._inner.load(action._replace(in_flight=fate))


class DropsWhatIsToStay(Broken):
    class engine_class(Passes):  # noqa: N801
        def load(self, action):
            fate = InFlight.ABORT_DROP if action.in_flight in KEEPS else action.in_flight
            self._inner.load(action._replace(in_flight=fate))


class KeepsWhatIsToGo(Broken):
    class engine_class(Passes):  # noqa: N801
        def load(self, action):
            fate = action.in_flight and InFlight.KEEP_STALE
            self._inner.load(action._replace(in_flight=fate))


class LoadsEverywhere(Broken):
    class engine_class(Passes):  # noqa: N801
        def load(self, action):
            self._inner.load(action)
            for replica in self.backend._mechanisms.replicas:
                if replica.id != action.replica:
                    replica.batch.serve(action.version)


class GoesOnUnderOldWeights(Broken):
    def tell(self, event):
        if isinstance(event, events.RolloutFinished):
            tokens = sum(segment.tokens for segment in event.segments)
            return [event._replace(segments=(Segment(event.segments[0].version, tokens),))]
        return [event]


class ServesOldWeights(Broken):
    def tell(self, event):
        if isinstance(event, events.RolloutFinished):
            old = tuple(Segment(max(0, version - 1), tokens) for version, tokens in event.segments)
            return [event._replace(segments=old)]
        return [event]


class NewVersionOnEveryToken(Broken):
    def tell(self, event):
        if isinstance(event, events.RolloutFinished):
            tokens = sum(segment.tokens for segment in event.segments)
            return [event._replace(segments=(Segment(event.segments[-1].version, tokens),))]
        return [event]


class LoadedBeforeItsAborts(Broken):
    """Holds every RolloutAborted back until the load is over."""

    def __init__(self, **sections):
        super().__init__(**sections)
        self.held = []

    def tell(self, event):
        if isinstance(event, events.RolloutAborted):
            self.held.append(event)
            return []
        if isinstance(event, events.WeightsLoaded):
            late = [held._replace(at=event.at) for held in self.held]
            self.held = []
            return [event, *late]
        return [event]


class ClockGoesBack(Broken):
    def tell(self, event):
        return [event._replace(at=event.at - 5.0, **self.first(event))]

    def first(self, event):
        return {"first_token_at": event.first_token_at - 5.0} if hasattr(event, "first_token_at") else {}


class WaitsForTheCheckpoint(Broken):
    """Generation stands still while a checkpoint is written."""

    class trainer_class(Passes):  # noqa: N801
        def checkpoint(self, action):
            self._inner.checkpoint(action)
            for replica in self.backend._mechanisms.replicas:
                replica.pause(5.0)


# ---- trainers -----------------------------------------------------------------------------------------


class EndsAtTheFirstPart(Broken):
    class trainer_class(Passes):  # noqa: N801
        def train(self, action):
            self._inner.train(action._replace(last=True))


class CheckpointFirst(Broken):
    """Asks the trainer for the checkpoint before the publish."""

    class trainer_class(Passes):  # noqa: N801
        waiting = None

        def train(self, action):
            self._inner.train(action)
            self.waiting = None

        def publish(self, action):
            self.waiting = action

        def checkpoint(self, action):
            self._inner.checkpoint(action)
            self._inner.publish(self.waiting)


class RefusesMasks(Broken):
    class trainer_class(Passes):  # noqa: N801
        def train(self, action):
            if action.mask_below is not None:
                raise ZeroDivisionError("mean over no token")
            self._inner.train(action)


class OneVersionOnly(Broken):
    class trainer_class(Passes):  # noqa: N801
        def publish(self, action):
            self._inner.publish(action._replace(version=1))


# ---- buffers, the end ---------------------------------------------------------------------------------


class NeverForgets(Broken):
    class buffer_class(Passes):  # noqa: N801
        def discard(self, rollouts, running=()):
            pass


class CrashesOnUnknownDiscard(Broken):
    class buffer_class(Passes):  # noqa: N801
        def discard(self, rollouts, running=()):
            for rollout in rollouts:
                if rollout > len(self) + 100:
                    raise KeyError(rollout)
            self._inner.discard(rollouts, running)


class CountsTheTrained(Broken):
    class buffer_class(Passes):  # noqa: N801
        most = 0

        def __len__(self):
            self.most = max(self.most, len(self._inner))
            return self.most


class LeavesAThread(Broken):
    stop = threading.Event()

    def close(self):
        if not getattr(self, "worker", None):
            self.worker = threading.Thread(target=self.stop.wait, args=(5.0,), name="reward worker")
            self.worker.start()
        super().close()


class StaysDead(Broken):
    def tell(self, event):
        return [] if isinstance(event, events.ReplicaUp) else [event]


class RisesUnpublished(Broken):
    def tell(self, event):
        return [event._replace(version=9)] if isinstance(event, events.ReplicaUp) else [event]


class DiesSilently(Broken):
    def break_replica(self, replica):
        self._mechanisms.replicas[replica].die()


BACKENDS = {
    "reports an end twice": (twice(events.RolloutFinished), "rollout_finishes"),
    "never reports an end": (never(events.RolloutFinished), "rollout_finishes"),
    "reports another replica": (changed(events.RolloutFinished, replica=1), "rollout_finishes"),
    "ends without a token": (changed(events.RolloutFinished, segments=()), "rollout_finishes"),
    "goes back in time": (ClockGoesBack, "rollout_finishes"),
    "never aborts": (NeverAborts, "abort_is_answered"),
    "answers an abort twice": (twice(events.RolloutAborted), "abort_is_answered"),
    "crashes on an abort that comes too late": (CrashesOnUnknownAbort, "abort_is_answered"),
    "gives the whole limit again on resume": (FullLimitOnResume, "resumed_within_its_limit"),
    "ignores token budgets": (IgnoresBudgets, "token_budget_is_kept"),
    "serves old weights after a load": (ServesOldWeights, "idle_load"),
    "says a load is over before its aborts": (LoadedBeforeItsAborts, "load_abort_resume"),
    "stamps the old version on what outlives a load": (GoesOnUnderOldWeights, "load_keep_stale"),
    "stamps the new version on every token": (NewVersionOnEveryToken, "load_keep_recompute"),
    "drops what a load is to keep": (DropsWhatIsToStay, "load_keep_recompute"),
    "keeps what a load is to abort": (KeepsWhatIsToGo, "load_abort_restart"),
    "takes exceptions for the rule": (TakesExceptionsForTheRule, "load_exceptions"),
    "loads on every replica": (LoadsEverywhere, "load_is_per_replica"),
    "dies silently": (DiesSilently, "replica_recovers"),
    "stays dead": (StaysDead, "replica_recovers"),
    "rises with a version that was never published": (RisesUnpublished, "replica_recovers"),
    "never ends a training": (never(events.TrainingFinished), "training_finishes"),
    "ends a step at its first part": (EndsAtTheFirstPart, "training_in_parts"),
    "divides by the masked tokens": (RefusesMasks, "masked_training"),
    "writes the checkpoint before it publishes": (CheckpointFirst, "phases_follow_the_publish"),
    "forgets the evaluation": (never(events.EvaluationFinished), "phases_follow_the_publish"),
    "generates nothing while it writes a checkpoint": (WaitsForTheCheckpoint, "generation_goes_on"),
    "publishes twice": (twice(events.WeightsPublished), "publish_is_answered"),
    "publishes one version for ever": (OneVersionOnly, "publish_is_answered"),
    "keeps what was trained": (CountsTheTrained, "buffer_holds_what_finished"),
    "crashes on an unknown discard": (CrashesOnUnknownDiscard, "buffer_discards"),
    "forgets nothing": (NeverForgets, "buffer_discards"),
    "loses a reward": (lambda: never(events.RewardReady)(reward=LATE_REWARDS), "rewards_follow"),
    "rewards twice": (lambda: twice(events.RewardReady)(reward=LATE_REWARDS), "rewards_follow"),
    "rewards with NaN": (
        lambda: changed(events.RewardReady, reward=float("nan"))(reward=LATE_REWARDS), "rewards_follow",
    ),
    "never switches roles": (never(events.RoleSwitched), "roles_switch"),
    "does not answer after a stop": (never(events.RolloutAborted), "stop_ends_the_run"),
    "leaves a thread": (LeavesAThread, "close_leaves_nothing"),
}  # fmt: skip
