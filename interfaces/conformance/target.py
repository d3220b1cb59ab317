"""What a user may give to be checked: a registry name, `module:object`, a preset, a policy, or a builder."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interfaces.errors import ScenarioError
from interfaces.policies.protocols import Policy
from interfaces.policies.registry import build_policy
from interfaces.view import LoopConfig

Buildable = Any
"""str | Policy | Preset | Callable[[LoopConfig], Policy]"""


@dataclass(frozen=True)
class Target:
    """A policy to be checked, for runs of any shape."""

    name: str
    build: Callable[[LoopConfig], Policy]
    source: str
    """Python expression of the policy, given `config`; for the snippet of a failure."""
    imports: str = ""
    fixed_batch: int | None = None
    """A ready-made policy fits one batch size only."""


def target_of(subject: Buildable) -> Target:
    """Make sense of what the user gave.

    Raises:
        ScenarioError: no such policy.
        TypeError: nothing that builds a policy.
    """
    if isinstance(subject, str):
        return _named(subject)
    if isinstance(subject, Policy):
        return Target(
            subject.name, lambda _: subject, "policy  # the object that was checked",
            fixed_batch=subject.min_outstanding_groups or None,
        )  # fmt: skip
    kind = type(subject)
    if isinstance(subject, type):
        subject = subject()
        kind = type(subject)
    if hasattr(subject, "build"):
        imports = f"from {kind.__module__} import {kind.__name__}"
        return Target(_preset_name(subject), subject.build, f"{subject!r}.build(config)", imports)
    if callable(subject):
        name = getattr(subject, "__name__", kind.__name__)
        module = getattr(subject, "__module__", kind.__module__)
        return Target(name, subject, f"{name}(config)", f"from {module} import {name}")
    raise TypeError(f"{subject!r} is not a policy, a preset, a name or a function of LoopConfig")


def _preset_name(preset: Any) -> str:
    return repr(preset) if len(repr(preset)) < 100 else type(preset).__name__


def _named(name: str) -> Target:
    if ":" not in name:
        probe = LoopConfig(batch_size=1, group_size=1, steps=1)
        build_policy(name, {}, probe, "check")
        source = f'build_policy("{name}", {{}}, config, "check")'
        imports = "from interfaces.policies.registry import build_policy"
        return Target(name, lambda config: build_policy(name, {}, config, "check"), source, imports)
    module, _, attribute = name.partition(":")
    try:
        subject = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        remedy = "name it `module:object`, importable from the working directory"
        raise ScenarioError("check", "policy", name, f"cannot be imported ({error})", remedy) from None
    return target_of(subject)
