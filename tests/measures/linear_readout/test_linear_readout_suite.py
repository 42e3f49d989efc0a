"""The capacity of states, held by the suite of measures."""

from __future__ import annotations

from memsweep.measures.linear_readout import LinearReadout
from memsweep.testing import MeasureSuite


class TestLinearReadout(MeasureSuite):
    measure = "linear_readout"
    config = LinearReadout.Config(sequences=32)
    study = {**MeasureSuite.study, "task": {"name": "memory_capacity", "horizon": 12, "delays": 3}}  # noqa: RUF012
