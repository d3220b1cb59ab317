"""Where the time and the tokens between two measurements went."""

from interfaces.telemetry import Usage


class UsageDifference:
    """Usage of the measured steps: totals at the end minus totals when they began."""

    def __init__(self, end: Usage | None, begin: Usage | None) -> None:
        self._end, self._begin = end, begin

    def total(self, name: str) -> float:
        """Of one of the counts in `Usage`."""
        end: float = getattr(self._end, name) if self._end else 0
        return end - (getattr(self._begin, name) if self._begin else 0)

    def kv_blocked_s(self) -> float:
        """Share-free: seconds an average replica had rollouts queued for want of KV."""
        if self._end is None:
            return 0.0
        begin = self._begin.kv_blocked_s if self._begin else 0.0
        seconds = sum(self.seconds("rollout_s").values())
        start = self._begin.at if self._begin else 0.0
        replicas = seconds / (self._end.at - start) if self._end.at > start else 0.0
        return (self._end.kv_blocked_s - begin) / replicas if replicas else 0.0

    def seconds(self, pool: str) -> dict[str, float]:
        """Of a pool, by kind."""
        end: dict[str, float] = getattr(self._end, pool) if self._end else {}
        begin: dict[str, float] = getattr(self._begin, pool) if self._begin else {}
        return {kind: value - begin.get(kind, 0.0) for kind, value in end.items()}

    def shares(self, pool: str) -> dict[str, float]:
        """Of the pool's time, by kind."""
        seconds = self.seconds(pool)
        whole = sum(seconds.values())
        return {kind: value / whole for kind, value in sorted(seconds.items())} if whole > 0 else {}

    def busy(self, pool: str) -> float | None:
        """Share of the time spent on work: not idle, not loading weights."""
        shares = self.shares(pool)
        useful = ("prefill", "decode", "recompute", "train")
        return sum(share for kind, share in shares.items() if kind in useful) if shares else None

    def idle(self, pool: str) -> dict[str, float]:
        """Share of the pool's time, by cause."""
        return {k.removeprefix("idle:"): v for k, v in self.shares(pool).items() if k.startswith("idle:")}
