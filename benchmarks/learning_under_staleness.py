"""Does decoupled PPO keep learning from old rollouts? Writes its section of `docs/learning.md` and a picture.

    python benchmarks/learning_under_staleness.py [--steps 30] [--seeds 3] [--out docs/learning.md]

The letter chain on its XS model, four variants, several seeds, in one process each, two at a time. About seven
minutes of two cores, the warm start (kept between runs) not counted.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from learning_page import replace_section
from line_plot import Line, line_plot
from single_process_loop import Loop, run

HEADING = "In one process, exactly 8 versions old"
EVERY = 5
STALENESS = 8
CAP = 5.0


class Variant(NamedTuple):
    label: str
    objective: str
    staleness: int
    colour: str


VARIANTS = (
    Variant("synchronous", "decoupled_ppo", 0, "#4c566a"),
    Variant("decoupled PPO, eq. (5)", "decoupled_ppo", STALENESS, "#2a7f62"),
    Variant("naive PPO", "ppo", STALENESS, "#c2452d"),
    Variant("proximal without its weight", "unweighted_proximal", STALENESS, "#d08c1d"),
)


class Result(NamedTuple):
    accuracy: dict[int, float]
    """After so many steps."""
    staleness: float
    """Measured, mean over the rollouts of the second half."""
    weight_max: float
    capped: float
    cpu_s: float


def measure(variant: Variant, seed: int, steps: int, model_dir: Path) -> Result:
    import torch

    torch.set_num_threads(1)
    began = time.process_time()
    loop = Loop(
        objective=variant.objective, staleness=variant.staleness, seed=seed, steps=steps, cap=CAP,
        evaluate_at=tuple(range(EVERY, steps + 1, EVERY)),
    )  # fmt: skip
    done = list(run(loop, model_dir))
    late = [stats for stats, _ in done[steps // 2 :]]
    return Result(
        {step + 1: accuracy for step, (_, accuracy) in enumerate(done) if accuracy is not None},
        sum(stats.staleness_mean for stats in late) / len(late),
        max(stats.behaviour_weight_max for stats, _ in done),
        sum(stats.behaviour_weight_capped_fraction for stats, _ in done) / len(done),
        time.process_time() - began,
    )


def table(results: dict[Variant, list[Result]], steps: int) -> str:
    middle = steps // 2 // EVERY * EVERY
    lines = [
        f"| variant | staleness, measured | accuracy at step {middle} | accuracy at step {steps}: mean | each seed |",
        "|---|---|---|---|---|",
    ]
    for variant, runs in results.items():
        last = [result.accuracy[steps] for result in runs]
        early = sum(result.accuracy[middle] for result in runs) / len(runs)
        lines.append(
            f"| {variant.label} | {sum(r.staleness for r in runs) / len(runs):.1f} | {early:.2f} "
            f"| **{sum(last) / len(last):.2f}** | {' '.join(f'{value:.2f}' for value in last)} |"
        )
    return "\n".join(lines)


def section(results: dict[Variant, list[Result]], steps: int, picture: str) -> str:
    decoupled, everyone = results[VARIANTS[1]], [run for runs in results.values() for run in runs]
    capped = sum(run.capped for run in decoupled) / len(decoupled)
    return f"""The rollouts of three variants are sampled with weights that are {STALENESS} versions old (younger in the first
steps), in one process, by the learner and a sampler of its own: no engine, so nothing but the objective differs.
{len(decoupled)} seeds, one warm start.

{table(results, steps)}

![Held-out accuracy over training steps: mean of the seeds, and their range]({picture})

Naive PPO clips around the policy that sampled, and at this staleness it learns much more slowly. Decoupled PPO clips
around the policy that the step starts from and weighs each token by `pi_prox / pi_behav`; it stays near the synchronous
curve. Without that weight it learned as fast at first, and ended behind.

The weight was capped at {CAP:g}, which bound for {capped:.2%} of the tokens; the largest was {max(run.weight_max for run in decoupled):.3g}. One run took
{sum(run.cpu_s for run in everyone) / len(everyone):.0f} s of CPU time on average."""


def main() -> None:
    from areal_real.tasks.registry import default_model_dir, find_task

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "learning.md")
    chosen = parser.parse_args()
    task = find_task("letter_chain:xs")
    model_dir = default_model_dir(task)
    task.warm_start(model_dir)
    jobs = [(variant, seed) for seed in range(chosen.seeds) for variant in VARIANTS]
    results: dict[Variant, list[Result]] = {variant: [] for variant in VARIANTS}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(measure, variant, seed, chosen.steps, model_dir) for variant, seed in jobs]
        for (variant, seed), future in zip(jobs, futures, strict=True):
            results[variant].append(future.result())
            print(f"{variant.label}, seed {seed}: {future.result().accuracy}", flush=True)
    picture = chosen.out.parent / "images" / "learning.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        Line(variant.label, variant.colour, [result.accuracy for result in runs])
        for variant, runs in results.items()
    ]
    picture.write_text(line_plot(lines, "training steps", "held-out accuracy"), encoding="utf-8")
    replace_section(chosen.out, HEADING, section(results, chosen.steps, f"images/{picture.name}"))
    print(table(results, chosen.steps))


if __name__ == "__main__":
    main()
