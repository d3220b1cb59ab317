"""Two drawings as SVG text: predicted against published, and the errors by regime."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from areal_report.palette import MUTED, series
from areal_sim.validation.predict import Scored

WIDTH, HEIGHT, MARGIN = 640, 420, 60
STYLE = "<style>text{font:12px sans-serif;fill:#444}line{stroke:#ccc}</style>"


def scatter(scored: Sequence[Scored]) -> str:
    """Predicted over published, both on logarithmic axes; the diagonal is a perfect prediction."""
    values = [v for s in scored for v in (s.predicted, s.row.published)]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))

    def place(value: float) -> float:
        return (log10(value) - low) / (high - low)

    def point(published: float, predicted: float) -> tuple[float, float]:
        x = MARGIN + place(published) * (WIDTH - 2 * MARGIN)
        return x, HEIGHT - MARGIN - place(predicted) * (HEIGHT - 2 * MARGIN)

    parts = []
    for power in range(low, high + 1):
        x, y = point(10.0**power, 10.0**power)
        parts += [
            f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{MARGIN}" y2="{HEIGHT - MARGIN}"/>',
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.0f}" y2="{y:.0f}"/>',
            f'<text x="{x:.0f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{10.0**power:g}</text>',
            f'<text x="{MARGIN - 6}" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g}</text>',
        ]
    (x1, y1), (x2, y2) = point(10.0**low, 10.0**low), point(10.0**high, 10.0**high)
    parts.append(f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}" stroke="{MUTED}" stroke-dasharray="4"/>')
    parts += [_dot(*point(s.row.published, s.predicted), s) for s in scored]
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 16}" text-anchor="middle">published</text>')
    parts.append(
        f'<text x="16" y="{HEIGHT / 2:.0f}" transform="rotate(-90 16 {HEIGHT / 2:.0f})">predicted</text>'
    )
    return _svg(HEIGHT, parts)


def by_regime(scored: Sequence[Scored]) -> str:
    """The error of every row, one line a regime; the scale ends at 100 %."""
    regimes = list(dict.fromkeys(s.row.regime for s in scored))
    left, height = 230, 60 + 28 * len(regimes)

    def place(error: float) -> float:
        return left + (min(1.0, max(-1.0, error)) + 1) / 2 * (WIDTH - left - 30)

    parts = []
    for error in (-1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0):
        x = place(error)
        label = f"{error:+.0%}" if error else "0"
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="20" y2="{height - 34}"/>')
        parts.append(f'<text x="{x:.0f}" y="{height - 16}" text-anchor="middle">{label}</text>')
    for number, regime in enumerate(regimes):
        y = 34 + 28 * number
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(regime)}</text>')
        parts += [_dot(place(s.error), y, s) for s in scored if s.row.regime == regime]
    return _svg(height, parts)


def _dot(x: float, y: float, scored: Scored) -> str:
    """Filled: predicted; hollow: something was fitted on it; grey: in doubt."""
    colour = MUTED if scored.row.suspect else series(0)
    fill = "none" if scored.in_calibration else colour
    title = f"{scored.row.what}: {scored.error:+.1%}"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" fill-opacity="0.7" stroke="{colour}">'
        f"<title>{escape(title)}</title></circle>"
    )


def _svg(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
    background = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([head, STYLE, background, *parts, "</svg>", ""])
