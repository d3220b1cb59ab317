"""The letter chain: prompts, answers, rewards, and the model it starts from."""

import math

import pytest

from areal_real.tasks import letter_chain as chain
from areal_real.tasks.registry import default_model_dir, find_task
from areal_real.tasks.task import Item
from interfaces.errors import ScenarioError

TERMS = [("a", 3), ("b", 1), ("c", 4)]


def test_documented_example():
    assert chain.prompt_text(TERMS) == "a3b1c4="
    assert chain.step_by_step_answer(TERMS) == "b3+1=4c4+4=3#3"
    assert chain.direct_answer(TERMS) == "#3"


@pytest.mark.parametrize(
    ("response", "ended", "reward"),
    [
        ("#3", True, 1.0),
        ("b3+1=4c4+4=3#3", True, 1.0),
        ("#2#3", True, 1.0),
        ("#3", False, 0.0),
        ("3", True, 0.0),
        ("#", True, 0.0),
        ("#33", True, 0.0),
        ("#3#", True, 0.0),
        ("#4", True, 0.0),
        ("", True, 0.0),
    ],
)
def test_reward_wants_the_sum_after_the_last_mark(response, ended, reward):
    assert chain.reward("a3b1c4=", response, ended, {"sum": "3"}) == reward


def test_same_index_gives_the_same_item():
    one, other = chain.LetterChain(), find_task("letter_chain")
    assert [one.item(index) for index in range(5)] == [other.item(index) for index in range(5)]
    assert [one.heldout(index) for index in range(5)] == [other.heldout(index) for index in range(5)]


def test_item_holds_what_the_reward_needs():
    item = chain.LetterChain().item(3)
    terms = chain.draw(3, heldout=False)
    assert item == Item(chain.prompt_text(terms), (chain.BOS, *chain.encode(item.text)), item.answer)
    assert chain.reward(item.text, chain.step_by_step_answer(terms), True, item.answer) == 1.0


def test_heldout_prompts_never_train():
    task = chain.LetterChain()
    trained = {task.item(index).text for index in range(2000)}
    heldout = {task.heldout(index).text for index in range(500)}
    assert not trained & heldout
    assert len(heldout) > 300


def test_lengths_have_the_documented_tail():
    lengths = sorted(len(chain.step_by_step_answer(chain.draw(i, heldout=False))) + 1 for i in range(2000))
    assert sum(lengths) / len(lengths) == pytest.approx(32, abs=2)
    assert lengths[1800] == pytest.approx(69, abs=6)
    assert lengths[-1] == 93


def test_text_survives_the_vocabulary():
    text = chain.prompt_text(TERMS) + chain.step_by_step_answer(TERMS)
    ids = chain.encode(text)
    assert chain.decode((chain.BOS, *ids, chain.EOS, chain.PAD, chain.VOCABULARY - 1)) == text
    assert min(ids) >= chain.SPECIAL
    assert max(ids) < chain.VOCABULARY
    assert len(set(chain.IDS.values())) == len(chain.CHARACTERS)


def test_chance_is_one_in_five():
    sums = [chain.LetterChain().item(i).answer["sum"] for i in range(1000)]
    for value in "01234":
        assert sums.count(value) / 1000 == pytest.approx(0.2, abs=4 * math.sqrt(0.2 * 0.8 / 1000))


def test_own_task_is_found_by_module_and_object():
    assert find_task("areal_real.tasks.letter_chain:LetterChain").name == "letter_chain"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("letter_chian", "is no built-in task"),
        ("no_such_module:thing", "cannot be imported"),
        ("areal_real.tasks.letter_chain:nothing", "cannot be imported"),
        ("areal_real.tasks.letter_chain:decode", "when called without arguments"),
        ("collections:OrderedDict", "implement areal_real.tasks.task.Task"),
        ("letter_chain:huge", "has no model of that size"),
    ],
)
def test_unknown_task_is_refused_with_a_remedy(name, says):
    with pytest.raises(ScenarioError, match=f"mine.toml: real.task = .*{says}"):
        find_task(name, where="mine.toml")


def test_models_are_kept_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_model_dir(find_task("letter_chain")).is_relative_to(tmp_path)
    assert default_model_dir(find_task("letter_chain")) != default_model_dir(find_task("letter_chain:xs"))
