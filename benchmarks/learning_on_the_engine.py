"""The same question on the real system: vLLM on one core, the trainer on the other, policy `areal` with eta = 8.

    python benchmarks/learning_on_the_engine.py [--steps 30] [--seeds 3] [--out docs/learning.md]

Writes its section of `docs/learning.md`. The staleness is what the run makes of it, and is reported. Runs one after
the other, since each takes both cores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from learning_page import replace_section
from line_plot import Line, line_plot

HEADING = "On the real engine, eta = 8"
EVERY = 5
CAP = 5.0


class Variant(NamedTuple):
    label: str
    objective: str
    max_staleness: int
    colour: str


VARIANTS = (
    Variant("synchronous", "decoupled_ppo", 0, "#4c566a"),
    Variant("decoupled PPO, eq. (5)", "decoupled_ppo", 8, "#2a7f62"),
    Variant("naive PPO", "ppo", 8, "#c2452d"),
    Variant("proximal without its weight", "unweighted_proximal", 8, "#d08c1d"),
)


class Result(NamedTuple):
    accuracy: dict[int, float]
    """After so many steps."""
    staleness: dict[int, float]
    """Mean over the rollouts of each step."""
    oldest: float
    """Largest staleness of any rollout."""


def settings(variant: Variant, seed: int, steps: int) -> list[str]:
    chosen = {
        "run.steps": steps, "run.seed": seed, "run.evaluation_every_steps": EVERY,
        "real.task": '"letter_chain:xs"', "real.evaluation_prompts": 256, "real.optimizer.learning_rate": 3e-4,
        "real.loss.objective": f'"{variant.objective}"', "real.loss.behaviour_weight_cap": CAP, "policy.max_staleness": variant.max_staleness,
    }  # fmt: skip
    return [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]


def measure(variant: Variant, seed: int, steps: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "areal_real", "run", "local/letter_chain", *settings(variant, seed, steps),
            "--out", folder, "--json",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    training: list[dict[str, Any]] = json.loads(done.stdout)["training"]
    return Result(
        {row["step"] + 1: row["evaluation_reward"] for row in training if "evaluation_reward" in row},
        {row["step"]: row["staleness_mean"] for row in training},
        max(row["staleness_max"] for row in training),
    )


def table(results: dict[Variant, list[Result]], steps: int) -> str:
    lines = [
        "| variant | staleness, mean of steps 11 on | oldest | accuracy at step 15 "
        f"| accuracy at step {steps}: mean | each seed |",
        "|---|---|---|---|---|---|",
    ]
    for variant, runs in results.items():
        last = [run.accuracy[steps] for run in runs]
        late = [value for run in runs for step, value in run.staleness.items() if step >= 10]
        lines.append(
            f"| {variant.label} | {sum(late) / len(late):.1f} | {max(run.oldest for run in runs):.0f} "
            f"| {sum(run.accuracy[15] for run in runs) / len(runs):.2f} | **{sum(last) / len(last):.2f}** "
            f"| {' '.join(f'{value:.2f}' for value in last)} |"
        )
    return "\n".join(lines)


def section(results: dict[Variant, list[Result]], steps: int, picture: str) -> str:
    return f"""`areal-real run local/letter_chain` with vLLM on one core and the trainer on the other, policy `areal`, eta = 8: rollouts
are interrupted by new weights and mix versions. The staleness is what came of it, as measured. Number of seeds: {len(results[VARIANTS[0]])}.

{table(results, steps)}

![Held-out accuracy over training steps, on the real engine]({picture})"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "learning.md")
    chosen = parser.parse_args()
    results: dict[Variant, list[Result]] = {variant: [] for variant in VARIANTS}
    for seed in range(chosen.seeds):
        for variant in VARIANTS:
            result = measure(variant, seed, chosen.steps)
            results[variant].append(result)
            print(f"{variant.label}, seed {seed}: {result}", flush=True)
    picture = chosen.out.parent / "images" / "learning_on_the_engine.svg"
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
