"""Studies side by side for Python: the tables of ``memsweep report A B`` as DataFrames."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsweep.errors import MemsweepError, one_of
from memsweep.extras import need
from memsweep.report.analysis.contents import Contents
from memsweep.report.values.side_by_side import SideBySide, side_by_side
from memsweep.studies.locations import different
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.report.figures.panels import Picture

_WIDTH = 110  # letters of a printed line


def compared(studies: Sequence[tuple[Location, Contents]]) -> SideBySide:
    """Compare analysed studies; they are named by their names, or by their folders where two have one name.

    Args:
        studies: folder and contents of each; the first is the reference.

    Raises:
        MemsweepError: a study is given twice, there are fewer than two, or they were judged by different criteria.
    """
    places = different([place for place, _ in studies])
    names = [contents.study.name for _, contents in studies]
    if len({*names}) < len(names):  # of several results folders
        names = [place.uri for place in places]
    return side_by_side({name: contents for name, (_, contents) in zip(names, studies, strict=True)})


class Comparison:
    """Two or more studies side by side; made by ``memsweep.compare``. The first study is the reference.

    Each table is a new DataFrame. Printed, and in a notebook, it is the text of ``memsweep report A B``.
    """

    def __init__(self, found: SideBySide) -> None:
        self._found = found

    @property
    def names(self) -> tuple[str, ...]:
        """Of the studies, in the order given."""
        return self._found.names

    @property
    def answers(self) -> list[str]:
        """The findings of the comparison and their uncertainty, in sentences."""
        return self._found.answers

    def __getattr__(self, name: str) -> pd.DataFrame:
        """A table by its name.

        ``verdicts``: a row per condition, ball and study, with its slope and the difference to the reference's.
        ``losses``: a row per condition and study, at the largest common size. ``settings``: a row per one that differs.
        """
        tables = {} if name.startswith("_") else self._found.tables
        if name not in tables:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; its tables: {one_of(tables)}")
        return tables[name].frame()

    def figure(self) -> Picture:
        """The radii of the studies against the horizon, shared conditions, as a matplotlib ``Figure``.

        Raises:
            MemsweepError: no condition has radii in several studies.
        """
        need("matplotlib", "a figure")
        from memsweep.report.figures.charts import comparison_gallery
        from memsweep.report.figures.panels import figure_of

        gallery = comparison_gallery(self._found.drawn)
        if not gallery.panels:
            raise MemsweepError(f"there is nothing to draw: {', '.join(self.names)} share no condition with radii.")
        return figure_of(gallery, gallery.panels)

    def __repr__(self) -> str:
        from memsweep.report.terminal import comparison_text

        text = comparison_text(self._found, width=_WIDTH, colour=False)
        return "\n".join(line.rstrip() for line in text.splitlines())

    def _repr_html_(self) -> str:
        return f'<pre style="line-height: 1.2">{html.escape(repr(self))}</pre>'
