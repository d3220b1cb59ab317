"""The rollouts of a recorded run as a workload; what the run does not tell is drawn.

A rollout that finished has its own length, reward and latency, whatever changes around it. The others:

- Simulated run: drawn as the run itself drew or would have drawn them (same seed, same streams), so that
  nothing changed gives the same run.
- Real run, begun but not finished: a length from the Kaplan-Meier estimate over all its rollouts, given that
  it is longer than it came to; never more than the scenario's cap.
- Real run, never begun (a changed schedule goes further): the rollouts of a recorded prompt, drawn at random.
"""

from bisect import bisect_right

from areal_sim.replay.recorded import Outcome, Recorded, survival
from areal_sim.streams import Stream
from areal_sim.workload import GroupDraw, Workload
from interfaces.scenario import Scenario


class RecordedWorkload(Workload):
    """`Workload` with the outcomes of a recorded run."""

    def __init__(self, scenario: Scenario, where: str, redundancy: int, recorded: Recorded) -> None:
        super().__init__(scenario, where, redundancy)
        self._recorded = recorded
        self._single_turn = scenario.workload.turns is None
        self._members = scenario.workload.group_size + redundancy
        self._longest = scenario.workload.response_tokens.largest
        self._known: dict[tuple[int, int], GroupDraw] = {}
        self._prompts = sorted({prompt for prompt, _, _ in recorded.finished})
        self._outcomes = [
            outcome
            for place, outcome in sorted(recorded.finished.items())
            if place not in recorded.unrewarded
        ]
        self._curve = survival(
            [outcome.tokens for outcome in recorded.finished.values()], list(recorded.unfinished.values())
        )
        seed = scenario.run.seed
        self._pick, self._length = Stream(seed, "replay/pick"), Stream(seed, "replay/length")
        self.drawn: dict[str, int] = {"recorded": 0, "unfinished": 0, "never begun": 0}
        """Rollouts asked for, by where they come from."""

    def group(self, prompt: int, attempt: int = 0) -> GroupDraw:
        """See `Workload`."""
        known = self._known.get((prompt, attempt))
        if known is None:
            known = self._known[prompt, attempt] = self._build(prompt, attempt)
        return known

    def failure(self, prompt: int, member: int, attempt: int = 0) -> bool:
        """See `Workload`; a real run's lengths are those of rollouts that went well."""
        return not self._recorded.real and super().failure(prompt, member, attempt)

    def _build(self, prompt: int, attempt: int) -> GroupDraw:
        own = super().group(prompt, attempt)
        outcomes = [self._outcome(own, prompt, attempt, member) for member in range(self._members)]
        latencies = [outcome.latency_s for outcome in outcomes]
        return own._replace(
            prompt_tokens=self._prompt_tokens(prompt, own.prompt_tokens),
            response_tokens=[outcome.tokens for outcome in outcomes],
            rewards=[outcome.reward for outcome in outcomes],
            reward_latency_s=latencies if self._recorded.real and any(latencies) else own.reward_latency_s,
        )

    def _prompt_tokens(self, prompt: int, own: int) -> int:
        known = self._recorded.prompt_tokens
        if not self._single_turn:
            return own
        if prompt not in known and self._recorded.real:
            prompt = self._stand_in(prompt)
        return known.get(prompt, own)

    def _outcome(self, own: GroupDraw, prompt: int, attempt: int, member: int) -> Outcome:
        place = prompt, attempt, member
        found = self._recorded.finished.get(place)
        unfinished = self._recorded.unfinished.get(place)
        self.drawn["recorded" if found else "never begun" if unfinished is None else "unfinished"] += 1
        unrewarded = place in self._recorded.unrewarded
        if found is not None and not unrewarded:
            return found
        if not self._recorded.real:
            tokens = found.tokens if found is not None else own.response_tokens[member]
            return Outcome(tokens, own.rewards[member], 0.0)
        like = self._outcomes[int(self._pick.one(prompt, member + 1, attempt) * len(self._outcomes))]
        if found is not None:
            return like._replace(tokens=found.tokens)
        if unfinished is None:
            stand_in = self._recorded.finished.get((self._stand_in(prompt), 0, member))
            if stand_in is not None:
                return stand_in
        return like._replace(tokens=self._longer_than(unfinished or 0, prompt, member, attempt))

    def _stand_in(self, prompt: int) -> int:
        return self._prompts[int(self._pick.one(prompt, 0) * len(self._prompts))]

    def _longer_than(self, tokens: int, prompt: int, member: int, attempt: int) -> int:
        """Inverse of the estimated survival beyond `tokens`; its end is the cap, or the longest seen."""
        lengths = [length for length, _ in self._curve]
        begin = bisect_right(lengths, tokens)
        alive = self._curve[begin - 1][1] if begin else 1.0
        share = self._length.one(prompt, member, attempt) * alive
        end = max(self._longest or lengths[-1], tokens + 1)
        length = next((at for at, longer in self._curve[begin:] if longer <= share), end)
        return max(1, int(min(length, end)))
