"""Cores with one fault each. `LOOPS`: name of the fault -> (core, policy, check that must fail)."""

from broken_policies import base

from interfaces import actions
from interfaces.actions import WAITS, InFlight
from interfaces.loop import TrainingLoop
from interfaces.policies.presets import Areal, ArealStrict, Sync, SyncColocated
from interfaces.policies.sync import EveryStep
from interfaces.rollout import GroupState


class TrainsTwice(TrainingLoop):
    """Gives the trainer what it had in the first step once more."""

    first = None

    def _take(self, batch):
        super()._take(batch)
        train = next(action for action in self._out if isinstance(action, actions.Train))
        if self.first is None:
            self.first = train
        else:
            again = train._replace(groups=self.first.groups, rollouts=self.first.rollouts)
            self._out[self._out.index(train)] = again


class PartialGroups(TrainingLoop):
    """A group is ready one member too early."""

    def _admit(self):
        super()._admit()
        for group in self.view.running.values():
            group.needed = max(1, self.view.config.group_size - 1)


class ForgetsLastPublish(TrainingLoop):
    """Publishes only when the policy wants to."""

    def _publish(self):
        ending, self._ending = self._ending, None
        try:
            super()._publish()
        finally:
            self._ending = ending

    def _end(self):
        if self.view.version > self.view.published:
            published, self.view.published = self.view.published, self.view.version
            super()._end()
            self.view.published = published
        else:
            super()._end()


class LoadsWithoutDraining(TrainingLoop):
    """DRAIN closes the replica and loads at once."""

    def _load(self, replica, intent):
        if intent in WAITS and replica.running:
            self.view.pool.close(replica, self.view.published, loading=True)
            self._out.append(actions.LoadWeights(replica.id, replica.target, None, ()))
        else:
            super()._load(replica, intent)


class SwitchesEarly(TrainingLoop):
    """Colocated: trains while rollouts still run."""

    def _clear_for_training(self):
        self.view.role = "switching"
        self._out.append(actions.SwitchRole("train"))


class ResumesWhatRestarts(TrainingLoop):
    """ABORT_RESTART keeps the tokens (verl#6882)."""

    def _on_rollout_aborted(self, event):
        rollout = self.ledger.rollouts[event.rollout]
        forget, type(rollout).forget = type(rollout).forget, lambda self: None
        try:
            super()._on_rollout_aborted(event)
        finally:
            type(rollout).forget = forget


class FullBudgetOnResume(TrainingLoop):
    """A resumed rollout may generate its whole limit again (verl#7207)."""

    def _dispatch(self):
        super()._dispatch()
        self._out[:] = [
            action._replace(resume_tokens=action.resume_tokens and action.resume_tokens + 1)
            if isinstance(action, actions.Generate)
            else action
            for action in self._out
        ]


class ShiftsVersions(TrainingLoop):
    """The step says it starts from the version it will make (1-based against 0-based)."""

    def _take(self, batch):
        super()._take(batch)
        self._out[:] = [
            action._replace(version=action.version + 1) if isinstance(action, actions.Train) else action
            for action in self._out
        ]


class SkipsAVersion(TrainingLoop):
    """Counts two versions for one step, once."""

    def _on_training_finished(self, event):
        super()._on_training_finished(event)
        if self.view.version == 2:
            self.view.version = 3


class DropsWithoutCounting(TrainingLoop):
    """Discarded groups are not counted."""

    def _discard(self, group_id, reason, *, requeue=False):
        super()._discard(group_id, reason, requeue=requeue)
        self.view.discarded_groups -= 1


class LosesRunningCount(TrainingLoop):
    """A failed rollout stays counted as running."""

    def _on_rollout_failed(self, event):
        super()._on_rollout_failed(event)
        self.view.running_rollouts += 1


class EndsBeforeEvaluation(TrainingLoop):
    """Does not wait for checkpoints and evaluations."""

    def _end(self):
        self._busy.clear()
        super()._end()


class StopsOneStepEarly(TrainingLoop):
    """Ends after one step less than asked for."""

    def _on_training_finished(self, event):
        super()._on_training_finished(event)
        if self.view.steps_finished == self.view.config.steps - 1:
            self._begin_end("steps")


class WithholdsLastBatch(TrainingLoop):
    """Ends with the data although a batch is ready."""

    def _train(self):
        if not self.view.prompts_left and not self.view.running and not self.view.training:
            self._begin_end("data")
        else:
            super()._train()


class StartsTwice(TrainingLoop):
    """A rollout whose reward fails is started again, and again."""

    def _on_reward_failed(self, event):
        super()._on_reward_failed(event)
        rollout = self.ledger.rollouts.get(event.rollout)
        if rollout is not None and rollout.group.state is GroupState.RUNNING:
            self._out.append(
                actions.Generate(
                    rollout.id, rollout.group.prompt, rollout.member, rollout.attempt, 0, 0, None
                )
            )


class LosesItsReward(TrainingLoop):
    """A reward that comes late is forgotten."""

    def _on_reward_ready(self, event):
        pass


class PublishesUntrained(TrainingLoop):
    """Publishes the version that is being trained."""

    def _take(self, batch):
        super()._take(batch)
        self._out.append(actions.Publish(self.view.version + 1))


class LoadsUnpublished(TrainingLoop):
    """Loads as soon as training is done, before the version is out."""

    def _on_training_finished(self, event):
        super()._on_training_finished(event)
        for replica in self.view.pool:
            if replica.open and not replica.running:
                self._out.append(actions.LoadWeights(replica.id, self.view.version, None, ()))


class IgnoresDeaths(TrainingLoop):
    """Rollouts of a dead replica are never started again."""

    def _on_replica_down(self, event):
        before = self.ledger
        super()._on_replica_down(event)
        for rollout in list(before.rollouts.values()):
            if rollout.replica < 0 and rollout.state.value == "pending":
                self.ledger.drop(rollout)


class CrashesOnLateReward(TrainingLoop):
    """A reward for a discarded group is an error."""

    def _on_reward_ready(self, event):
        self.ledger.rollouts[event.rollout].reward = event.reward
        super()._on_reward_ready(event)


RESTART = InFlight.ABORT_RESTART


def restarting(config):
    return base(config, sync=EveryStep(RESTART), in_flight=frozenset({RESTART}))


def resuming(config):
    resume = InFlight.ABORT_RESUME
    return base(config, sync=EveryStep(resume), in_flight=frozenset({resume}))


LOOPS = {
    "trains twice": (TrainsTwice, Areal(1, 4), "once"),
    "trains a partial group": (PartialGroups, Areal(1, 4), "groups"),
    "never publishes the last version": (ForgetsLastPublish, Sync(), "end"),
    "loads without draining": (LoadsWithoutDraining, Areal(1, 4, interruptible=False), "overlap"),
    "colocated GPUs switch early": (SwitchesEarly, SyncColocated(), "overlap"),
    "resumes what was to restart": (ResumesWhatRestarts, restarting, "budget"),
    "counts tokens twice on resume": (FullBudgetOnResume, resuming, "budget"),
    "shifts versions": (ShiftsVersions, Areal(1, 4), "versions"),
    "skips a version": (SkipsAVersion, Areal(1, 4), "conservation"),
    "drops without counting": (DropsWithoutCounting, ArealStrict(1, 4, straggler="drop"), "conservation"),
    "counts a lost rollout as running": (LosesRunningCount, Areal(1, 4), "conservation"),
    "ends before the evaluation": (EndsBeforeEvaluation, Sync(), "end"),
    "stops one step early": (StopsOneStepEarly, Sync(), "end"),
    "withholds the last batch": (WithholdsLastBatch, Areal(1, 4), "progress"),
    "starts a rollout twice": (StartsTwice, Areal(1, 4), "causality"),
    "loses a late reward": (LosesItsReward, Areal(0, 4), "progress"),
    "publishes before training": (PublishesUntrained, Areal(1, 4), "versions"),
    "loads before publishing": (LoadsUnpublished, Areal(1, 4), "versions"),
    "forgets the work of a dead replica": (IgnoresDeaths, Areal(1, 4), "conservation"),
    "crashes on a reward of a dropped group": (CrashesOnLateReward, Areal(1, 4), "protocol"),
}
