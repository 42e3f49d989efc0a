"""Every picture of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import Finding
from memsweep.report.charts.every import chart_sets, trial_set
from memsweep.report.charts.radius import radius_charts
from memsweep.report.figures.charts import gallery_of
from memsweep.report.figures.panels import PER_PICTURE, Gallery
from memsweep.report.naming.labels import Labels
from memsweep.report.read.study import Study
from memsweep.report.values.chart import ChartSet
from memsweep.report.values.section import Section

RADIUS = "radius"
"""Name of a comparison's picture."""


def comparison_gallery(findings: Sequence[Finding]) -> Gallery:
    """The radii of conditions that several studies have: a line per study."""
    labels = Labels([finding.condition for finding in findings])
    return gallery_of(ChartSet(RADIUS, radius_charts(findings, labels)), PER_PICTURE)


def galleries_of(contents: Contents, sections: Sequence[Section]) -> Iterator[Gallery]:
    """The galleries of a report, some without panels; nothing is drawn yet."""
    return map(gallery_of, chart_sets(contents, sections))


def trial_gallery(study: Study, identity: str) -> Gallery:
    """The gallery of one trial."""
    return gallery_of(trial_set(study, identity))
