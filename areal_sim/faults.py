"""Replicas that die and come back, or run slowly for a while."""

from collections.abc import Callable

import simpy

from areal_sim.replica import Replica
from areal_sim.schedule import MECHANICS, call_later
from interfaces.backend import Report
from interfaces.events import ReplicaDown, ReplicaUp
from interfaces.rollout import PolicyVersion
from interfaces.scenario import ReplicaFault


def inject(
    env: simpy.Environment,
    fault: ReplicaFault,
    replica: Replica,
    report: Report,
    published: Callable[[], PolicyVersion],
) -> None:
    """Schedule one fault. A replica that comes back serves the version published by then."""

    def down(_: object) -> None:
        if replica.state == "down":
            return
        lost_tokens = replica.die()
        report(ReplicaDown(env.now, replica.id, "fault of the scenario", lost_tokens))
        assert fault.down_s is not None
        call_later(env, fault.down_s, MECHANICS, up)

    def up(_: object) -> None:
        version = published()
        replica.revive(version)
        report(ReplicaUp(env.now, replica.id, version))

    if fault.slowdown is not None:
        factor = fault.slowdown
        call_later(env, fault.at_s, MECHANICS, lambda _: replica.set_slowdown(factor))
        if fault.until_s is not None:
            call_later(env, fault.until_s, MECHANICS, lambda _: replica.set_slowdown(1.0))
    else:
        call_later(env, fault.at_s, MECHANICS, down)
