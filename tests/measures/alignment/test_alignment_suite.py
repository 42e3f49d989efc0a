"""Alignment, held by the suite of measures."""

from __future__ import annotations

from memsweep.measures.alignment import Alignment
from memsweep.testing import MeasureSuite


class TestAlignment(MeasureSuite):
    measure = "alignment"
    config = Alignment.Config(alignment_every=10)
    study = MeasureSuite.study | {
        "model": {"name": "residual_stack", "width": 2, "features": 2, "layers": 2},
        "training": {**MeasureSuite.study["training"], "rule": "online_spatial", "micro_batch": 16},
        "perturbation": {"balls": [], "test_size": 16},
    }
    pack = ({},)
