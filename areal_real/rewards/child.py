"""A reward worker: `python -m areal_real.rewards.child PARENT FUNCTION`, a JSON line asked, one answered."""

import importlib
import json
import math
import os
import sys
from collections.abc import Callable

from areal_report.parent_watch import die_with


def score(function: Callable[..., float], line: str) -> dict[str, object]:
    """The answer to one request: a finite reward, or why there is none."""
    request = json.loads(line)
    try:
        reward = float(function(request["prompt"], request["response"], request["ended"], request["answer"]))
    except Exception as error:  # whatever a reward function raises fails this rollout, not the run
        return {"error": f"{type(error).__name__}: {error}"}
    if not math.isfinite(reward):
        return {"error": f"the reward is {reward}, not a finite number"}
    return {"reward": reward}


def main() -> None:
    """Load the function, say so, answer until stdin ends."""
    die_with(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what reward functions print goes to stderr, not among the answers

    def answer(data: dict[str, object]) -> None:
        answers.write(json.dumps(data) + "\n")
        answers.flush()

    module, _, name = sys.argv[2].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # a broken module is the user's to see, not a traceback
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    answer({"ready": True})
    for line in sys.stdin:
        answer(score(function, line))


if __name__ == "__main__":
    main()
