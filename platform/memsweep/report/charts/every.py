"""The charts of a report by the part that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.report.analysis.contents import BALLS, Contents
from memsweep.report.analysis.gradient_alignment import MEASURES, AlignmentRow, layer_name, varied
from memsweep.report.analysis.losses import largest
from memsweep.report.charts.claims import claim_charts
from memsweep.report.charts.curves import error_charts, gradient_charts, memory_charts, training_charts, trial_charts
from memsweep.report.charts.radius import all_slope_charts, other_charts, radius_charts
from memsweep.report.charts.ranking import ranking_charts, task_charts
from memsweep.report.charts.rates import rate_charts
from memsweep.report.naming.conditions import field_name, masked
from memsweep.report.read.study import Study
from memsweep.report.values.chart import ORDERED, Chart, ChartSet, chart, over_seeds, size_words, spread_point
from memsweep.report.values.section import Section


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
    for section in sections:
        yield ChartSet(section.drawn, section.charts)
    yield ChartSet("learning-rates", rate_charts([*contents.rates, *contents.scanned]), chosen=bool(contents.rates))
    yield ChartSet("tasks", task_charts(contents.losses, labels), columns=1, chosen=True)
    # Where the loss is the answer, and no curve over learning rates tells more, models and their training are drawn.
    trained = [] if contents.verdicts or contents.rates else contents.losses
    yield ChartSet("ranking", ranking_charts(trained, labels), columns=1, chosen=True)
    yield ChartSet("training", training_charts(trained, contents.measured, labels))
    yield ChartSet("gradients", gradient_charts(contents.trained, contents.measured, labels))
    yield ChartSet("alignment", _alignment(contents))
    yield ChartSet("claims", claim_charts(contents.compared), columns=1, chosen=True)
    if contents.searched is not None:
        from memsweep.report.charts.search import search_sets

        yield from search_sets(contents.study, contents.searched)


def trial_set(study: Study, identity: str) -> ChartSet:
    """The charts of one trial."""
    return ChartSet(f"trial-{identity}", trial_charts(study, identity))


def _alignment(contents: Contents) -> Iterator[Chart]:
    labels = contents.labels
    shown = {id(row) for row in largest([row.row for row in contents.alignment])}
    for row in contents.alignment:
        if id(row.row) in shown:
            title = ", ".join([*labels.names(row.condition), *size_words(row.row.width, row.row.horizon, several=True)])
            for measure in MEASURES:
                lines = {
                    layer_name(layer): over_seeds(row.table[row.table["layer"] == layer].groupby("step")[measure])
                    for layer in row.layers
                }
                yield _measure(title, "training step", measure, lines)
    for field in varied(contents.alignment):
        apart, groups = labels.without(field), dict[tuple[Any, ...], list[AlignmentRow]]()
        for row in sorted(contents.alignment, key=lambda row: float(row.condition[field] or 0)):
            rest = masked(row.condition, (field,))
            groups.setdefault((*rest.values(), row.row.width, row.row.horizon), []).append(row)
        for rows in (rows for rows in groups.values() if len(rows) > 1):
            title = ", ".join(apart.names(masked(rows[0].condition, (field,))))
            for measure in MEASURES:
                found: dict[str, list[Any]] = {}
                for row in rows:
                    for layer, measures in row.layers.items():
                        point = spread_point(float(row.condition[field]), measures[measure])
                        found.setdefault(layer_name(layer), []).append(point)
                yield _measure(title, field_name(field), measure, found)


def _measure(title: str, x: str, measure: str, lines: Mapping[str, Sequence[Any]]) -> Chart:
    log = "" if measure == "cosine" else "y"
    return chart(title, x, measure.replace("_", " "), log, lines, levels=[[1, "bptt"]], look=ORDERED)
