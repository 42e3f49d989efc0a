"""The cost model counts the work that a search for the worst push does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine import trial
from memsweep.config.schema.trial import RadiiConfig
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.sweep.planning import cost
from memsweep.trial import RunOptions, run_trial


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_the_evaluations_of_a_search_are_counted(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As share of the test sequences, with gradients as three; the measurement of memory has no live row."""
    loss_class = ExactLoss if activation == "linear" else SampledLoss
    original, counted = loss_class.loss, [0.0]
    config = trial(
        model={"activation": activation, "width": 2},
        training={"steps": 2, "seeds": 5, "first_seed": 1},
        perturbation={"radii": RadiiConfig(from_=1e-3, to=1.0, count=11), "test_size": 1024, "starts": 2},
    )

    def loss(self: Any, model: Any, weights: Any, data: Any, targets: Any, live: Any = None) -> torch.Tensor:
        encoder = weights["encoder_weight"]
        if encoder.ndim == 4 and live is not None and live.any():  # replicas, copies, width, inputs
            share = data.inputs.shape[0] / 1024 if activation == "tanh" else 1.0
            gradient = torch.is_grad_enabled() and encoder.requires_grad
            counted[0] += encoder.shape[0] * encoder.shape[1] * share * (3 if gradient else 1)
        return original(self, model, weights, data, targets, live)

    monkeypatch.setattr(loss_class, "loss", loss)
    run_trial(config, RunOptions(padded=False))
    assert counted[0] / 5 == pytest.approx(cost.evaluations(config), rel=0.02)
