"""Does asynchrony pay on this machine? Prints ratios of real runs: one core for the engine, one for the trainer.

    python benchmarks/real_async_vs_sync.py [--steps 16] [--repeats 3] [--max-staleness 2]

Trains `local/letter_chain` until answers are long, then runs that policy on under `areal` and under `sync`, taking
turns, for the same number of trained rollouts, with a learning rate so small that lengths stay as they are; then the
engine alone, with as many rollouts in flight. Needs a machine where nothing else runs; about a minute a repeat.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

SCENARIO = "local/letter_chain"
BARE_ROLLOUTS = 2048
LEARNING_STEPS = 24
Report = dict[str, Any]


def run(policy: str, steps: int, seed: int, out: Path, *more: str) -> Report:
    """One run in processes of its own; its report."""
    sets = [
        f"policy={policy}",
        f"run.steps={steps}",
        f"run.warmup_steps={steps // 4}",
        f"run.seed={seed}",
        *more,
    ]
    options = [option for setting in sets for option in ("--set", setting)]
    command = [sys.executable, "-m", "areal_real", "run", SCENARIO, *options, "--out", str(out), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report: Report = json.loads(done.stdout[done.stdout.index("{\n") :])
    return report


def rollout_throughput(report: Report) -> float:
    """Tokens generated a second, over the measured steps."""
    return float(report["generation_throughput_tokens_per_s"])


def loading(report: Report) -> float:
    """Share of a step in which generation stands still for new weights."""
    return float(report["time_share"]["rollout"].get("load", 0.0))


class Tokens:
    """Prompts of the task, responses in memory: the least that an engine needs."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self.made: defaultdict[int, int] = defaultdict(int)

    def prompt_ids(self, prompt: int) -> tuple[int, ...]:
        return self._task.item(prompt).prompt_ids

    def trajectory(self, rollout: int, prompt: int) -> Any:
        from interfaces.rollout import Trajectory

        return Trajectory(rollout, self.prompt_ids(prompt), (), (), ())

    def extend(self, rollout: int, ids: Any, logprobs: Any, versions: Any, *, ended: bool) -> None:  # noqa: ARG002
        self.made[rollout] += len(ids)

    def restart(self, rollout: int) -> None:
        self.made.pop(rollout, None)


async def bare_engine(model: Path, members: int) -> float:
    """Tokens a second of the engine alone; as many rollouts in flight as it takes."""
    from areal_real.clock import Clock
    from areal_real.engine.replica import VllmReplica
    from areal_real.setup import engine_config, prepare
    from interfaces.actions import Generate
    from interfaces.scenario_file import load

    resolved = load(SCENARIO)
    ground = prepare(resolved)
    tokens, clock = Tokens(ground.task), Clock()
    ended: asyncio.Queue[int] = asyncio.Queue()

    def fail(error: Exception) -> None:
        raise error

    with tempfile.TemporaryDirectory() as weights:
        config = engine_config(resolved, type(ground)(ground.task, model), Path(weights), 0)
        replica = VllmReplica(0, config, tokens, lambda e: ended.put_nowait(e.rollout), clock, on_error=fail)
        await replica.start(0)

        def start(number: int) -> None:
            replica.generate(Generate(number, number // members, number % members, 0, 0, 0, None))

        in_flight = config.max_num_seqs
        began = clock.now()
        for number in range(in_flight):
            start(number)
        for number in range(in_flight, BARE_ROLLOUTS):
            await ended.get()
            start(number)
        seconds = clock.now() - began  # the last ones, with the engine half empty, do not count
        made = sum(tokens.made.values())
        await replica.stop()
    return made / seconds


def last_checkpoint(out: Path) -> Path:
    return max((out / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-staleness", type=int, default=2)
    chosen = parser.parse_args()
    policies = {
        "areal": f'{{name = "areal", max_staleness = {chosen.max_staleness}}}', "sync": '{name = "sync"}'
    }  # fmt: skip
    ratios, shares, kept = [], [], []
    trained = tempfile.TemporaryDirectory()
    run(policies["sync"], LEARNING_STEPS, 0, Path(trained.name) / "run")
    model = last_checkpoint(Path(trained.name) / "run")
    fixed = (f'real.model="{model}"', "real.optimizer.learning_rate=1e-12", "run.checkpoint_every_steps=0")
    for repeat in range(chosen.repeats):
        reports: dict[str, Report] = {}
        with tempfile.TemporaryDirectory() as place:
            for name in sorted(policies, reverse=bool(repeat % 2)):
                reports[name] = run(policies[name], chosen.steps, repeat, Path(place) / name, *fixed)
            bare = asyncio.run(bare_engine(model, 8))
        areal, sync = reports["areal"], reports["sync"]
        assert areal["trained_rollouts"] == sync["trained_rollouts"]
        key = "effective_throughput_tokens_per_s"
        ratios.append(areal[key] / sync[key])
        shares.append(loading(areal))
        kept.append(rollout_throughput(areal) / bare)
        print(
            f"repeat {repeat}: areal {areal[key]:,.0f} trained tokens/s (staleness mean "
            f"{areal['staleness']['mean']:.2f}, max {areal['staleness']['max']:.0f}), sync {sync[key]:,.0f}, "
            f"ratio {ratios[-1]:.2f}; generated {rollout_throughput(areal):,.0f} tokens/s, engine alone "
            f"{bare:,.0f}, {100 * kept[-1]:.0f} %; standing still for weights {100 * shares[-1]:.1f} % of a step"
        )
    print(
        f"median: areal / sync {statistics.median(ratios):.2f}x trained tokens/s (aim 1.3), rollout throughput"
    )
    print(
        f"        {100 * statistics.median(kept):.0f} % of the bare engine (aim 85), "
        f"{100 * statistics.median(shares):.1f} % of a step for weights (aim: at most 5)"
    )


if __name__ == "__main__":
    main()
