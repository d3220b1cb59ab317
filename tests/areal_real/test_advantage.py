"""Advantages against values that AReaL and verl computed, and the rule for short groups."""

import json
from pathlib import Path

import numpy as np
import pytest

from areal_real.trainer.advantages import group_advantages

DATA = Path(__file__).parent / "data"
REFERENCE = json.loads((DATA / "reference_values.json").read_text())
CASES = {case["case"]: case for case in json.loads((DATA / "areal_vectors.json").read_text())["cases"]}


@pytest.mark.parametrize(("output", "kind"), [("grpo_std", "grpo"), ("rloo", "rloo")])
def test_agrees_with_verl(output, kind):
    given = REFERENCE["inputs"]
    expected = [row[0] for row in REFERENCE["outputs"][f"verl/advantage/{output}"]]
    assert group_advantages(given["rewards"], given["group"], kind) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("case", "kind"), [("norm_grpo_group_group", "grpo"), ("norm_rloo", "rloo")])
def test_agrees_with_areal(case, kind):
    rewards, expected = CASES[case]["x"], CASES[case]["out"]
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    assert group_advantages(rewards, groups, kind, epsilon=1e-5) == pytest.approx(expected, abs=1e-5)


def test_dr_grpo_leaves_the_scale():
    assert group_advantages([1.0, 0.0, 0.0, 0.0], [7] * 4, "dr_grpo").tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_short_group_has_no_baseline(kind):
    # AReaL#1419: rewards [1, 0, 1, 0, 1] in groups of 4; a fixed stride normalised the last to 1e5
    advantages = group_advantages([1.0, 0.0, 1.0, 0.0, 1.0], [0, 0, 0, 0, 1], kind)
    assert advantages[4] == 0.0
    assert np.abs(advantages).max() < 2.0


def test_order_of_rollouts_does_not_matter():
    rewards, groups = [1.0, 0.3, 0.0, 0.5, 0.9, 0.1], [0, 1, 0, 1, 0, 1]
    order = [4, 1, 5, 0, 3, 2]
    shuffled = group_advantages([rewards[i] for i in order], [groups[i] for i in order], "grpo")
    assert shuffled == pytest.approx(group_advantages(rewards, groups, "grpo")[order])


@pytest.mark.parametrize("reward", [0.1, 1.0, 1 / 3])
def test_equal_rewards_give_exactly_nothing(reward):
    # the mean of equal numbers may round away from them, and the spread is as small as the difference
    assert not group_advantages([reward] * 7, [0] * 7, "grpo").any()
