"""A tiny model, tokens in memory, and an engine whose events a test can wait for."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from areal_real.clock import Clock
from areal_real.engine.config import EngineConfig
from areal_real.engine.replica import VllmReplica
from areal_real.weight_file import read_manifest, weights_path, write_weights
from interfaces.actions import Abort, Generate, InFlight, LoadWeights
from interfaces.events import Event, ReplicaUp, RolloutAborted, RolloutFailed, RolloutFinished, WeightsLoaded
from interfaces.rollout import Trajectory
from interfaces.telemetry import Span

VOCABULARY = 48
EOS = 1
PROMPT_LIMIT, RESPONSE_LIMIT = 120, 160
ENDS = (RolloutFinished, RolloutAborted, RolloutFailed)
DEADLINE_S = 60.0
Result = TypeVar("Result")


def model(seed: int) -> Qwen2ForCausalLM:
    """A random model that is sure enough of itself that other weights give clearly other log-probs."""
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1024, tie_word_embeddings=True,
        initializer_range=0.08, eos_token_id=EOS, bos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(config).eval()


class MemoryTokens:
    """The simplest token store: prompts by rule, responses in memory."""

    def __init__(self) -> None:
        self.responses: dict[int, tuple[list[int], list[float], list[int], list[bool]]] = {}

    def prompt_ids(self, prompt: int) -> tuple[int, ...]:
        """Prompts of different length; two that differ share no prefix."""
        length = 5 + 7 * prompt % 60 if prompt < 1000 else 100
        return tuple(
            3 + (11 * prompt + 5 * index + index * index) % (VOCABULARY - 3) for index in range(length)
        )

    def trajectory(self, rollout: int, prompt: int) -> Trajectory:
        """What there is so far."""
        ids, logprobs, versions, _ = self.responses.get(rollout, ([], [], [], []))
        return Trajectory(rollout, self.prompt_ids(prompt), tuple(ids), tuple(logprobs), tuple(versions))

    def extend(
        self, rollout: int, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int],
        *, ended: bool,
    ) -> None:  # fmt: skip
        """Append."""
        entry = self.responses.setdefault(rollout, ([], [], [], []))
        entry[0].extend(ids)
        entry[1].extend(logprobs)
        entry[2].extend(versions)
        entry[3].append(ended)

    def restart(self, rollout: int) -> None:
        """Forget."""
        self.responses.pop(rollout, None)


class Bench:
    """Replicas of one model on one event loop; the events that they report, in order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.tokens = MemoryTokens()
        self.events: list[Event] = []
        self.errors: list[Exception] = []
        self.spans: list[Span] = []
        self.models = {0: model(0)}
        self._news = asyncio.Event()
        self._next_rollout = 0
        self.models[0].save_pretrained(directory / "model")

    def config(self, **changes: Any) -> EngineConfig:
        """Of a small engine; `changes` override."""
        config = EngineConfig(
            model=self.directory / "model", weights=self.directory / "weights", eos_id=None,
            prompt_limit_tokens=PROMPT_LIMIT, response_limit_tokens=RESPONSE_LIMIT, max_num_seqs=16,
            max_num_batched_tokens=1024, kv_cache_bytes=8 << 20, answer_deadline_s=4 * DEADLINE_S,
        )  # fmt: skip
        return replace(config, **changes)

    def replica(self, replica_id: int = 0, **changes: Any) -> VllmReplica:
        """A replica that reports here; not started."""
        return VllmReplica(
            replica_id, self.config(**changes), self.tokens, self._take, self.clock,
            on_error=self._fail, span=self.spans.append,
        )  # fmt: skip

    def next_version(self) -> int:
        """Publish the weights of a version that did not exist before, unlike those of any other."""
        version = max(self.models) + 1
        self.publish(version)
        return version

    def publish(self, version: int, state: dict[str, torch.Tensor] | None = None) -> Path:
        """Write the weights of a version: those of a model of its own, or what is given."""
        self.models[version] = model(version)
        path = weights_path(self.directory / "weights", version)
        write_weights(path, state or self.models[version].state_dict(), version)
        return path

    def checksum(self, version: int) -> str:
        """Of the weights published under a version."""
        return read_manifest(weights_path(self.directory / "weights", version)).checksum

    async def told_of_error(self) -> None:
        """Wait for an error that no event can say."""
        while not self.errors:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), DEADLINE_S)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    def _fail(self, error: Exception) -> None:
        self.errors.append(error)
        self._news.set()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run on the loop of all replicas."""
        return self.runner.run(asyncio.wait_for(work, DEADLINE_S))

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for events until something is true."""
        while not true():
            assert not self.errors
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), DEADLINE_S)

    def generate(
        self, replica: VllmReplica, prompt: int = 0, *, rollout: int | None = None, budget: int | None = None,
        member: int = 0,
    ) -> int:  # fmt: skip
        """Start a new rollout, or resume one; returns its id."""
        if rollout is None:
            rollout = self._next_rollout
            self._next_rollout += 1
        resume = len(self.tokens.trajectory(rollout, prompt).response_ids)
        action = Generate(rollout, prompt, member, 0, replica.id, resume, budget)
        self.within(lambda: replica.generate(action))
        return rollout

    def within(self, call: Callable[[], None]) -> None:
        """Call something that wants the loop to run, from inside or outside."""

        async def called() -> None:
            call()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.run(called())
        else:
            call()

    async def generated(self, replica: VllmReplica, tokens: int) -> None:
        """Wait until the engine has made so many more tokens."""
        goal = replica.usage().generated_tokens + tokens
        while replica.usage().generated_tokens < goal:
            assert not self.errors
            await asyncio.sleep(0.002)

    def ends(self, rollout: int) -> list[Event]:
        """The events that took a rollout off, in order."""
        return [event for event in self.events if isinstance(event, ENDS) and event.rollout == rollout]

    async def ended(self, rollouts: Sequence[int], times: int = 1) -> None:
        """Wait until every rollout was taken off so many times."""
        await self.until(lambda: all(len(self.ends(rollout)) >= times for rollout in rollouts))

    async def load(
        self, replica: VllmReplica, version: int, in_flight: InFlight | None,
        exceptions: dict[int, InFlight] | None = None,
    ) -> None:  # fmt: skip
        """Load a version; returns once it is loaded, or the replica is back from a restart."""
        seen = len(self.events)
        replica.load(LoadWeights(replica.id, version, in_flight, tuple((exceptions or {}).items())))
        await self.until(lambda: any(isinstance(e, WeightsLoaded | ReplicaUp) for e in self.events[seen:]))

    def abort(self, replica: VllmReplica, rollout: int) -> None:
        """Take a rollout off."""
        replica.abort(Abort(rollout, replica.id))

    def trajectory(self, rollout: int, prompt: int = 0) -> Trajectory:
        """Its tokens, log-probs and versions."""
        return self.tokens.trajectory(rollout, prompt)


@torch.no_grad()
def reference(models: dict[int, Qwen2ForCausalLM], trajectory: Trajectory) -> torch.Tensor:
    """Log-prob of every response token under the version that made it, whole prefix recomputed with it."""
    ids = torch.tensor([[*trajectory.prompt_ids, *trajectory.response_ids]])
    by_version = {
        version: torch.log_softmax(models[version](ids).logits[0], -1)
        for version in set(trajectory.response_versions)
    }
    first = len(trajectory.prompt_ids)
    return torch.stack(
        [
            by_version[version][first + index - 1, token]
            for index, (token, version) in enumerate(
                zip(trajectory.response_ids, trajectory.response_versions, strict=True)
            )
        ]
    )


@torch.no_grad()
def mixed_reference(models: dict[int, Qwen2ForCausalLM], trajectory: Trajectory) -> torch.Tensor:
    """The same where KV stays: each token's KV is that of the version which took it in."""
    ids = [*trajectory.prompt_ids, *trajectory.response_ids]
    first = len(trajectory.prompt_ids)
    cache, start, scores = None, 0, []
    runs = [index for index, version in enumerate(trajectory.response_versions)
            if index == 0 or version != trajectory.response_versions[index - 1]]  # fmt: skip
    for begin, end in zip(runs, [*runs[1:], len(trajectory.response_ids)], strict=True):
        stop = first + end - 1
        used = models[trajectory.response_versions[begin]]
        out = used(torch.tensor([ids[start:stop]]), past_key_values=cache, use_cache=True)
        logprobs = torch.log_softmax(out.logits[0], -1)
        scores += [logprobs[first + i - 1 - start, trajectory.response_ids[i]] for i in range(begin, end)]
        cache, start = out.past_key_values, stop
    return torch.stack(scores)


def difference(trajectory: Trajectory, expected: torch.Tensor) -> float:
    """Largest distance between the log-probs of the engine and those expected."""
    return float((torch.tensor(trajectory.response_logprobs) - expected).abs().max())
