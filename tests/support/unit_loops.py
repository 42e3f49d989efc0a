"""A unit beside a loop over time that a test writes from a paper: values and all gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from memsweep.models.deep.unit import Unit

Loop = Callable[[dict[str, Tensor], Tensor], Tensor]
"""Answers ``[T, F]`` of one replica's weights to one sequence ``[T, F]``."""


def against(unit: Unit, loop: Loop, steps: int, fixed: frozenset[str] = frozenset()) -> None:
    """Two replicas, two sequences; ``fixed`` weights have no gradient."""
    rng = np.random.default_rng(3)
    weights = {
        name: torch.from_numpy(value + 0.2 * rng.standard_normal((2, *value.shape))).requires_grad_(name not in fixed)
        for name, value in unit.initial(steps, rng).items()
    }
    x = torch.from_numpy(rng.standard_normal((2, 2, steps, unit.features))).requires_grad_()
    answers = unit.run(weights, x)
    rows = [torch.stack([loop(_own(weights, n), x[n, b]) for b in range(2)]) for n in range(2)]
    expected = torch.stack(rows)
    torch.testing.assert_close(answers, expected, rtol=1e-10, atol=1e-10)
    live = {name: weight for name, weight in weights.items() if weight.requires_grad} | {"x": x}
    outer = torch.from_numpy(rng.standard_normal(answers.shape))
    wanted = torch.autograd.grad(expected, [*live.values()], outer)
    for name, one, other in zip(live, torch.autograd.grad(answers, [*live.values()], outer), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


def _own(weights: Mapping[str, Tensor], replica: int) -> dict[str, Tensor]:
    return {name: weight[replica] for name, weight in weights.items()}
