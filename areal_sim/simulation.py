"""Runs a scenario: SimPy mechanisms below, the decision core above, every fact and intent between them."""

import gc
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import simpy

from areal_sim.buffer import SizeBuffer
from areal_sim.cost import CostModel, build_cost, outside_calibration
from areal_sim.cost.floor import Totals
from areal_sim.faults import inject
from areal_sim.replica import Replica
from areal_sim.reward import RewardWorkers
from areal_sim.sequence import Outcome, Sequence
from areal_sim.trainer import TrainerPool
from areal_sim.usage import RolloutUsage, SpanSink, TrainerUsage, usage_record
from areal_sim.workload import GroupDraw, Workload
from interfaces import actions, events
from interfaces.actions import Action
from interfaces.backend import Capabilities
from interfaces.diagnosis import bottleneck, explain_stall
from interfaces.errors import StallError
from interfaces.events import Event, RolloutFinished, TrainingFinished
from interfaces.memory import kv_capacity_tokens
from interfaces.records import new_record
from interfaces.report import ReportBuilder
from interfaces.scenario import Resolved
from interfaces.setup import build_loop
from interfaces.telemetry import Telemetry
from interfaces.trace import TraceWriter

CAPABILITIES = Capabilities(deterministic=True)

SUCCESS, NO_SUCCESS = Outcome(1.0, 0.0, fails=False), Outcome(0.0, 0.0, fails=False)

HOPELESS_BATCHES = 200
"""Batches worth of groups discarded since the last step after which a run counts as stalled."""


class Simulation:
    """One simulated run of a scenario, from the first event to its report."""

    def __init__(
        self,
        resolved: Resolved,
        writer: TraceWriter | None = None,
        on_step: Callable[[int, float], None] | None = None,
        *,
        cost: CostModel | None = None,
        workload: Workload | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            resolved: the scenario, hardware and model.
            writer: takes the full trace; None: only the report is kept.
            on_step: called with the number of finished steps and the simulated seconds.
            cost: replaces the cost model of the scenario.
            workload: replaces the workload of the scenario.

        Raises:
            ScenarioError: the policy or the workload cannot be built.
        """
        scenario = resolved.scenario
        self.resolved = resolved
        self.env = simpy.Environment()
        self.loop = build_loop(resolved, CAPABILITIES)
        self.cost = cost or build_cost(resolved)
        redundancy = self.loop.policy.capacity.redundancy
        self.workload = workload or Workload(scenario, resolved.where, redundancy)
        self.builder = ReportBuilder(scenario.run.warmup_steps)
        self.interrupted = False
        """Set it (from a signal handler) to stop between two events."""
        self._writer = writer
        self._on_step = on_step
        self._queue: deque[Event] = deque()
        self._feeding = False
        self._discarded_since_step = 0
        self._loading: int | None = None
        self._touched: dict[Replica, None] = {}
        self._draw = self.workload.group(0, 0)
        self._drawn = 0
        """Prompt whose first attempt `_draw` is; the members of a group are dispatched in a row."""
        self._newest_prompt = -1
        self._admitted_rollouts = self._admitted_tokens = 0
        """Of prompts when they are first dispatched, whatever becomes of them."""
        self._may_fail = scenario.faults.rollout_failure_probability > 0
        span = writer.telemetry if writer is not None else None
        self.rollout_usage = RolloutUsage()
        self.trainer_usage = TrainerUsage(span)
        self.buffer = SizeBuffer()
        self.rewards = RewardWorkers(self.env, scenario.reward.workers, self.report)
        self.trainer = TrainerPool(
            self.env,
            self.cost,
            scenario.run,
            buffer=self.buffer,
            usage=self.trainer_usage,
            report=self.report,
            pause_rollout=self._pause_rollout,
        )
        self.replicas = self._build_replicas(span)
        for fault in scenario.faults.replica:
            inject(
                self.env, fault, self.replicas[fault.replica], self.report, lambda: self.loop.view.published
            )
        self._carry_out: dict[type[Action], Callable[[Any], None]] = {
            actions.Generate: self._generate,
            actions.Abort: self._abort,
            actions.LoadWeights: self._load,
            actions.Publish: self.trainer.publish,
            actions.Train: self.trainer.train,
            actions.Discard: self._discard,
            actions.Dismiss: lambda a: self.buffer.discard(a.rollouts, a.running),
            actions.SwitchRole: self._switch,
            actions.Checkpoint: self.trainer.checkpoint,
            actions.Evaluate: self.trainer.evaluate,
            actions.AdmissionBlocked: lambda _: self._blame_rollout(),
            actions.EndRun: lambda _: None,
        }

    def _build_replicas(self, span: SpanSink | None) -> list[Replica]:
        resolved, scenario = self.resolved, self.resolved.scenario
        engine = scenario.engine
        colocated = self.loop.policy.capacity.colocated
        capacity = kv_capacity_tokens(resolved.hardware, resolved.model, engine, colocated)
        count = scenario.cluster.rollout_gpus // engine.tensor_parallel
        self.rollout_usage.counts["idle"] = count
        return [
            Replica(
                self.env,
                number,
                self.cost,
                kv_capacity_tokens=capacity,
                max_num_seqs=engine.max_num_seqs,
                prefix_caching=engine.prefix_caching,
                usage=self.rollout_usage,
                load_s=self._load_seconds,
                report=self.report,
                on_finished=self._finished,
                span=span,
                tells_load=self.loop.policy.reads_engine_load,
            )
            for number in range(count)
        ]

    # ---- the run --------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Simulate to the end (or until `interrupted`) and return the report.

        Raises:
            StallError: nothing (useful) can happen any more; the message names what is missing.
        """
        started = time.perf_counter()
        collecting = gc.isenabled()
        gc.disable()  # objects of a run form no cycles; the collector would only look for them
        try:
            self.report(events.RunStarted(0.0, tuple(range(len(self.replicas))), 0))
            self._tell_loads()
            step = self.env.step
            loop = self.loop
            while loop.ended is None and not self.interrupted:
                step()
        except simpy.core.EmptySchedule:
            raise StallError(f"{self.resolved.where}: {explain_stall(self.loop)}") from None
        finally:
            if collecting:
                gc.enable()
            self._close()
        return self._result(time.perf_counter() - started)

    def report(self, event: Event) -> None:
        """Take a fact from a mechanism; facts that arise while one is handled wait for their turn."""
        queue = self._queue
        queue.append(event)
        if self._feeding:
            return
        self._feeding = True
        loop, builder, writer = self.loop, self.builder, self._writer
        while queue and loop.ended is None:
            event = queue.popleft()
            if type(event) is TrainingFinished:
                self._measure()
            answer = loop.feed(event)
            builder.fed(event, answer)
            if writer is not None:
                writer.fed(event, answer)
            if answer:
                self._apply(answer)
            if self.trainer_usage.phase is None:
                self._blame_trainer()
            if type(event) is not RolloutFinished:
                self._after(event)
        self._feeding = False

    def _after(self, event: Event) -> None:
        """What this backend itself does about a fact, once the core has answered."""
        if isinstance(event, TrainingFinished):
            if event.last:
                self._step_done()
        elif isinstance(event, events.RoleSwitched):
            self._blame_rollout()
        elif isinstance(event, (events.RolloutAborted, events.RolloutFailed)):
            self.buffer.left(event.rollout)

    def _apply(self, answer: list[Action]) -> None:
        """Carry the intents out; replicas that got or lost work settle once, at the end."""
        self._loading = None
        carry_out = self._carry_out
        for action in answer:
            carry_out[type(action)](action)
        if self._touched:
            touched, self._touched = self._touched, {}
            for replica in touched:
                replica.settle()

    def _step_done(self) -> None:
        self._discarded_since_step = 0
        self._tell_loads()
        if self._writer is not None:
            self._writer.flush()
        if self._on_step is not None:
            self._on_step(self.loop.view.steps_finished, self.env.now)

    def _tell_loads(self) -> None:
        if self.loop.policy.reads_engine_load:
            for replica in self.replicas:
                replica.tell_load()

    def _close(self) -> None:
        self._measure()
        for replica in self.replicas:
            replica.track.cut(self.env.now)
        self.trainer_usage.enter(self.env.now, None)

    def _result(self, wall_s: float) -> dict[str, Any]:
        report = self.builder.build()
        report["bottleneck"] = bottleneck(report)
        report["floor"] = self._floor()
        report["wall_s"] = wall_s
        report["policy"] = self.loop.policy.name
        report["cost_model"] = self.cost.provenance
        largest = max(replica.batch.largest for replica in self.replicas)
        context = max(replica.batch.largest_context for replica in self.replicas)
        report["outside_calibration"] = outside_calibration(self.cost, largest, context)
        return report

    def _floor(self) -> dict[str, float | str] | None:
        """Physical bounds for the work of the measured steps; None when the cost model is not physical."""
        floor = self.cost.floor
        if floor is None:
            return None
        done = self.builder.measured_usage()
        bound = floor.run(
            Totals(
                generated_tokens=done.total("generated_tokens"),
                context_token_steps=done.total("context_token_steps"),
                decode_steps=done.total("decode_steps"),
                prefill_tokens=done.total("prefilled_tokens"),
                trained_tokens=done.total("trained_tokens"),
                trained_squared=done.total("trained_squared_tokens"),
            )
        )
        pools = (bound.rollout_s, bound.trainer_s)
        run_s = sum(pools) if self.loop.policy.capacity.colocated else max(pools)
        return {**bound._asdict(), "run_s": run_s, "step_time_s": run_s / max(1, self.builder.measured_steps)}

    # ---- intents --------------------------------------------------------------------------------------

    def _generate(self, action: actions.Generate) -> None:
        rollout, prompt, member, attempt, replica_id, done, budget, kv_kept = action
        draw = self._draw
        if prompt != self._drawn or attempt:
            draw = self._draw_group(prompt, attempt)
        reward = draw.rewards[member]
        if draw.reward_latency_s is None and not self._may_fail:
            outcome = SUCCESS if reward else NO_SUCCESS
        else:
            latency_s = 0.0 if draw.reward_latency_s is None else draw.reward_latency_s[member]
            outcome = Outcome(reward, latency_s, self.workload.failure(prompt, member, attempt))
        sequence = Sequence(
            rollout, prompt, draw.prompt_tokens, draw.response_tokens[member], done, outcome, kv_kept
        )
        if budget is not None:
            sequence.limit = min(sequence.total, done + budget)
        if draw.turns is not None:
            sequence.plan_turns(draw.turns[member])
        replica = self.replicas[replica_id]
        replica.submit(sequence)
        self._touched[replica] = None

    def _draw_group(self, prompt: int, attempt: int) -> GroupDraw:
        draw = self.workload.group(prompt, attempt)
        self._draw, self._drawn = draw, -1 if attempt else prompt
        if prompt > self._newest_prompt:
            self._newest_prompt = prompt
            self._admitted_rollouts += len(draw.response_tokens)
            self._admitted_tokens += int(sum(draw.response_tokens))
        return draw

    def _finished(self, replica: Replica, sequence: Sequence) -> None:
        now = self.env.now
        rollout = sequence.rollout
        reward, latency_s, fails = sequence.outcome
        if fails:
            lost = sequence.lost_tokens
            self.report(events.RolloutFailed(now, rollout, replica.id, "fault of the scenario", lost))
            return
        context = sequence.context
        self.buffer.put(rollout, context)
        fact = (
            now, rollout, replica.id, context - sequence.done, sequence.segments,
            sequence.first_token_at, None if latency_s else reward,
        )  # fmt: skip
        self.report(new_record(RolloutFinished, fact))
        if latency_s:
            self.rewards.score(rollout, reward, latency_s)

    def _abort(self, action: actions.Abort) -> None:
        replica = self.replicas[action.replica]
        replica.abort(action.rollout)
        self._touched[replica] = None

    def _load(self, action: actions.LoadWeights) -> None:
        self.replicas[action.replica].load(action)

    def _load_seconds(self) -> float:
        """Time of one load, given how many replicas load at the same time."""
        if self._loading is None:
            self._loading = sum(replica.loading for replica in self.loop.view.pool)
        return self.cost.load_s(self._loading)

    def _discard(self, action: actions.Discard) -> None:
        self.buffer.discard(action.rollouts, action.running)
        self._discarded_since_step += action.reason != "run_end"
        if self._discarded_since_step > HOPELESS_BATCHES * self.loop.view.config.batch_size:
            raise StallError(
                f"{self.resolved.where}: {self._discarded_since_step} groups were discarded since the last "
                f"step and none could train; {explain_stall(self.loop, 'rollouts go on, but to no avail')}"
            )

    def _switch(self, action: actions.SwitchRole) -> None:
        self.trainer.switch(action)
        self._blame_rollout()

    def _pause_rollout(self, seconds: float) -> None:
        for replica in self.replicas:
            replica.pause(seconds)

    # ---- measurements ---------------------------------------------------------------------------------

    def _measure(self) -> None:
        for replica in self.replicas:
            replica.account()
        record = usage_record(
            self.env.now,
            self.rollout_usage,
            [replica.batch for replica in self.replicas],
            self.trainer_usage,
            trained_tokens=self.trainer.trained_tokens,
            trained_squared_tokens=self.trainer.trained_squared,
            admitted=(self._admitted_rollouts, self._admitted_tokens),
        )
        self._telemetry(record)

    def _telemetry(self, record: Telemetry) -> None:
        self.builder.telemetry(record)
        if self._writer is not None:
            self._writer.telemetry(record)

    def _blame_rollout(self) -> None:
        view = self.loop.view
        cause = (self.loop.blocked_by or "starting") if view.role in ("generate", "clearing") else "training"
        if cause != self.rollout_usage.cause:
            for replica in self.replicas:
                if replica.state == "idle":
                    replica.track.enter(self.env.now, "idle", cause)
            self.rollout_usage.blame(self.env.now, cause)

    def _blame_trainer(self) -> None:
        view = self.loop.view
        cause = "straggler" if len(view.ready) >= view.config.batch_size else "rollouts"
        if cause != self.trainer_usage.cause:
            self.trainer_usage.blame(self.env.now, cause)
