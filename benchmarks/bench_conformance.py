"""How fast the conformance kit is, in CPU seconds: events a second with all invariants on, and `check_policy`.

    python benchmarks/bench_conformance.py [POLICY ...]

Aims: 2,000 events a second through the core with all invariants on; `check_policy` in the profile `dev` at most
10 s a policy. Without names every registered policy is checked. Exit code 1 when an aim is missed.
"""

import argparse
import sys
import time

from interfaces.conformance import check_policy
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.timed import Durations, Timed
from interfaces.loop import TrainingLoop
from interfaces.policies.presets import Areal
from interfaces.policies.registry import presets
from interfaces.view import LoopConfig

EVENTS_PER_S = 2_000
DEV_S = 10.0


def events_per_s() -> tuple[int, float]:
    """Events of a monitored run of AReaL (64 x 8 rollouts a step, 16 replicas), and CPU seconds."""
    config = LoopConfig(batch_size=64, group_size=8, steps=60)
    monitor = Monitor(TrainingLoop(Areal(4, 128).build(config), config))
    lengths = Durations(tokens=lambda prompt, member: 1 + (prompt * 7 + member * 3) % 19, train_s=8.0)
    start = time.process_time()
    Timed(monitor, 16, lengths).run()
    assert monitor.loop.ended == "steps"
    return len(monitor.history), time.process_time() - start


def check_s(name: str) -> float:
    start = time.process_time()
    check_policy(name, profile="dev")
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policies", nargs="*", metavar="POLICY")
    names = parser.parse_args().policies or sorted(presets())
    events, seconds = events_per_s()
    print(
        f"{events / seconds:10,.0f} events/s with all invariants on ({events:,} events, aim {EVENTS_PER_S:,})"
    )
    times = {}
    for name in names:
        times[name] = check_s(name)
        print(f"{times[name]:10.1f} s CPU check_policy({name!r}), profile dev", flush=True)
    slowest = max(times.values())
    print(f"{slowest:10.1f} s CPU the slowest of {len(times)} policies (aim {DEV_S:g})")
    return int(events / seconds < EVENTS_PER_S or slowest > DEV_S)


if __name__ == "__main__":
    sys.exit(main())
