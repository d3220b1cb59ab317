"""A plan as plain data: what `plan.json` holds, and what tables and pages are made from."""

from typing import Any

from areal_sim.plan.objective import Objective, staleness_of, throughput_of
from areal_sim.plan.result import Margin, Plan, Request, Result
from areal_sim.plan.search import Point
from areal_sim.plan.uncertainty import same
from areal_sim.plan.words import limit, rollout_share, split, why_not_own
from interfaces.run_files import BEST
from interfaces.scenario import Resolved

Data = dict[str, Any]


def as_data(base: Resolved, request: Request, result: Result) -> Data:
    """Everything; `plans` are in order, the best first."""
    objective, found = request.objective, result.found
    base_speed = throughput_of(result.synchronous.report) if result.synchronous else None
    best = result.plans[0].point
    return {
        "scenario": base.where,
        "model": base.model.name,
        "hardware": base.hardware.name,
        "gpus": request.gpus,
        "policies": list(request.policies),
        "max_staleness": request.max_staleness,
        "objective": objective.name,
        "tokens": objective.tokens,
        "budget_usd": objective.budget_usd,
        "usd_per_gpu_hour": objective.usd_per_gpu_hour,
        "seed": request.effort.seed,
        "samples": request.samples,
        "configurations": result.configurations,
        "simulated": len(found.points),
        "pruned": found.pruned,
        "exhaustive": found.whole,
        "plans": [
            {
                **_plan(plan, objective, base_speed),
                "file": file_name(number),
            }
            for number, plan in enumerate(result.plans, 1)
        ],
        "synchronous": _point(result.synchronous, objective, base_speed) if result.synchronous else None,
        "as_given": _point(result.own, objective, base_speed) if result.own else None,
        "why_not_as_given": why_not_own(result.own, best),
        "points": [_seen(point) for point in found.points],
    }


def file_name(number: int) -> str:
    """Of the scenario of the plan of this rank: `plan.toml`, `plan_2.toml`, ..."""
    return BEST if number == 1 else BEST.replace(".", f"_{number}.")


def _point(point: Point, objective: Objective, base_speed: float | None) -> Data:
    """What one simulated configuration says."""
    choice, report = point.choice, point.report
    speed = throughput_of(report) or 0.0
    stale = report["staleness"]
    ranks = choice.trainer_tensor_parallel * choice.trainer_pipeline_parallel
    return {
        "split": split(choice),
        "gpus": choice.gpus,
        "rollout_gpus": choice.rollout_gpus,
        "trainer_gpus": choice.trainer_gpus,
        "rollout_share": rollout_share(choice),
        "replicas": choice.rollout_gpus // choice.engine_tensor_parallel,
        "engine_tensor_parallel": choice.engine_tensor_parallel,
        "trainer_data_parallel": choice.trainer_gpus // ranks,
        "trainer_tensor_parallel": choice.trainer_tensor_parallel,
        "trainer_pipeline_parallel": choice.trainer_pipeline_parallel,
        "policy": choice.schedule.name,
        "parameters": {key: str(value) for key, value in choice.schedule.parameters},
        "max_staleness": choice.schedule.staleness,
        "max_concurrent_groups": choice.schedule.concurrency,
        "throughput_tokens_per_s": speed,
        "estimate_tokens_per_s": point.estimate.throughput,
        "bound_tokens_per_s": point.estimate.bound,
        "trainer_alone_tokens_per_s": point.estimate.trainer,
        "rollout_alone_tokens_per_s": point.estimate.rollout,
        "speedup": speed / base_speed if base_speed else None,
        "step_time_s": report["step_time_s"]["mean"],
        "staleness_mean": stale["mean"],
        "staleness_max": stale["max"],
        "usd_per_million_tokens": objective.usd_per_million(choice, speed) if speed else None,
        "hours_to_tokens": objective.seconds(speed) / 3600.0 if speed else None,
        "usd_to_tokens": objective.total_usd(choice, speed) if speed else None,
        "bottleneck": report["bottleneck"],
        "limit": limit(report),
        "utilisation": report["utilisation"],
    }


def _plan(plan: Plan, objective: Objective, base_speed: float | None) -> Data:
    return {
        **_point(plan.point, objective, base_speed),
        "throughput_low": plan.throughput.low,
        "throughput_high": plan.throughput.high,
        "throughput_samples": list(plan.samples),
        "ratio_to_best_low": plan.against_best.low,
        "ratio_to_best_high": plan.against_best.high,
        "told_apart_from_best": not same(plan.against_best),
        "more_rollout": _margin(plan.more_rollout),
        "more_trainer": _margin(plan.more_trainer),
    }


def _margin(margin: Margin) -> Data:
    return {"gpus": margin.gpus, "gain": margin.gain}


def _seen(point: Point) -> Data:
    """One row of what the search simulated."""
    return {
        **point.choice.values(),
        "throughput_tokens_per_s": throughput_of(point.report),
        "estimate_tokens_per_s": point.estimate.throughput,
        "staleness_mean": staleness_of(point.report),
        "staleness_max": point.report["staleness"]["max"],
        "bottleneck": point.report["bottleneck"],
    }
