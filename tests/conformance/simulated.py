"""The simulator's mechanisms, set up for `check_backend`."""

from areal_sim.parts import SimulatedBackend
from interfaces.scenario import Resolved, Scenario
from interfaces.scenario_file import load_hardware, load_model, validate

LONGEST = 400


def resolved(**sections) -> Resolved:
    """Two replicas, two groups of two a batch, responses of about 200 tokens at 0.01 s."""
    lengths = {"type": "lognormal", "median": 200.0, "sigma": 0.4, "max": LONGEST}
    base = {
        "run": {"steps": 4, "checkpoint_s": 2.0, "evaluation_s": 2.0, "checkpoint_every_steps": 2},
        "cluster": {"hardware": "h800", "rollout_gpus": 2, "trainer_gpus": 2},
        "model": {"name": "qwen2.5-1.5b"},
        "trainer": {"minibatches": 1},
        "workload": {"batch_size": 2, "group_size": 2, "response_tokens": lengths},
        "policy": {"name": "areal"},
        "cost": {
            "model": "constant", "decode_step_s": 0.01, "train_s": 1.0, "publish_s": 0.2, "load_s": 0.1,
        },
    }  # fmt: skip
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    scenario = validate(Scenario, "simulated.toml", base)
    return Resolved(
        where="simulated.toml",
        scenario=scenario,
        hardware=load_hardware("h800"),
        model=load_model("qwen2.5-1.5b"),
    )


def backend(**sections) -> SimulatedBackend:
    return SimulatedBackend(resolved(**sections), max_response_tokens=LONGEST, moment_s=0.3)
