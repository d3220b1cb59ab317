"""Tasks made of text: reasoning-gym and files of prompts."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from areal_real.tasks import gym, jsonl
from areal_real.tasks.registry import find_task
from areal_real.tasks.text import final_answer
from interfaces.errors import ScenarioError


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory):
    """A model directory with a tokenizer of single characters."""
    path = tmp_path_factory.mktemp("tokenizer")
    characters = [chr(code) for code in (10, *range(32, 127))]
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(path)
    return path


@pytest.fixture
def prompts_file(tmp_path):
    lines = [{"prompt": f"What is {i} + {i}?", "answer": str(2 * i), "hint": i} for i in range(50)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "scenario.toml"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("I think <answer>3</answer> or <answer> 4 </answer>.", "4"),
        ("5 + 5.\nAnswer: 10", "10"),
        ("first\nsecond\n", "second"),
        ("Answer:", ""),
        ("", ""),
    ],
)
def test_final_answer(response, answer):
    assert final_answer(response) == answer


def test_questions_of_reasoning_gym(tokenizer_dir):
    task = find_task("reasoning_gym:chain_sum", tokenizer_dir)
    items = [task.item(index) for index in range(40)]
    assert items == [task.item(index) for index in range(40)]
    assert not {item.text for item in items} & {task.heldout(index).text for index in range(40)}
    item = items[0]
    assert item.text.replace(" ", "") in task.decode(item.prompt_ids).replace(" ", "")
    right = gym.dataset("chain_sum")[item.answer["index"]]["answer"]
    assert gym.reward(item.text, f"<answer>{right}</answer>", True, item.answer) == 1.0
    assert gym.reward(item.text, f"<answer>{right}</answer>", False, item.answer) == 0.0
    assert gym.reward(item.text, f"it may be {right} or so", True, item.answer) == 0.0  # partial credit
    assert gym.reward(item.text, "", True, item.answer) == 0.0
    assert json.loads(json.dumps(item.answer)) == item.answer


def test_prompts_of_a_file(tokenizer_dir, prompts_file):
    task = find_task("jsonl:p.jsonl", tokenizer_dir, str(prompts_file))
    trained = {task.item(index).text for index in range(100)}
    heldout = {task.heldout(index).text for index in range(100)}
    assert len(trained) + len(heldout) == 50
    assert not trained & heldout
    item = task.item(3)
    assert item.answer.keys() == {"answer", "hint"}
    assert jsonl.reward(item.text, f"Answer:  {item.answer['answer']} ", True, item.answer) == 1.0
    assert jsonl.reward(item.text, "Answer: 1000", True, item.answer) == 0.0
    assert task.eos_id == 1
    assert task.reward == "areal_real.tasks.jsonl:reward"
    own = find_task("jsonl:p.jsonl@my_rewards:score", tokenizer_dir, str(prompts_file))
    assert own.reward == "my_rewards:score"


def test_tokens_decode_to_the_text(tokenizer_dir, prompts_file):
    task = find_task("jsonl:p.jsonl", tokenizer_dir, str(prompts_file))
    ids = task.item(0).prompt_ids
    assert max(ids) < 100
    assert task.decode((*ids, task.eos_id)).replace(" ", "").startswith(task.item(0).text.replace(" ", ""))


def test_chat_template_is_used_if_there_is_one(tokenizer_dir, prompts_file, tmp_path):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_dir)
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[go]"
    tokenizer.save_pretrained(tmp_path / "chat")
    task = find_task("jsonl:p.jsonl", tmp_path / "chat", str(prompts_file))
    text = task.decode(task.item(0).prompt_ids).replace(" ", "")
    assert text.startswith("[user]Whatis")
    assert text.endswith("[go]")


@pytest.mark.parametrize(
    ("name", "has_model", "says"),
    [
        ("reasoning_gym:chain_sums", True, "is no dataset"),
        ("reasoning_gym:chain_sum", False, "real.model = None must be given"),
        ("reasoning_gym", True, "needs the name of a dataset"),
        ("jsonl:missing.jsonl", True, "cannot be read"),
        ("jsonl:wrong.jsonl", True, "is wrong in line 2"),
        ("jsonl:one.jsonl", True, "none to train or none to hold out"),
        ("jsonl:p.jsonl", False, "real.model = None must be given"),
    ],
)
def test_what_is_missing_is_said(tokenizer_dir, prompts_file, name, has_model, says):
    folder = prompts_file.parent
    (folder / "wrong.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": 3, "answer": ""}\n')
    (folder / "one.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    with pytest.raises(ScenarioError, match=says):
        find_task(name, tokenizer_dir if has_model else None, str(prompts_file))


def test_model_without_tokenizer_is_refused(prompts_file, tmp_path):
    with pytest.raises(ScenarioError, match="has no tokenizer"):
        find_task("jsonl:p.jsonl", tmp_path, str(prompts_file))


def test_no_model_of_their_own(tokenizer_dir, tmp_path):
    with pytest.raises(ScenarioError, match="has no model of its own"):
        find_task("reasoning_gym:chain_sum", tokenizer_dir).warm_start(tmp_path / "model")
