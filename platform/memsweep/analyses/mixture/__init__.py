"""Mixture: stacks whose layers have units of several kinds, by the share of one kind and by its place.

``section`` finds the shares and draws the charts.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("mixture")
class Mixture(Analysis):
    """What stacks of layers of two kinds reach, against the share of the rarer kind, by where its layers stand.

    Of a task's metric, else of the test loss.
    """

    section = "memsweep.analyses.mixture.section:section"
