"""Comparison: studies side by side, by the conditions that they share, and the conditions of one study.

``compare`` finds those of several studies and their differences, ``tables`` shows these, ``section`` says what they
are. ``within`` has the differences between conditions of one study.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("comparison")
class Comparison(Analysis):
    """Verdicts and losses of several studies side by side, and slopes and radii of the conditions of one, with the
    differences and their intervals.
    """

    section = "memsweep.analyses.comparison.within:section"
    studies = "memsweep.analyses.comparison.section:compared"
