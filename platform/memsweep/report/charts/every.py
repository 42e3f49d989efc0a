"""The charts of a report by the part that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsweep.report.analysis.contents import BALLS, Contents
from memsweep.report.charts.curves import error_charts, gradient_charts, memory_charts, training_charts, trial_charts
from memsweep.report.charts.radius import all_slope_charts, other_charts, radius_charts
from memsweep.report.charts.ranking import ranking_sets
from memsweep.report.read.study import Study
from memsweep.report.values.chart import ChartSet
from memsweep.report.values.section import FILES, Place, Rank, Section, figured, placed


def chart_sets(contents: Contents, sections: Sequence[Section]) -> Iterator[ChartSet]:
    """The charts of all parts of a report, those of the measures among them; some are empty."""
    labels = contents.labels
    for ball in BALLS:
        part = [finding for finding in contents.findings if finding.ball == ball]
        verdicts = [finding for finding in part if finding.needs_verdict]
        yield ChartSet(f"error-{ball}", error_charts(part, labels), columns=3, paged=False)
        yield ChartSet(f"radius-{ball}", radius_charts(verdicts, labels), chosen=True)
        yield ChartSet(f"radius-{ball}-others", other_charts(verdicts, labels), chosen=True, extra=True)
        yield ChartSet(f"slopes-{ball}", all_slope_charts(verdicts, labels), columns=3, paged=False, extra=True)
    yield ChartSet("memory", memory_charts(contents.findings, labels), columns=3, paged=False)
    yield from _of(sections, Place.MEASURED)
    # Where the loss is the answer, and no other curve of it tells more, models and their training are drawn.
    trained = [] if contents.verdicts or figured(sections, Rank.INSTEAD) else contents.losses
    yield from ranking_sets(contents.losses, trained, labels)
    yield ChartSet("training", training_charts(trained, contents.measured, labels))
    yield ChartSet("gradients", gradient_charts(contents.trained, contents.measured, labels))
    yield from _of(sections, Place.LAST)
    if contents.searched is not None:
        from memsweep.report.charts.search import search_sets

        yield from search_sets(contents.study, contents.searched)


def trial_set(study: Study, identity: str) -> ChartSet:
    """The charts of one trial."""
    return ChartSet(f"trial-{identity}", trial_charts(study, identity))


def _of(sections: Sequence[Section], place: Place) -> Iterator[ChartSet]:
    """The charts of the sections at a place among the files."""
    for one in placed(sections, FILES, place):
        yield ChartSet(one.drawn, one.charts, columns=one.columns, chosen=one.chosen, sectioned=one.sectioned)
