"""What "best" means: throughput, cost or time, within a budget."""

from typing import Any, Literal, NamedTuple

from areal_sim.plan.space import Choice

Name = Literal["throughput", "cost", "time_to_tokens"]
NAMES: tuple[Name, ...] = ("throughput", "cost", "time_to_tokens")


class Objective(NamedTuple):
    """How configurations are ranked; all three grow with throughput, so a bound on it bounds the score."""

    name: Name
    tokens: float
    """Trained tokens that a budget and a time are about."""
    usd_per_gpu_hour: float | None
    budget_usd: float | None = None

    def score(self, choice: Choice, throughput: float | None) -> float:
        """Higher is better; minus infinity for what did not run or costs more than the budget."""
        if not throughput:
            return float("-inf")
        total = self.total_usd(choice, throughput)
        if self.budget_usd is not None and (total is None or total > self.budget_usd):
            return float("-inf")
        if self.name == "cost":
            cost = self.usd_per_million(choice, throughput)
            return float("-inf") if cost is None else -cost
        return throughput if self.name == "throughput" else -self.seconds(throughput)

    def seconds(self, throughput: float) -> float:
        """Until all tokens are trained."""
        return self.tokens / throughput

    def usd_per_million(self, choice: Choice, throughput: float) -> float | None:
        """Cost of a million trained tokens; None without a price."""
        if self.usd_per_gpu_hour is None:
            return None
        return choice.gpus * self.usd_per_gpu_hour / 3600.0 / throughput * 1e6

    def total_usd(self, choice: Choice, throughput: float) -> float | None:
        """Cost of all tokens; None without a price."""
        each = self.usd_per_million(choice, throughput)
        return None if each is None else each * self.tokens / 1e6


def throughput_of(report: dict[str, Any] | None) -> float | None:
    """Trained tokens per second of a report; None where nothing was measured."""
    if report is None:
        return None
    value: float | None = report["effective_throughput_tokens_per_s"]
    return value


def staleness_of(report: dict[str, Any]) -> float:
    """Mean staleness, 0 where nothing was trained."""
    return float(report["staleness"]["mean"] or 0.0)


def totals(gpus: int, objective: Objective) -> list[int]:
    """Cluster sizes to consider: all GPUs; fewer too where leaving some out may be better."""
    if objective.name != "cost" and objective.budget_usd is None:
        return [gpus]
    shares = (0.125, 0.25, 0.5, 0.75, 1.0)
    return sorted({size for share in shares if (size := int(gpus * share)) >= 2})
