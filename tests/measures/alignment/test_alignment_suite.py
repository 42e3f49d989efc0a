"""Alignment, held by the suite of measures."""

from __future__ import annotations

from memsweep.measures.alignment import Alignment
from memsweep.testing import MeasureSuite


class TestAlignment(MeasureSuite):
    measure = "alignment"
    config = Alignment.Config(alignment_every=10)
