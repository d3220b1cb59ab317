"""`areal-sim check`: policies, recorded runs and scenarios from the command line."""

import gzip
import json
import sys

import pytest

from areal_sim.__main__ import main
from interfaces.conformance import check as kit

MODULE = """
from dataclasses import dataclass, replace

from interfaces.policies.presets import Areal
from interfaces.policies.protocols import Guarantees


@dataclass(frozen=True)
class Hard:
    eta: int = 1

    def build(self, config):
        return replace(Areal(self.eta, 9).build(config), guarantees=Guarantees(self.eta, hard=True))


@dataclass(frozen=True)
class Crashes:
    def build(self, config):
        raise ArithmeticError("no batch of this size")


def builds_nothing(config):
    return 7


number = 7
"""
SMALL = ["workload.batch_size=4", "workload.group_size=2", "run.steps=3", "run.warmup_steps=0"]


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """Runs `areal-sim` in this process, in a directory with a module of policies; quick searches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_policies", raising=False)
    monkeypatch.setitem(kit.PROFILES, "dev", kit.Profile(40, 12))
    (tmp_path / "own_policies.py").write_text(MODULE)

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["areal-sim", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out = capsys.readouterr()
        return end.value.code or 0, out.out, out.err

    return call


def test_a_named_policy_with_parameters_keeps_all_laws(cli):
    code, out, _ = cli("check", "areal_strict", "--set", "max_staleness=2")
    assert code == 0
    assert "all 16 laws hold (profile dev)" in out


def test_a_broken_policy_of_a_module_is_a_story_and_an_exit_code(cli):
    code, out, _ = cli("check", "own_policies:Hard")
    assert code == 8
    assert "3 staleness    BROKEN" in out
    assert "law 3 (staleness): the declared staleness bound holds" in out
    assert "replay it with:" in out


def test_parameters_reach_a_preset_of_a_module(cli):
    code, out, _ = cli("check", "own_policies:Hard", "--set", "policy.eta=0", "--json")
    found = json.loads(out)["checks"][0]
    assert (code, found["ok"], found["kind"], found["violations"]) == (0, True, "policy", [])


def test_json_tells_what_was_broken(cli):
    code, out, _ = cli("check", "own_policies:Hard", "--json")
    found = json.loads(out)["checks"][0]
    assert code == 8
    assert [violation["name"] for violation in found["violations"]] == ["staleness"]
    assert found["violations"][0]["events"] <= 12
    assert [law["number"] for law in found["laws"] if not law["holds"]] == [3]


def test_a_run_directory_and_its_trace_are_checked(cli, tmp_path):
    sets = [word for key in SMALL for word in ("--set", key)]
    assert cli("run", "areal/table7", *sets, "--out", "run", "--trace", "full")[0] == 0
    trace = next((tmp_path / "run").glob("trace*"))
    code, out, _ = cli("check", "run", trace)
    assert code == 0
    assert out.count("all laws hold, and a fresh core gives the same answers") == 2
    code, out, _ = cli("check", "run", "--json")
    assert json.loads(out)["checks"][0]["summary"]["steps"] == 3


def test_an_edited_trace_is_found_out(cli, tmp_path):
    sets = [word for key in SMALL for word in ("--set", key)]
    cli("run", "areal/table7", *sets, "--out", "run", "--trace", "full")
    text = gzip.decompress(next((tmp_path / "run").glob("trace*")).read_bytes()).decode()
    (tmp_path / "edited.jsonl").write_text(text.replace('"step":1', '"step":7'))
    code, out, _ = cli("check", "edited.jsonl")
    assert code == 8
    assert "law " in out
    assert "likely cause" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["areel"], "did you mean 'areal'"),
        (["own_policies:Hard", "--set", "et=1"], "did you mean 'eta'"),
        (["own_policies:Hard", "--set", "eta=many"], "is not allowed"),
        (["own_policies:builds_nothing", "--set", "eta=1"], "takes no parameters"),
        (["own_policies:Missing"], "cannot be imported"),
        (["own_policies:Crashes"], "no batch of this size"),
        (["own_policies:builds_nothing"], "builds a int, not a Policy"),
        (["own_policies:number"], "is not one"),
        (["no_such_module:X"], "cannot be imported"),
        (["areal", "--set", "run.steps=1"], "write its name alone"),
        (["missing.toml"], "is neither a file nor a shipped scenario"),
    ],
)
def test_what_cannot_be_checked_is_one_message(cli, arguments, words):
    code, _, err = cli("check", *arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_without_hypothesis_the_message_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "interfaces.conformance.check")
    code, _, err = cli("check", "areal")
    assert code == 2
    assert "pip install 'areal-testbed[conformance]'" in err
