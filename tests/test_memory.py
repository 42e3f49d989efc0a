"""The memory function read off a step answer is the closed form of linear models."""

from __future__ import annotations

import torch

from engine import model_config, stacked
from memsweep.stability.memory import memory_function, step_memory


def test_step_answers_give_the_impulse_response():
    (ensemble,), _ = stacked([model_config(width=4)])
    weights = ensemble.layout.named(ensemble.initial[:1])
    weights["encoder_bias"] += 0.1  # the answer to the biases alone is no memory
    weights["readout_bias"] += 0.3
    exact = memory_function(ensemble.model, weights, 20)
    torch.testing.assert_close(step_memory(ensemble.model, weights, 20), exact, rtol=1e-8, atol=1e-12)
