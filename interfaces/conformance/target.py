"""What a user may give to be checked: a registry name, `module:object`, a preset, a policy, or a builder."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from interfaces.errors import ScenarioError, TestbedError
from interfaces.policies.protocols import Policy
from interfaces.policies.registry import build_policy, preset_with
from interfaces.view import LoopConfig

WHERE = "check"
PROBE = LoopConfig(batch_size=1, group_size=1, steps=1)
Buildable = Any
"""str | Policy | Preset | Target | Callable[[LoopConfig], Policy]"""


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

    def policy(self, config: LoopConfig) -> Policy:
        """The policy for a run.

        Raises:
            ScenarioError: it cannot be built.
        """
        try:
            built = self.build(config)
        except TestbedError:
            raise
        except Exception as error:
            rule = f"cannot be built for {config} ({type(error).__name__}: {error})"
            raise ScenarioError(WHERE, "policy", self.name, rule, "see the `build` of this policy") from error
        if not isinstance(built, Policy):
            rule = f"builds a {type(built).__name__}, not a Policy"
            raise ScenarioError(
                WHERE, "policy", self.name, rule, "return interfaces.policies.protocols.Policy"
            )
        return built


def target_of(subject: Buildable) -> Target:
    """Make sense of what the user gave.

    Raises:
        ScenarioError: no such policy.
        TypeError: nothing that builds a policy.
    """
    if isinstance(subject, Target):
        return subject
    if isinstance(subject, str):
        return named(subject)
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


def named(name: str, parameters: dict[str, Any] | None = None) -> Target:
    """A policy by registry name or `module:object`, with parameters of its preset.

    Raises:
        ScenarioError: no such policy, or a parameter that it does not have or refuses.
    """
    given = parameters or {}
    if ":" not in name:
        build_policy(name, given, PROBE, WHERE)
        source = f'build_policy("{name}", {given!r}, config, "{WHERE}")'
        imports = "from interfaces.policies.registry import build_policy"
        return Target(name, lambda config: build_policy(name, given, config, WHERE), source, imports)
    module, _, attribute = name.partition(":")
    try:
        subject = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        remedy = "name it `module:object`, importable from the working directory"
        seen = f"cannot be imported ({type(error).__name__}: {error})"
        raise ScenarioError(WHERE, "policy", name, seen, remedy) from None
    if given:
        subject = _with_parameters(name, subject, given)
    try:
        return target_of(subject)
    except TypeError as error:
        remedy = "name a preset, a Policy or a function of LoopConfig"
        raise ScenarioError(WHERE, "policy", name, f"is not one ({error})", remedy) from None


def _with_parameters(name: str, preset: Any, parameters: dict[str, Any]) -> Any:
    if not is_dataclass(preset) or not isinstance(preset, type):
        raise ScenarioError(
            WHERE, "policy", name, "takes no parameters", "name a dataclass with `build(config)`"
        )
    return preset_with(preset, name, parameters, WHERE)
