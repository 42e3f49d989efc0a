"""Memory over inputs by lag, and the reach of each condition."""

from __future__ import annotations

from collections.abc import Iterator

from memsweep.measures.memory_over_inputs.reach import SHARE, last_lag, reach_of
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, Spread, largest
from memsweep.report.naming.numbers import percent
from memsweep.report.values.chart import Chart, chart, over_seeds
from memsweep.report.values.section import Glance, Section
from memsweep.report.values.table import Cell, spread_cell

WORDS = (
    "How the last output depends on the input so many steps before: the norm ‖∂y(T) / ∂x(T − k)‖ along test sequences. "
    "A model whose decay is a function of the input keeps some inputs and forgets others, so the typical sequence and "
    "the largest differ; the largest of some sequences is a lower bound of the worst case over all inputs. Of a linear "
    "model all are one. Medians over seeds, the band of the typical one over all."
)
_REACH = (
    "Reach: the longest lag at which the typical derivative of the last output by an input is at least "
    f"{percent(SHARE)} of its largest; ≥ where it is so at the last lag, the horizon minus 1."
)


def section(contents: Contents) -> Section:
    """A chart of each condition at its largest size, and its reach."""
    measured = contents.measured

    def value(row: LossRow) -> Spread:
        return reach_of(measured, row.identities)

    def cell(row: LossRow) -> Cell:
        last = last_lag(measured, row.identities)
        return spread_cell(value(row), lambda lag: f"{'≥ ' if lag >= last else ''}{lag:g}")

    reach = Glance("reach", "reach", _REACH, value, unit="steps", cell=cell)
    return Section("Memory over inputs", WORDS, charts=[*_charts(contents)], glance=[reach])


def _charts(contents: Contents) -> Iterator[Chart]:
    for row in largest(contents.trained):
        part = contents.measured.of("memory_over_inputs", row.identities)
        if not part.empty:
            by_lag = part.groupby("lag")
            lines = {
                "the typical sequence": over_seeds(by_lag["median"]),
                "90 % are below": [point[:2] for point in over_seeds(by_lag["high"])],
                "the largest found": [point[:2] for point in over_seeds(by_lag["largest"])],
            }
            title = ", ".join(contents.labels.names(row.condition))
            yield chart(title, "lag (steps)", "derivative of the last output", "y", lines)
