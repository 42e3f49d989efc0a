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
    """As share of the test sequences, with gradients as three; the measurement of memory has no live row.

    The distance of two sums of modes counts as two evaluations, because it has twice the modes.
    """
    loss_class, counted = ExactLoss if activation == "linear" else SampledLoss, [0.0]
    config = trial(
        model={"activation": activation, "width": 2},
        training={"steps": 2, "seeds": 5, "first_seed": 1},
        perturbation={"radii": RadiiConfig(from_=1e-3, to=1.0, count=11), "test_size": 1024, "starts": 2},
    )

    def counting(original: Any, times: float) -> Any:
        def call(self: Any, model: Any, weights: Any, other: Any, data: Any, live: Any = None) -> torch.Tensor:
            encoder, drawn = weights["encoder_weight"], data if times > 0 else other
            if encoder.ndim == 4 and live is not None and live.any():  # replicas, copies, width, inputs
                share = drawn.inputs.shape[0] / 1024 if activation == "tanh" else 1.0
                gradient = torch.is_grad_enabled() and encoder.requires_grad
                counted[0] += encoder.shape[0] * encoder.shape[1] * share * abs(times) * (3 if gradient else 1)
            found: torch.Tensor = original(self, model, weights, other, data, live)
            return found

        return call

    monkeypatch.setattr(loss_class, "loss", counting(loss_class.loss, -1.0))
    monkeypatch.setattr(loss_class, "distance", counting(loss_class.distance, 2.0 if activation == "linear" else 1.0))
    run_trial(config, RunOptions(padded=False))
    assert counted[0] / 5 == pytest.approx(cost.evaluations(config), rel=0.02)
