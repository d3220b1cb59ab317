"""Samples as flat arrays, for the way between processes, and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areal_real.tokens import Sample
from interfaces.rollout import Trajectory


def to_arrays(samples: Sequence[Sample]) -> dict[str, NDArray[Any]]:
    """One row a rollout in `rows` (rollout, group, prompt tokens, response tokens); tokens end to end."""
    trajectories = [sample.trajectory for sample in samples]
    rows = [
        (t.rollout, s.group, len(t.prompt_ids), len(t.response_ids))
        for s, t in zip(samples, trajectories, strict=True)
    ]

    def joined(parts: list[tuple[Any, ...]], dtype: Any) -> NDArray[Any]:
        return np.asarray([value for part in parts for value in part], dtype)

    return {
        "rows": np.asarray(rows, np.int64).reshape(-1, 4),
        "rewards": np.asarray([sample.reward for sample in samples], np.float64),
        "prompt_ids": joined([t.prompt_ids for t in trajectories], np.int64),
        "response_ids": joined([t.response_ids for t in trajectories], np.int64),
        "logprobs": joined([t.response_logprobs for t in trajectories], np.float64),
        "versions": joined([t.response_versions for t in trajectories], np.int64),
    }


def from_arrays(arrays: dict[str, NDArray[Any]]) -> list[Sample]:
    """The samples that `to_arrays` took."""
    prompts, responses = 0, 0
    samples = []
    for (rollout, group, prompt, response), reward in zip(
        arrays["rows"].tolist(), arrays["rewards"].tolist(), strict=True
    ):
        answer = slice(responses, responses + response)
        trajectory = Trajectory(
            rollout,
            tuple(arrays["prompt_ids"][prompts : prompts + prompt].tolist()),
            tuple(arrays["response_ids"][answer].tolist()),
            tuple(arrays["logprobs"][answer].tolist()),
            tuple(arrays["versions"][answer].tolist()),
        )
        samples.append(Sample(group, trajectory, reward))
        prompts += prompt
        responses += response
    return samples
