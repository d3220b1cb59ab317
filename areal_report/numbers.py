"""Numbers as people read them; "-" where nothing was measured."""

MISSING = "-"


def seconds(value: float | None) -> str:
    """`4.32 s`, `7.1 min`, `2.05 h`."""
    if value is None:
        return MISSING
    for limit, unit, size in ((120.0, "s", 1.0), (7200.0, "min", 60.0)):
        if value < limit:
            return f"{value / size:.3g} {unit}"
    return f"{value / 3600.0:.3g} h" if value < 3.6e6 else f"{value / 3600.0:,.0f} h"


def count(value: float | None) -> str:
    """`812`, `47.8 k`, `1.2 M`."""
    if value is None:
        return MISSING
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            size = 1e3 if unit == "k" else limit
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g}"


def share(value: float | None) -> str:
    """`63 %`."""
    return MISSING if value is None else f"{100.0 * value:.3g} %"


def plain(value: float | None) -> str:
    """Three digits."""
    return MISSING if value is None else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """`2.77x`."""
    return MISSING if value is None else f"{value:.3g}x"


def shares(values: dict[str, float]) -> str:
    """`rollouts 12 %, straggler 3 %`, the largest first; nothing below half a percent."""
    named = sorted(values.items(), key=lambda item: -item[1])
    shown = [f"{name} {share(value)}" for name, value in named if value >= 0.005]
    return ", ".join(shown) or "none"
