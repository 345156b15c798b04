"""The results of the Python API: as the command's table in text and HTML, and as a data frame."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from opcost.html_text import paragraph
from opcost.reporting import markup
from opcost.reporting.markup import Chart
from opcost.reporting.tables import LINES_SHOWN, Page, Shown, page_width

if TYPE_CHECKING:
    from pandas import DataFrame

Found = TypeVar("Found")

ANY_WIDTH = 10**6
"""Characters of a page that scrolls: no column is left out for its width."""


@dataclass(frozen=True)
class View(Generic[Found]):
    """How a result is seen: the function that prints it for the command, its data frame, and a small chart of it."""

    show: Callable[[Found], object]
    frame: Callable[[Found], DataFrame]
    chart: Callable[[Found], Chart | None]


@dataclass(frozen=True, repr=False)
class Result(Generic[Found]):
    """The result of a call; ``found`` has all that is known, in SI units.

    As a text, and in a notebook, it is the table that the command prints, with its flags and notes, of at most 15 rows.
    """

    found: Found
    view: View[Found]

    def to_frame(self) -> DataFrame:
        """Return all rows as a data frame in SI units; unknown is NaN or None."""
        return self.view.frame(self.found)

    def __getitem__(self, columns: Any) -> Any:
        """Return a column, or a frame of several: ``result["energy_j"]`` is ``result.to_frame()["energy_j"]``."""
        return self.to_frame()[columns]

    def __len__(self) -> int:
        return len(self.to_frame())

    def __repr__(self) -> str:
        return str(self._page(page_width()))

    def _repr_html_(self) -> str:
        parts = [_html(part) for part in self._page(ANY_WIDTH).parts]
        chart = self.view.chart(self.found)
        return "".join(parts if chart is None or not chart.drawings else [_image(chart), *parts])

    def _page(self, width: int) -> Page:
        return Page(width, LINES_SHOWN).keep(lambda: self.view.show(self.found))


def _html(part: Shown | str) -> str:
    if not isinstance(part, Shown):
        return paragraph(part)
    table = [replace(column, text=cells.__getitem__) for column, cells in part.drawn.columns]
    return markup.table(table, range(len(part.drawn.columns[0][1])), part.title)


def _image(chart: Chart) -> str:
    """Return a chart as an image, so that its style does not reach the notebook."""
    title = "; ".join(drawing.label for drawing in chart.drawings)
    source = base64.b64encode(markup.svg_file("", chart.drawings, chart.legend)).decode()
    width = f"max-width: {markup.WIDTH * min(2, len(chart.drawings)):g}px; width: 100%"
    return markup.element("img", {"alt": title, "style": width, "src": f"data:image/svg+xml;base64,{source}"})


def frame_of(lines: Iterable[Mapping[str, object]], names: list[str] | None = None) -> DataFrame:
    import pandas

    frame: DataFrame = pandas.DataFrame(list(lines), columns=names)
    return frame
