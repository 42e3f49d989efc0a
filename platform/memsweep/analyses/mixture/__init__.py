"""Mixture: stacks whose layers have units of several kinds, by the share of one kind and by its place.

``section`` finds the shares and draws the charts.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("mixture")
class Mixture(Analysis):
    """Accuracy of stacks of layers of two kinds, against the share of the rarer kind, by where its layers stand.

    The metric is the task's; without one it is the test loss.
    """

    section = "memsweep.analyses.mixture.section:section"
