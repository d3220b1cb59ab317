"""A small line plot as SVG: mean of several runs, and the range between them."""

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 205, 20, 50
INK, GRID = "#333333", "#dddddd"


class Line(NamedTuple):
    label: str
    colour: str
    runs: Sequence[dict[int, float]]
    """Values by x, all runs at the same x."""


def line_plot(lines: Sequence[Line], x_title: str, y_title: str) -> str:
    """SVG text; y from 0 to 1."""
    xs = sorted({x for line in lines for run in line.runs for x in run})
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> str:
        return f"{LEFT + wide * x / xs[-1]:.1f},{TOP + high * (1 - y):.1f}"

    def text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}" {more}>{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    ]
    for tick in range(6):
        y = TOP + high * (1 - tick / 5)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{tick / 5:.1f}", "end"))
    parts += [text(LEFT + wide * x / xs[-1], TOP + high + 18, str(x)) for x in xs]
    parts.append(text(LEFT + wide / 2, HEIGHT - 10, x_title))
    parts.append(text(16, TOP + high / 2, y_title, more=f'transform="rotate(-90 16 {TOP + high / 2})"'))
    ends = []
    for line in lines:
        low = [place(x, min(run[x] for run in line.runs)) for x in xs]
        top = [place(x, max(run[x] for run in line.runs)) for x in xs]
        mean = {x: sum(run[x] for run in line.runs) / len(line.runs) for x in xs}
        parts.append(f'<polygon points="{" ".join(low + top[::-1])}" fill="{line.colour}" opacity="0.15"/>')
        points = " ".join(place(x, mean[x]) for x in xs)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2.5"/>')
        ends.append([TOP + high * (1 - mean[xs[-1]]), line])
    floor = 0.0
    for y, line in sorted(ends, key=lambda end: end[0]):
        floor = max(floor + 17, y + 4)
        parts.append(
            f'<text x="{LEFT + wide + 8}" y="{floor:.1f}" fill="{line.colour}" font-weight="bold">{line.label}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
