"""Layers with drawn weights and inputs, and what a way of computing them answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

MODELS = 3


def drawn_layer(unit: Any, batch: int, horizon: int, dtype: torch.dtype) -> list[Tensor]:
    """The weights of three units by its roles, then inputs and gradients of the answers ``[N, B, T, F]``."""
    rng = np.random.default_rng(1)
    starts = [unit.initial(horizon, rng) for _ in range(MODELS)]
    weights = [
        np.stack([start[name] + 0.3 * rng.standard_normal(start[name].shape) for start in starts])
        for name in unit.roles()
    ]
    series = [rng.standard_normal((MODELS, batch, horizon, unit.features)) for _ in range(2)]
    return [torch.from_numpy(each).to(dtype) for each in (*weights, *series)]


def found(way: Any, unit: Any, given: list[Tensor]) -> list[Tensor]:
    """Answers, and their gradients by weights and inputs."""
    *live, outer = [each.clone().requires_grad_() for each in given]
    answers = way(unit, dict(zip(unit.roles(), live[:-1], strict=True)), live[-1])
    return [answers.detach(), *torch.autograd.grad(answers, live, outer)]
