"""The decision core: every transition of an asynchronous RL run, without I/O, clock or randomness.

`TrainingLoop.feed(event)` takes one fact and answers with the intents to carry out. After every event the
decisions are asked in this order: expire, publish, train, load weights, admit, dispatch, end. What a group
or rollout is going through is in `ledger.py`; what a policy may read is in `view.py`.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from interfaces import actions, events
from interfaces.actions import ABORTS, WAITS, Action, InFlight
from interfaces.errors import ProtocolError
from interfaces.events import Event
from interfaces.ledger import Ledger
from interfaces.policies.protocols import Batch, Policy
from interfaces.pool import Replica
from interfaces.records import new_record
from interfaces.rollout import FINISHED, GONE, REWARDING, RUNNING, Group, GroupState, Rollout
from interfaces.view import LoopConfig, Overload, View


class TrainingLoop:
    """One run of a policy. The same events always give the same actions: that is what replay checks."""

    def __init__(self, policy: Policy, config: LoopConfig) -> None:
        self.policy = policy
        self.view = View(config)
        self.ledger = Ledger(self.view)
        self.blocked_by: str | None = None
        """What keeps more groups from being admitted; None before the start."""
        self.ended: str | None = None
        """Why the run is over; None while it is not."""
        self._ending: str | None = None
        self._out: list[Action] = []
        self._busy: set[tuple[str, int]] = set()
        """Checkpoints and evaluations asked for and not finished."""
        self._after_publish: list[actions.Checkpoint | actions.Evaluate] = []
        self._moving: dict[int, InFlight] = {}
        """Rollouts whose abort was asked for, and what becomes of them then."""
        self._check_expiry = self._check_loads = self._check_training = False
        """Which decisions may come out differently since they were last asked."""
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            events.RolloutFinished: self._on_rollout_finished,
            events.RewardReady: self._on_reward_ready,
            events.RolloutAborted: self._on_rollout_aborted,
            events.RolloutFailed: self._on_rollout_failed,
            events.RewardFailed: self._on_reward_failed,
            events.TrainingFinished: self._on_training_finished,
            events.WeightsPublished: self._on_weights_published,
            events.WeightsLoaded: self._on_weights_loaded,
            events.ReplicaDown: self._on_replica_down,
            events.ReplicaUp: self._on_replica_up,
            events.RoleSwitched: self._on_role_switched,
            events.EngineLoad: self._on_engine_load,
            events.CheckpointFinished: self._on_checkpoint_finished,
            events.EvaluationFinished: self._on_evaluation_finished,
            events.TimerFired: self._on_timer_fired,
            events.StopRequested: self._on_stop_requested,
            events.RunStarted: self._on_run_started,
        }

    def feed(self, event: Event) -> list[Action]:
        """Take one fact, answer with the intents that follow from it, in the order to carry them out.

        Raises:
            ProtocolError: the event cannot be true in the present state.
        """
        if self.ended is not None:
            raise ProtocolError(f"{type(event).__name__} at {event.at} s after the run ended ({self.ended})")
        view, at = self.view, event[0]
        if at < view.now:
            raise ProtocolError(f"{type(event).__name__} at {at} s comes after {view.now} s")
        view.now = at
        out = self._out = []
        self._handlers[type(event)](event)
        if self._check_expiry or self._check_loads or self._check_training:
            self._decide()
        if view.pending_rollouts and self._ending is None:
            self._dispatch()
        if self._ending is not None:
            self._end()
        return out

    # ---- facts ----------------------------------------------------------------------------------------

    def _on_run_started(self, event: events.RunStarted) -> None:
        if self.view.pool.replicas or event.version != self.view.version:
            raise ProtocolError(f"run started at version {event.version}, expected {self.view.version}, once")
        for replica in event.replicas:
            self.view.pool.up(replica, event.version)
        self._check_expiry = self._check_loads = self._check_training = True
        if self.view.steps_finished >= self.view.config.steps:
            self._begin_end("steps")  # restored from after the last step

    def _on_rollout_finished(self, event: events.RolloutFinished) -> None:
        _, rollout_id, replica_id, _, segments, _, reward = event
        rollout = self._leave_replica(rollout_id, replica_id)
        if self._moving:
            self._moving.pop(rollout_id, None)
        rollout.add_segments(segments)
        if rollout.state is GONE:
            self.ledger.forget(rollout)
        elif reward is None:
            rollout.state = REWARDING
        else:
            self._reward(rollout, reward)

    def _on_reward_ready(self, event: events.RewardReady) -> None:
        rollout = self.ledger.rollouts.get(event.rollout)
        if rollout is None:
            return  # its group was discarded while the reward was computed
        if rollout.state is not REWARDING:
            raise ProtocolError(f"reward for rollout {rollout.id}, which is {rollout.state.value}")
        self._reward(rollout, event.reward)

    def _reward(self, rollout: Rollout, reward: float) -> None:
        self.ledger.finish(rollout, reward)
        group = rollout.group
        if group.finished < group.needed:
            return
        if len(group.rollouts) > group.needed:
            self._dismiss_rest(group)
        if self.policy.buffering.accept(self.view, group):
            self.ledger.make_ready(group)
            self._check_training = self._check_expiry = True
        else:
            self._discard(group.id, "filtered")

    def _dismiss_rest(self, group: Group) -> None:
        """Members beyond the size of a group whose others have finished are no longer wanted."""
        rest = [rollout for rollout in group.rollouts if rollout.state is not FINISHED]
        running = tuple(rollout.id for rollout in rest if rollout.replica >= 0)
        self._out.append(actions.Dismiss(tuple(rollout.id for rollout in rest), running))
        for rollout in rest:
            self._drop_rollout(rollout)
            self.ledger.dismiss(group, rollout)

    def _on_rollout_aborted(self, event: events.RolloutAborted) -> None:
        rollout = self._leave_replica(event.rollout, event.replica)
        rollout.add_segments(event.segments)
        intent = self._moving.pop(event.rollout, None)
        if rollout.state is GONE:
            self.ledger.forget(rollout)
            return
        if intent is None:
            replica = self.view.pool[event.replica]
            intent = replica.exceptions.get(rollout.id, replica.in_flight)
        if intent is InFlight.ABORT_DROP:
            self._discard(rollout.group.id, "interrupted")
            return
        if intent is InFlight.ABORT_RESTART:
            rollout.forget()
        self._enqueue((rollout,))

    def _on_rollout_failed(self, event: events.RolloutFailed) -> None:
        rollout = self._leave_replica(event.rollout, event.replica)
        self._moving.pop(event.rollout, None)
        self._retry(rollout)

    def _on_reward_failed(self, event: events.RewardFailed) -> None:
        rollout = self.ledger.rollouts.get(event.rollout)
        if rollout is not None:
            self._retry(rollout)

    def _retry(self, rollout: Rollout) -> None:
        if rollout.state is GONE:
            self.ledger.forget(rollout)
            return
        rollout.failures += 1
        if rollout.failures > self.view.config.max_retries:
            self._discard(rollout.group.id, "failed")
            return
        rollout.forget()
        rollout.attempt += 1
        self._enqueue((rollout,))

    def _on_training_finished(self, event: events.TrainingFinished) -> None:
        view = self.view
        if self._ending == "stopped":
            return
        if not view.training or event.step != view.steps_started - 1:
            raise ProtocolError(f"training of step {event.step} finished, but it was not training")
        self.ledger.trained(step_ends=event.last)
        self._check_training = True
        if not event.last:
            return
        view.version += 1
        view.steps_finished += 1
        config = view.config
        if config.checkpoint_every_steps and view.steps_finished % config.checkpoint_every_steps == 0:
            self._after_publish.append(actions.Checkpoint(event.step))
        if config.evaluation_every_steps and view.steps_finished % config.evaluation_every_steps == 0:
            self._after_publish.append(actions.Evaluate(event.step))
        self._check_expiry = self._check_loads = True
        if view.steps_finished >= config.steps:
            self._begin_end("steps")

    def _on_weights_published(self, event: events.WeightsPublished) -> None:
        if event.version != self.view.publishing:
            raise ProtocolError(f"version {event.version} published, expected {self.view.publishing}")
        self.view.published = event.version
        self.view.publishing = None
        self._check_loads = self._check_training = True

    def _on_weights_loaded(self, event: events.WeightsLoaded) -> None:
        replica = self.view.pool[event.replica]
        if not replica.loading or event.version != replica.target:
            raise ProtocolError(f"replica {replica.id} loaded version {event.version} unasked")
        self.view.pool.reopen(replica, event.version)
        self._check_loads = self._check_training = True

    def _on_replica_down(self, event: events.ReplicaDown) -> None:
        replica = self.view.pool[event.replica]
        if not replica.alive:
            raise ProtocolError(f"replica {replica.id} went down twice")
        for rollout in [r for r in self.ledger.rollouts.values() if r.replica == replica.id]:
            rollout.replica = -1
            self.view.running_rollouts -= 1
            self._moving.pop(rollout.id, None)
            if rollout.state is GONE:
                self.ledger.forget(rollout)
            else:
                rollout.forget()
                self._enqueue((rollout,))
        self.view.pool.down(replica)
        self._check_loads = self._check_training = True

    def _on_replica_up(self, event: events.ReplicaUp) -> None:
        self.view.pool.up(event.replica, event.version)
        self._check_loads = True

    def _on_role_switched(self, event: events.RoleSwitched) -> None:
        self.view.role = event.role
        self._check_loads = self._check_training = True

    def _on_engine_load(self, event: events.EngineLoad) -> None:
        view = self.view
        replica = view.pool[event.replica]
        replica.kv_tokens, replica.kv_capacity_tokens = event.kv_tokens, event.kv_capacity_tokens
        known = view.overload
        if event.preemptions and (known is None or known.version < view.version):
            view.overload = Overload(view.version, view.running_rollouts)

    def _on_checkpoint_finished(self, event: events.CheckpointFinished) -> None:
        self._busy.discard(("Checkpoint", event.step))

    def _on_evaluation_finished(self, event: events.EvaluationFinished) -> None:
        self._busy.discard(("Evaluate", event.step))

    def _on_timer_fired(self, event: events.TimerFired) -> None:  # noqa: ARG002
        self._check_expiry = self._check_loads = self._check_training = True

    def _on_stop_requested(self, event: events.StopRequested) -> None:  # noqa: ARG002
        self._begin_end("stopped")

    # ---- decisions ------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Ask what may come out differently. Admission is asked after all that changes groups or versions."""
        if self._ending is not None:
            return
        if self._check_expiry:
            self._expire()
        if self._check_loads:
            self._publish()
        if self._check_training:
            self._check_training = False
            self._train()
        if self._check_loads:
            self._check_loads = False
            self._load_weights()
        for rollout in self.policy.capacity.moves(self.view):
            if rollout.id not in self._moving and not self._aborted_by_load(rollout):
                self._abort(rollout, InFlight.ABORT_RESUME)
        self._admit()

    def _expire(self) -> None:
        self._check_expiry = False
        for expiry in self.policy.buffering.expired(self.view):
            self._discard(expiry.group.id, expiry.reason, requeue=expiry.requeue)

    def _publish(self) -> None:
        """Publish, then checkpoint and evaluate: nothing that follows a step delays the new weights."""
        view = self.view
        due = self._ending in ("steps", "data") or self.policy.sync.publish(view)
        if view.version > view.published and view.publishing is None and due:
            view.publishing = view.version
            self._out.append(actions.Publish(view.version))
        if self._after_publish:
            self._busy.update((type(phase).__name__, phase.step) for phase in self._after_publish)
            self._out.extend(self._after_publish)
            self._after_publish = []

    def _train(self) -> None:
        view = self.view
        if view.training or (view.steps_started >= view.config.steps and not view.taken_in_step):
            return
        batch = self.policy.buffering.select(view) or self._last_batch()
        if batch is None:
            self._return_role()
        elif not self.policy.capacity.colocated or view.role == "train":
            self._take(batch)
        elif view.role in ("generate", "clearing"):
            self._clear_for_training()

    def _take(self, batch: Batch) -> None:
        view = self.view
        if not view.taken_in_step:
            view.steps_started += 1
        step = view.steps_started - 1
        view.taken_in_step = 0 if batch.last else view.taken_in_step + len(batch.groups)
        self.ledger.take(batch.groups)
        ids = tuple(group.id for group in batch.groups)
        rollouts = tuple(chain.from_iterable(group.rollout_ids for group in batch.groups))
        self._expire()  # what can train no more, first: nothing of it is in flight while this trains
        self._out.append(
            actions.Train(step, view.version, ids, rollouts, batch.mask_below, batch.last, batch.last_segment)
        )  # fmt: skip
        self._interrupt(self.policy.sync.on_batch_taken(view))

    def _last_batch(self) -> Batch | None:
        """What the data no longer fill, once nothing is on its way."""
        view = self.view
        if view.prompts_left or view.running:
            return None
        if view.ready and view.config.last_batch == "train":
            promised = self.policy.guarantees
            mask_below = promised.mask_below(view.next_step_version)
            return Batch(list(view.ready.values()), mask_below, last_segment=promised.last_segment)
        self._begin_end("data")
        return None

    def _clear_for_training(self) -> None:
        """Colocated: hand the GPUs to the trainer once no rollout is on them and no weights are written."""
        self.view.role = "clearing"
        self._interrupt(self.policy.sync.on_batch_taken(self.view))
        if self.view.running_rollouts == 0 and not any(replica.loading for replica in self.view.pool):
            self.view.role = "switching"
            self._out.append(actions.SwitchRole("train"))

    def _return_role(self) -> None:
        """Colocated: hand the GPUs back to generation once the new weights are out."""
        if self.view.role == "clearing":
            self.view.role = "generate"
        elif self.view.role == "train" and self.view.publishing is None:
            self.view.role = "switching"
            self._out.append(actions.SwitchRole("generate"))

    def _interrupt(self, intent: InFlight | None) -> None:
        if intent not in ABORTS:
            return
        for rollout in list(self.ledger.rollouts.values()):
            if rollout.state is RUNNING and rollout.id not in self._moving:
                self._abort(rollout, intent)

    def _abort(self, rollout: Rollout, intent: InFlight | None) -> None:
        if intent is not None:
            self._moving[rollout.id] = intent
        self._out.append(actions.Abort(rollout.id, rollout.replica))

    def _load_weights(self) -> None:
        view = self.view
        if view.role != "generate" or self._ending is not None:
            return
        for replica in view.pool:
            if not replica.alive or replica.loading or replica.version >= view.published:
                continue
            if replica.draining and replica.running:
                continue
            intent = self.policy.sync.load(view, replica)
            if intent is not None:
                self._load(replica, intent)

    def _load(self, replica: Replica, intent: InFlight) -> None:
        if replica.running and intent in WAITS:
            if intent is InFlight.DRAIN:
                self.view.pool.close(replica, self.view.published, loading=False)
            return
        exceptions = tuple(self.policy.sync.exceptions(self.view, replica)) if replica.running else ()
        if any(action in WAITS for _, action in exceptions):
            return
        self.view.pool.close(replica, self.view.published, loading=True)
        replica.in_flight = intent if replica.running else None
        replica.exceptions = dict(exceptions)
        self._out.append(
            actions.LoadWeights(replica.id, replica.target, replica.in_flight, exceptions)
        )  # fmt: skip

    def _admit(self) -> None:
        view = self.view
        if self._ending is not None:
            return
        groups, cause, new_first = self.policy.admission.quota(view)
        while groups >= 1 and self.ledger.next_prompt(new_first=new_first) is not None:
            self._enqueue(self.ledger.admit(self.policy.capacity.redundancy, new_first=new_first))
            groups -= 1
        if groups >= 1:
            cause = "data"
            if not view.running and not view.training:
                self._train()
        if cause != self.blocked_by:
            self.blocked_by = cause
            self._out.append(actions.AdmissionBlocked(cause))

    def _enqueue(self, rollouts: Sequence[Rollout]) -> None:
        self.ledger.enqueue(rollouts, self.policy.dispatch.priority(self.view, rollouts[0]))

    def _dispatch(self) -> None:
        view = self.view
        if view.role != "generate":
            return
        dispatch, out = self.policy.dispatch, self._out
        keeps_kv = self.policy.moves_keep_kv
        for rollout in self.ledger.queue.take():
            replica = dispatch.place(view, rollout)
            if replica is None:
                return
            group = rollout.group
            replica_id = rollout.replica = group.replica = replica.id
            rollout.state = RUNNING
            if rollout.dispatch_version < 0:
                rollout.dispatch_version = replica.version
            replica.running += 1
            view.pending_rollouts -= 1
            view.running_rollouts += 1
            intent = (
                rollout.id, group.prompt, rollout.member, rollout.attempt, replica_id,
                rollout.response_tokens, dispatch.token_budget(view, rollout),
                keeps_kv and rollout.tail_version == replica.version,
            )  # fmt: skip
            out.append(new_record(actions.Generate, intent))

    # ---- the end --------------------------------------------------------------------------------------

    def _begin_end(self, reason: str) -> None:
        """Start nothing more, take everything off the replicas; a snapshot still knows the prompts."""
        if self._ending is not None:
            return
        self._ending = reason
        self._check_loads = True
        for group in reversed((*self.view.ready.values(), *self.view.running.values())):
            self._discard(group.id, "run_end", requeue=True)
        if reason == "stopped":
            self.ledger.return_training()

    def _end(self) -> None:
        self._publish()
        view = self.view
        quiet = not self._busy and view.publishing is None and not view.running_rollouts
        if self._ending != "stopped" and (view.version > view.published or view.training):
            return
        if quiet and view.role != "switching" and not any(r.loading for r in view.pool):
            self.ended = self._ending
            self._out.append(actions.EndRun(self.ended or ""))

    # ---- bookkeeping that more than one transition needs -------------------------------------------------

    def _leave_replica(self, rollout_id: int, replica_id: int) -> Rollout:
        rollout = self.ledger.rollouts.get(rollout_id)
        if rollout is None or rollout.replica != replica_id:
            raise ProtocolError(f"rollout {rollout_id} is not on replica {replica_id}")
        rollout.replica = -1
        view = self.view
        replica = view.pool.left(replica_id)
        view.running_rollouts -= 1
        if not replica.running and replica.version < view.published:
            self._check_loads = True
        if not view.running_rollouts and self.policy.capacity.colocated:
            self._check_training = True
        return rollout

    def _discard(self, group_id: int, reason: str, *, requeue: bool = False) -> None:
        group = self.ledger.groups[group_id]
        if group.state not in (GroupState.RUNNING, GroupState.READY):
            raise ProtocolError(f"group {group_id} is {group.state.value}: it cannot be discarded")
        rollouts = group.rollout_ids
        running = tuple(rollout.id for rollout in group.rollouts if rollout.replica >= 0)
        self._out.append(actions.Discard(group_id, rollouts, running, reason))
        for rollout in group.rollouts:
            self._drop_rollout(rollout)
        self.ledger.discard(group, reason, requeue=requeue)
        self._check_training = True

    def _drop_rollout(self, rollout: Rollout) -> None:
        on_replica = rollout.replica >= 0
        if on_replica and rollout.id not in self._moving and not self._aborted_by_load(rollout):
            self._abort(rollout, None)
        self.ledger.drop(rollout)
        if not on_replica:
            self.ledger.forget(rollout)

    def _aborted_by_load(self, rollout: Rollout) -> bool:
        """Whether the load under way on its replica aborts it anyway."""
        replica = self.view.pool[rollout.replica]
        return replica.loading and replica.exceptions.get(rollout.id, replica.in_flight) in ABORTS
