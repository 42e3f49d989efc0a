"""Time to verdict: the core seconds that each condition took to its verdict.

``section`` makes a table of what is stored: trials, those that rounds replaced, and the time of each.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("time_to_verdict")
class TimeToVerdict(Analysis):
    """Rounds, trials and core seconds that each verdict took, in a study that ``memsweep decide`` ran.

    Trials that a later round replaced, by a longer training for example, count in the core seconds.
    """

    section = "memsweep.analyses.time_to_verdict.section:section"
