"""Does decoupled PPO keep learning from old rollouts? Writes `docs/learning.md` and its picture.

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

from line_plot import Line, line_plot
from single_process_loop import HELDOUT, MEMBERS, PROMPTS, Loop, run

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


def page(results: dict[Variant, list[Result]], steps: int, seeds: int, picture: str) -> str:
    decoupled = results[VARIANTS[1]]
    return f"""# Learning from old rollouts

Written by `python benchmarks/learning_under_staleness.py`; every number is computed by it.

The letter chain ([areal_real/tasks/letter_chain.py](../areal_real/tasks/letter_chain.py)) on its XS model (86 k
parameters): {PROMPTS} prompts x {MEMBERS} rollouts a step, GRPO, 4 minibatches, clip 0.2, AdamW 3e-4, one warm start,
{seeds} seeds. The rollouts of three variants are sampled with weights that are {STALENESS} versions old (younger in the
first steps). One process, the project's learner and its own sampler: no engine, so that nothing but the
objective differs. Accuracy: {HELDOUT} held-out prompts, sampled at temperature 1, standard error about 0.03.

{table(results, steps)}

![Accuracy over steps]({picture})

What may be read from it: at this staleness naive PPO, which clips around the policy that sampled, learns more
slowly; decoupled PPO, which clips around the policy that the step starts from and weighs each token by
`pi_prox / pi_behav`, does not lose as much. It is an effect on *speed*, seen on one small task from a cold start: given many
more steps the curves meet, and nothing here says that one of them ends higher.

The weight `pi_prox / pi_behav` was capped at {CAP:g}, which bound for {sum(r.capped for r in decoupled) / len(decoupled):.2%} of the tokens
of decoupled PPO. CPU time of one run: {sum(r.cpu_s for rs in results.values() for r in rs) / sum(map(len, results.values())):.0f} s on average.
"""


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
    picture.write_text(line_plot(lines, "optimizer steps (versions)", "held-out accuracy"), encoding="utf-8")
    chosen.out.write_text(
        page(results, chosen.steps, chosen.seeds, f"images/{picture.name}"), encoding="utf-8"
    )
    print(table(results, chosen.steps))


if __name__ == "__main__":
    main()
