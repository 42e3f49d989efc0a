"""Claims: what a study's results say of what was claimed, of published verdicts and of its own comparisons of cells.

``published`` puts published verdicts beside ours, ``published_tables`` and ``tables`` show both kinds of claims,
``section`` says what they are. ``cells`` tests claims that compare cells, ``conclusions`` says what the tests show.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("claims")
class ClaimsBesideResults(Analysis):
    """Claims beside results: comparisons of cells, tested over seeds, and published verdicts beside ours."""

    section = "memsweep.analyses.claims.section:sections"
