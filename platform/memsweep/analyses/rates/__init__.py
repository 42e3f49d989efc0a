"""Learning rates: which of them train, and how the best one follows from the sizes of a model and its memory.

``rule`` fits and tests the best rate across sizes, ``ceilings`` finds the highest rate that trains; ``tables`` shows
both, ``section`` reports them. The curves of the loss against the rate are the report's own.
"""

from __future__ import annotations

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("rates")
class Rates(Analysis):
    """How the best learning rate follows from width and horizon, and the highest one that trains."""

    section = "memsweep.analyses.rates.section:sections"
