"""Sharpness, held by the suite of measures."""

from __future__ import annotations

from memsweep.measures.sharpness import Sharpness
from memsweep.testing import MeasureSuite


class TestSharpness(MeasureSuite):
    measure = "sharpness"
    config = Sharpness.Config(sharpness_every=10)
