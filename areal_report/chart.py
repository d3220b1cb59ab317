"""A chart of the page: a Plotly figure as plain data, with what a reader must know to read it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

Data = dict[str, Any]


class Chart(NamedTuple):
    """One chart. Colours of text, grid and background are the page's; the figure does not set them."""

    id: str
    title: str
    caption: str
    traces: list[Data]
    layout: Data
    height: int = 380
    """Pixels."""
    timelines: tuple[Data, ...] = ()
    """Runs to draw as a timeline, by the page itself, instead of `traces`."""

    def as_data(self) -> Data:
        """For the page's script."""
        return {
            "id": self.id, "traces": self.traces, "layout": self.layout, "height": self.height,
            "timelines": list(self.timelines),
        }  # fmt: skip


def axis(title: str, **more: Any) -> Data:
    """An axis with a title; more as Plotly names it."""
    return {"title": {"text": title}, "automargin": True, **more}


def vertical(x: float, colour: str, dash: str = "dash", **more: Any) -> Data:
    """A line across the whole chart."""
    line = {"color": colour, "width": 1.5, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line, **more}


def finite(values: Iterable[Any]) -> list[float]:
    """The numbers among them."""
    return [float(value) for value in values if isinstance(value, int | float)]


def percent(share: float | None) -> float | None:
    """For an axis in %."""
    return None if share is None else round(100.0 * share, 3)
