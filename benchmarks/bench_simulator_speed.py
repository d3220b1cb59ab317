"""How fast the simulator is: CPU seconds and peak memory of large runs, in one process on one core.

    python benchmarks/bench_simulator_speed.py [--steps 250]

The run of reference is 250 steps x 512 prompts x 16 rollouts of about 8k tokens on 96 replicas, AReaL with
interruption: 2.05 M rollouts, 1.6e10 tokens. Then half the steps, and four times the replicas at the same
work. Beside each time stands the time of a fixed pure-Python loop right before it, since machines differ.
"""

import argparse
import json
import multiprocessing
import resource
import time

BASE = ["reward.latency_s.value=0.0", "run.warmup_steps=2"]


def unit_s() -> float:
    """CPU seconds of five million additions."""
    start = time.process_time()
    total = 0
    for number in range(5_000_000):
        total += number & 3
    return time.process_time() - start


def measure(sets: list[str]) -> dict[str, float]:
    from areal_sim.simulation import Simulation
    from interfaces.scenario_file import load

    unit = unit_s()
    simulation = Simulation(load("areal/table1_1_5b_async", [*BASE, *sets]))
    start = time.process_time()
    report = simulation.run()
    return {
        "cpu_s": time.process_time() - start,
        "unit_s": unit,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rollouts": float(simulation.loop.ledger.admitted_rollouts),
        "generated_tokens": float(sum(r.batch.generated_tokens for r in simulation.replicas)),
        "step_time_s": report["step_time_s"]["mean"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=250)
    steps = parser.parse_args().steps
    gpus = 4 * 96
    cases = {
        f"{steps} steps, 96 replicas": [f"run.steps={steps}"],
        f"{steps // 2} steps, 96 replicas": [f"run.steps={steps // 2}"],
        f"{steps // 2} steps, {gpus} replicas": [f"run.steps={steps // 2}", f"cluster.rollout_gpus={gpus}"],
    }
    results = {}
    for name, sets in cases.items():
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # a fresh process: its own peak memory
            results[name] = row = pool.apply(measure, (sets,))
        print(
            f"{name:28s} {row['cpu_s']:7.1f} CPU-s  {row['peak_mb']:6.0f} MB  {row['rollouts'] / 1e6:.2f} M rollouts "
            f"{row['generated_tokens']:.2e} tokens  {1e6 * row['cpu_s'] / row['rollouts']:5.1f} us/rollout  "
            f"(unit loop {row['unit_s']:.3f} s)"
        )
    whole, half, wide = results.values()
    print(f"twice the steps: {whole['cpu_s'] / half['cpu_s']:.2f} x the time (at most 2.2)")
    print(f"4 x the replicas: {wide['cpu_s'] / half['cpu_s']:.2f} x the time (at most 1.5)")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
