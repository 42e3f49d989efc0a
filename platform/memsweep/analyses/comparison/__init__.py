"""Comparison: studies side by side, by the conditions that they share.

``compare`` finds them and their differences, ``tables`` shows these, ``section`` says what they are.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("comparison")
class Comparison(Analysis):
    """Verdicts and losses of several studies side by side, with the differences and their intervals."""

    studies = "memsweep.analyses.comparison.section:compared"
