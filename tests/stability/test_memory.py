"""The memory function read off a step answer is the closed form of linear models."""

from __future__ import annotations

import numpy as np
import torch

from engine import model_config, stacked
from memsweep import registry
from memsweep.models.base import Signature
from memsweep.stability.memory_function import memory_function, step_memory
from paths import ROOT

registry.discover(ROOT)


def test_step_answers_give_the_impulse_response():
    (ensemble,), _ = stacked([model_config(width=4)])
    weights = ensemble.layout.named(ensemble.initial[:1])
    weights["encoder_bias"] += 0.1  # the answer to the biases alone is no memory
    weights["readout_bias"] += 0.3
    exact = memory_function(ensemble.model, weights, 20)
    torch.testing.assert_close(step_memory(ensemble.model, weights, 20), exact, rtol=1e-8, atol=1e-12)


def test_many_directions_are_run_some_at_a_time(monkeypatch):
    """A step of one symbol of a large alphabet is one of thousands of directions."""
    model = registry.get(registry.MODEL, "rnn")
    config = model.Config(width=4, activation="tanh")
    signature = Signature(inputs=50, outputs=2, horizon=6)
    built = model(config, signature, np.random.default_rng(0)).double()
    weights = {name: value.detach().unsqueeze(0) for name, value in built.named_parameters()}
    axes = torch.cat([torch.eye(50, dtype=torch.float64), torch.ones(1, 50, dtype=torch.float64)])
    apart = [step_memory(built, weights, 6, directions=one.unsqueeze(0)) for one in torch.cat([axes, -axes])]
    rows, run = [], model.outputs
    monkeypatch.setattr(
        model, "outputs", lambda self, held, x, *more: (rows.append(len(x)), run(self, held, x, *more))[1]
    )
    torch.testing.assert_close(step_memory(built, weights, 6), torch.stack(apart).amax(0), rtol=1e-12, atol=0.0)
    assert max(rows) < len(apart)
