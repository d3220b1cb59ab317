"""Reward functions that do what reward functions should not do, as the response asks."""

import os
import time
from collections.abc import Mapping
from typing import Any


def reward(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:
    match response:
        case "hang":
            time.sleep(3600)
        case "crash":
            os._exit(3)
        case "raise":
            raise RuntimeError("no idea")
        case "nan":
            return float("nan")
        case "none":
            return None  # type: ignore[return-value]
        case "print":
            print("this must not be taken for an answer")
    return float(len(prompt) + ended + answer["plus"])
