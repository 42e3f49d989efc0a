"""Radii by a metric and by the model itself, against closed forms, of a module that was never trained.

The module answers a cue with a linear map of the symbol before it, one gain for each of ``KINDS`` symbols. In the
entrywise ball the worst push takes its radius from every gain and gives it to all other answers: symbol k is answered
wrong from half its gain on. The outputs move by the radius in each of the answers, whatever the symbol.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import memsweep as ms
from memsweep import registry
from memsweep.stability.verdict.radius import THRESHOLDS
from paths import ROOT

KINDS = 16
GAINS = [0.2, 0.3, *[1.0] * (KINDS - 2)]
TASK = {"name": "selective_copying", "noise": 0, "length": 1, "symbols": KINDS}
SETTINGS = {
    "perturbation.balls": ["all"],
    "perturbation.norm": "entrywise",
    "perturbation.test_size": 2048,
    "perturbation.radii": {"from": 0.05, "to": 0.3, "count": 4},
    "perturbation.starts": 1,
    "perturbation.ascent_steps": 4,
    "perturbation.stronger_every": 0,
}


class Answers(nn.Module):
    """Answers of the symbol one step before."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(KINDS + 2, KINDS, bias=False)
        with torch.no_grad():
            self.read.weight.zero_()
            self.read.weight[:, 1:-1] = torch.diag(torch.tensor(GAINS))

    def forward(self, x: Tensor) -> Tensor:
        return self.read(nn.functional.pad(x, (0, 0, 1, 0))[:, :-1])


def radii(reference: str, **settings: Any) -> np.ndarray:
    found = ms.measure(Answers(), TASK, SETTINGS | settings, reference=reference)
    rows = found.radii.set_index("threshold")
    assert (rows["reading"] == reference).all()
    assert rows["valid"].all()
    return rows.loc[list(THRESHOLDS), "radius"].to_numpy(float)


def test_by_metric_the_radius_is_where_so_many_answers_turn_wrong() -> None:
    """One symbol of 16 is 6.7 % of the way to chance: beyond 1 and 3 %. Two are beyond 10 %."""
    np.testing.assert_allclose(radii("metric"), [0.1, 0.1, 0.15], rtol=3e-3)


def test_a_metric_of_another_type_than_the_weights_gives_the_same_radii(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.discover(ROOT)
    task = registry.get(registry.TASK, str(TASK["name"]))
    own = task.metrics

    def in_float64(self: Any, outputs: Tensor, batch: Any) -> dict[str, Tensor]:
        return {name: value.double() for name, value in own(self, outputs, batch).items()}

    monkeypatch.setattr(task, "metrics", in_float64)
    np.testing.assert_allclose(radii("metric", **{"training.dtype": "float32"}), [0.1, 0.1, 0.15], rtol=3e-3)


def test_by_itself_the_radius_is_where_the_outputs_drift_by_a_share_of_their_variance() -> None:
    """Each of the answers moves by the radius; the frequencies of 2,048 symbols leave 3 % to chance."""
    squares = np.square(GAINS)
    variance = squares.mean() - squares.sum() / KINDS**2
    np.testing.assert_allclose(radii("self"), np.sqrt(np.array(THRESHOLDS) * variance / KINDS), rtol=0.02)
