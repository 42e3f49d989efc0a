"""Learning rates: which of them train, and how the best one follows from the sizes of a model and its memory.

``curves`` are those of the loss against the rate, and ``charts`` makes charts of them. ``rule`` fits and tests the best
rate across sizes, ``ceilings`` finds the highest rate that trains; ``tables`` shows both, ``section`` reports all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis

if TYPE_CHECKING:
    from memsweep.report.analysis.losses import LossRow
    from memsweep.report.naming.conditions import Labels


@register_analysis("rates")
class Rates(Analysis):
    """How the best learning rate follows from width and horizon, and the highest one that trains."""

    section = "memsweep.analyses.rates.section:sections"

    @classmethod
    def asks_for_losses(cls, trained: Sequence[LossRow], labels: Labels) -> bool:
        """Where the study has curves over rates."""
        from memsweep.analyses.rates.curves import rate_studies

        return bool(rate_studies(trained, labels))
