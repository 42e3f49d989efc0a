"""Growth: how measured numbers depend on the width and the horizon.

``slopes`` computes the slope of the log number against the log size, ``section`` reports it.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("growth")
class Growth(Analysis):
    """How measured numbers grow with the width and the horizon: slopes of logarithms, with intervals over seeds.

    Of the task's metric, and of what a table's definition says may grow (``memsweep.sweep.store.tables.Table``).
    """

    section = "memsweep.analyses.growth.section:section"
