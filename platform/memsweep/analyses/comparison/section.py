"""Several studies side by side: verdicts, losses and the settings that differ, each a section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from memsweep.analyses.comparison.compare import StudyComparison, compare_studies
from memsweep.analyses.comparison.tables import loss_table, sentences, setting_table, verdict_table
from memsweep.report.analysis.contents import BALLS, Contents, Finding
from memsweep.report.rows.verdicts import SIGNS_KEY
from memsweep.report.values.section import Section
from memsweep.report.values.side_by_side import Compared

VERDICTS = (
    "Slopes of the radius with the horizon (T) or the width (m), with 95 % intervals over seeds, and their differences "
    "from the first study that has the condition. Bold: the interval leaves 0 out."
)
LOSSES = (
    "Median over seeds [smallest, largest] at the longest horizon, and there the largest width, that all studies of a "
    "condition have. Ratio: of the geometric means over seeds, with its 95 % interval. Equal: seed by "
    "seed, but for rounding. Losses of the same trained weights are not compared."
)
_KEY = f"{SIGNS_KEY}   T, m: slope of the radius with horizon, width; [95 %]"


def compared(contents: Mapping[str, Contents], letters: Mapping[str, str]) -> Compared:
    """Says what studies share, and in what they differ; see ``memsweep.report.values.analysis.Analysis.studies``."""
    comparison = compare_studies(contents)
    heading = "Verdicts, and differences of the slopes from the first study's"
    verdicts = Section("Verdicts", VERDICTS, verdict_table(comparison, letters), heading=heading, key=_KEY)
    heading = "Final losses [smallest, largest], and their ratios to the first study's [95 %]"
    losses = Section("Final losses", LOSSES, loss_table(comparison, letters), heading=heading, key="")
    title = "Settings that differ"
    settings = Section(title, "", setting_table(comparison, letters), heading=title, key="")
    return Compared(sentences(comparison, letters), [verdicts, losses, settings], _drawn(comparison))


def _drawn(comparison: StudyComparison) -> list[Finding]:
    """Those of the conditions that several studies have, in the ball that was measured first, each with its study."""
    rows = [row for row in comparison.verdicts if len(row.studies) > 1]
    ball = next((ball for ball in BALLS if any(row.finding.ball == ball for row in rows)), "")
    return [
        replace(row.finding, condition={**row.condition, "study": row.study})
        for row in rows
        if row.finding.ball == ball
    ]
