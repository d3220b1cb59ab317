"""The running batch of one engine on a token clock: continuous batching in closed form.

A decode step is not an event. While the running set is the same, step i of n sequences with C context
tokens takes `base(n) + g * (C + i * n)` seconds, so k steps take
`k * (base + g * C) + g * n * k * (k - 1) / 2`, which is solved for the step that runs at a given time.
"""

from heapq import heappop, heappush
from math import sqrt

from areal_sim.cost.protocol import CostModel
from areal_sim.sequence import Sequence
from interfaces.records import new_record
from interfaces.rollout import PolicyVersion, Segment


class DecodeBatch:
    """Running sequences, their KV cache, and the versions under which each token was made."""

    __slots__ = (
        "_base", "_due_context_steps", "_finishes", "_joined", "_log_clock", "_log_version",
        "_per_context_token", "_planned_from", "_prompts", "clock", "context", "context_token_steps",
        "due_at", "due_clock", "generated_tokens", "kv", "kv_capacity", "largest", "largest_context",
        "prefix_caching", "running", "slowdown", "time",
    )  # fmt: skip

    def __init__(
        self, cost: CostModel, kv_capacity_tokens: int, max_num_seqs: int, *, prefix_caching: bool
    ) -> None:
        self._base = [cost.decode_base_s(n) for n in range(max_num_seqs + 1)]
        self._per_context_token = cost.decode_per_context_token_s
        self.kv_capacity = kv_capacity_tokens
        self.prefix_caching = prefix_caching
        self.slowdown = 1.0
        """Every step takes so many times as long."""
        self.running: dict[int, Sequence] = {}
        """In the order of joining: the last one is preempted first."""
        self.clock = 0
        """Decode steps so far."""
        self.time = 0.0
        """When the step that `clock` counts last ended (or will end)."""
        self.due_clock = 0
        """Clock at which a sequence stops or the KV cache is full, as last planned."""
        self.due_at = 0.0
        """When the clock gets there."""
        self._due_context_steps = 0.0
        self._planned_from = 0
        self.context = 0
        """Context tokens of all running sequences."""
        self.kv = 0
        """KV cache in use, in tokens; a shared prompt counts once."""
        self.generated_tokens = 0
        self.context_token_steps = 0.0
        """Sum over all steps of the context tokens read."""
        self.largest = self.largest_context = 0
        """Most sequences and context tokens so far; both only fall when a sequence leaves."""
        self._prompts: dict[int, int] = {}
        """Running sequences by prompt."""
        self._finishes: list[tuple[int, int, Sequence]] = []
        """By the clock at which they stop; entries of sequences that left before are stale."""
        self._joined = 0
        self._log_clock = [0]
        self._log_version: list[PolicyVersion] = [0]

    # ---- time -----------------------------------------------------------------------------------------

    def advance(self, now: float, *, partial: bool = False) -> None:
        """Go to the end of the step that runs at `now` (`partial`: the last one that ended by then).

        Never past `due_clock`: who stops there must be handled first.
        """
        n = len(self.running)
        if not n:
            self.time = max(self.time, now)
            return
        elapsed = now - self.time
        if elapsed <= 0.0:
            return
        growth = self._per_context_token * n * self.slowdown / 2.0
        linear = (self._base[n] + self._per_context_token * self.context) * self.slowdown - growth
        if growth:
            steps = int((sqrt(linear * linear + 4.0 * growth * elapsed) - linear) / (2.0 * growth))
        else:
            steps = int(elapsed / linear)
        while steps * linear + growth * steps * steps < elapsed:
            steps += 1
        self.step(min(steps - partial, self.due_clock - self.clock))

    def step(self, steps: int) -> None:
        """Run so many decode steps."""
        if steps <= 0:
            return
        n = len(self.running)
        context_steps = steps * self.context + n * steps * (steps - 1) / 2
        self.time += (steps * self._base[n] + self._per_context_token * context_steps) * self.slowdown
        self.context_token_steps += context_steps
        tokens = n * steps
        self.clock += steps
        self.context += tokens
        self.kv += tokens
        self.generated_tokens += tokens

    def plan(self) -> float:
        """Find what is due next; returns when. A lone sequence runs on beyond the KV cache."""
        finishes, clock = self._finishes, self.clock
        due, _, sequence = finishes[0]
        while sequence.finish_clock != due:
            heappop(finishes)
            due, _, sequence = finishes[0]
        n = len(self.running)
        steps = due - clock
        if n * steps > self.kv_capacity - self.kv and n > 1:
            steps = max(0, self.kv_capacity - self.kv) // n
        self._planned_from = clock
        self.due_clock = clock + steps
        context_steps = self._due_context_steps = steps * self.context + n * steps * (steps - 1) / 2
        self.due_at = self.time + (
            steps * self._base[n] + self._per_context_token * context_steps
        ) * self.slowdown  # fmt: skip
        return self.due_at

    def run_to_due(self) -> None:
        """Run the steps that `plan` found, if none of them has run yet."""
        if self._planned_from != self.clock:
            self.step(self.due_clock - self.clock)
            return
        tokens = len(self.running) * (self.due_clock - self.clock)
        self.time = self.due_at
        self.clock = self.due_clock
        self.context_token_steps += self._due_context_steps
        self.context += tokens
        self.kv += tokens
        self.generated_tokens += tokens

    # ---- joining and leaving --------------------------------------------------------------------------

    def shared_tokens(self, sequence: Sequence) -> int:
        """Tokens of its prompt whose KV a running member of its group holds already."""
        return sequence.prompt_tokens if self.prefix_caching and sequence.prompt in self._prompts else 0

    def fits(self, tokens: int) -> bool:
        """Whether so many more tokens fit, with room for the next step."""
        return not self.running or self.kv + tokens + len(self.running) < self.kv_capacity

    def join(self, sequence: Sequence, new_tokens: int) -> None:
        """Start decoding a prefilled sequence; `new_tokens` of its context share no KV."""
        prompt, clock = sequence.prompt, self.clock
        self._prompts[prompt] = self._prompts.get(prompt, 0) + 1
        sequence.start_clock = clock
        sequence.finish_clock = finish = clock + sequence.pause_length() - sequence.done
        sequence.log_index = len(self._log_clock) - 1
        self.context += sequence.context
        self.kv += new_tokens
        self._joined += 1
        self.running[sequence.rollout] = sequence
        heappush(self._finishes, (finish, self._joined, sequence))

    def leave(self, sequence: Sequence) -> None:
        """Stop decoding a sequence; its tokens so far become segments."""
        if self.context > self.largest_context:  # noqa: PLR1730 - a call a rollout less
            self.largest_context = self.context
        if len(self.running) > self.largest:  # noqa: PLR1730
            self.largest = len(self.running)
        del self.running[sequence.rollout]
        sequence.finish_clock = -1
        tokens = self.clock - sequence.start_clock
        context = sequence.context + tokens
        self.context -= context
        self.kv -= context
        left = self._prompts[sequence.prompt] - 1
        if left:
            self._prompts[sequence.prompt] = left
            if self.prefix_caching:
                self.kv += sequence.prompt_tokens
        else:
            del self._prompts[sequence.prompt]
        if tokens:
            if sequence.log_index == len(self._log_clock) - 1 and not sequence.segments:
                sequence.segments = (new_record(Segment, (self._log_version[-1], tokens)),)
            else:
                self._add_segments(sequence)
            sequence.context = context
            sequence.done += tokens

    def stops_now(self) -> bool:
        """Whether the clock has reached the end of a sequence that is still in the batch."""
        return bool(self._finishes) and self._finishes[0][0] <= self.clock

    def pop_stopped(self) -> list[Sequence]:
        """Take out every sequence whose end the clock has reached."""
        finishes, clock = self._finishes, self.clock
        stopped: list[Sequence] = []
        while finishes and finishes[0][0] <= clock:
            stop, _, sequence = heappop(finishes)
            if sequence.finish_clock == stop:
                self.leave(sequence)
                stopped.append(sequence)
        return stopped

    def preempt(self) -> list[Sequence]:
        """Take out who joined last until the next step fits; a lone sequence stays."""
        out = []
        while len(self.running) > 1 and self.kv + len(self.running) > self.kv_capacity:
            sequence = next(reversed(self.running.values()))
            self.leave(sequence)
            out.append(sequence)
        return out

    def clear(self) -> None:
        """Lose everything at once."""
        self.running.clear()
        self._finishes.clear()
        self._prompts.clear()
        self.context = self.kv = 0

    # ---- versions -------------------------------------------------------------------------------------

    def serve(self, version: PolicyVersion) -> None:
        """Tokens from now on are of this version."""
        if self._log_clock[-1] == self.clock:
            self._log_version[-1] = version
        else:
            self._log_clock.append(self.clock)
            self._log_version.append(version)

    def _add_segments(self, sequence: Sequence) -> None:
        """Book the tokens since the last (re)start under the versions that were served meanwhile."""
        clocks, versions = self._log_clock, self._log_version
        start, index, last = sequence.start_clock, sequence.log_index, len(clocks) - 1
        new = []
        while index < last:
            index += 1
            end = clocks[index]
            if end > start:
                new.append(Segment(versions[index - 1], end - start))
                start = end
        if self.clock > start:
            new.append(Segment(versions[last], self.clock - start))
        old = sequence.segments
        if old and old[-1].version == new[0].version:
            new[0] = Segment(new[0].version, old[-1].tokens + new[0].tokens)
            old = old[:-1]
        sequence.segments = (*old, *new) if old else tuple(new)
