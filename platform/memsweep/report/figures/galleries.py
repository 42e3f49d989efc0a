"""Every picture of a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memsweep.report.analysis.comparison import StudyComparison
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import BALLS
from memsweep.report.analysis.gradient_alignment import varied
from memsweep.report.figures.alignment import alignment_along, alignment_gallery
from memsweep.report.figures.charts import chart_gallery
from memsweep.report.figures.claims import claim_gallery
from memsweep.report.figures.error import error_gallery
from memsweep.report.figures.learning_rates import rate_gallery
from memsweep.report.figures.memory import gradient_gallery, memory_gallery
from memsweep.report.figures.panels import Gallery
from memsweep.report.figures.radius import radius_gallery
from memsweep.report.figures.search import curve_gallery, field_gallery, front_gallery, transfer_gallery
from memsweep.report.figures.training import tasks_gallery, training_gallery
from memsweep.report.naming.labels import Labels
from memsweep.report.values.section import Section

RADIUS, CLAIMS, TASKS = "radius", "claims", "tasks"
"""Names of a comparison's picture, and of the pictures of claims and of models by task."""
_MOST_PANELS = 12  # of a comparison: one picture
ALONG = "alignment-"
"""Before the name of the model's field that the alignment is drawn against."""


def comparison_gallery(comparison: StudyComparison) -> Gallery:
    """The radii of the conditions that several studies have, in the ball that was measured first: a line per study."""
    rows = [row for row in comparison.verdicts if len(row.studies) > 1]
    ball = next((ball for ball in BALLS if any(row.finding.ball == ball for row in rows)), "")
    findings = [
        replace(row.finding, condition={**row.condition, "study": row.study})
        for row in rows
        if row.finding.ball == ball
    ]
    labels = Labels([finding.condition for finding in findings])
    gallery = radius_gallery(findings, labels, RADIUS)
    return replace(gallery, panels=gallery.panels[:_MOST_PANELS])


def galleries_of(contents: Contents, sections: Sequence[Section]) -> Iterator[Gallery]:
    """The galleries of a report, some without panels; nothing is drawn yet."""
    labels = contents.labels
    for ball in BALLS:
        part = [finding for finding in contents.findings if finding.ball == ball]
        yield error_gallery(part, labels, f"error-{ball}")
        yield radius_gallery([finding for finding in part if finding.needs_verdict], labels, f"radius-{ball}")
    for section in sections:
        yield chart_gallery(section.charts, section.drawn)
    yield memory_gallery(contents.findings, labels, "memory")
    yield rate_gallery([*contents.rates, *contents.scanned], "learning-rates")
    yield tasks_gallery(contents.losses, labels, TASKS)
    # Where the loss is the answer, and no curve over learning rates tells more, the training is drawn.
    trained = [] if contents.verdicts or contents.rates else contents.losses
    yield training_gallery(trained, contents.measured, labels, "training")
    yield gradient_gallery(contents.trained, contents.measured, labels, "gradients")
    for field in varied(contents.alignment):
        file = re.sub(r"\W+", "-", field.removeprefix("model."))  # a name, whatever a stored config calls its fields
        yield alignment_along(contents.alignment, labels, field, ALONG + file)
    yield alignment_gallery(contents.alignment, labels, "alignment")
    yield claim_gallery(contents.compared, CLAIMS)
    if contents.searched is not None:
        yield transfer_gallery(contents.searched, "search-transfer")
        yield front_gallery(contents.searched, "search-front")
        yield field_gallery(contents.searched, "search-fields")
        yield curve_gallery(contents.study, contents.searched, "search-curves")
