"""HiPPO-LegS beside a loop with scipy's exponential, and beside the projection of all the past that it stands for."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from scipy.special import eval_legendre
from torch import Tensor

from memsweep.models.deep.fixed.hippo_legs import HiPPOLegSUnit
from memsweep.models.deep.residual_stack import ResidualStack
from unit_loops import against


def published(order: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B of Theorem 2, arXiv 2008.07669."""
    matrix = np.array(
        [
            [((2 * n + 1) * (2 * k + 1)) ** 0.5 if n > k else n + 1 if n == k else 0.0 for k in range(order)]
            for n in range(order)
        ]
    )
    return matrix, np.array([(2 * n + 1) ** 0.5 for n in range(order)])


def loop(order: int, w: dict[str, Tensor], x: Tensor) -> Tensor:
    """Step by step with the published A and B, and scipy's matrix exponential."""
    matrix, given = published(order)
    memory, answers = torch.zeros(len(w["encoder"]), order, dtype=x.dtype), []
    for t, x_F in enumerate(x, start=1):
        kept = scipy.linalg.expm(-matrix * np.log(t / (t - 1))) if t > 1 else np.zeros_like(matrix)
        held = np.linalg.solve(matrix, given - kept @ given)
        memory = memory @ torch.from_numpy(kept).mT + (w["encoder"] @ x_F)[:, None] * torch.from_numpy(held)
        answers.append(w["readout"] @ memory.flatten() + w["skip"] * x_F)
    return torch.stack(answers)


def test_a_unit_is_its_papers_loop_with_all_gradients() -> None:
    unit = HiPPOLegSUnit(HiPPOLegSUnit.Config(order=3), 6, 4)
    against(unit, lambda w, x: loop(3, w, x), steps=75)  # more than two pieces


def test_a_memory_is_the_projection_of_all_the_past() -> None:
    """sqrt(2 n + 1) / t times the integral of u(s) P_n(2 s / t - 1) over 0 ... t, with u constant over each step."""
    order, steps = 6, 70
    unit = HiPPOLegSUnit(HiPPOLegSUnit.Config(order=order), order, 1)
    weights = {"encoder": torch.ones(1, 1, 1).double(), "readout": torch.zeros(1, 1, order).double()}
    weights["skip"] = torch.zeros(1, 1).double()
    x = torch.randn(1, 1, steps, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = None
    for t in range(steps):
        _, state = unit.step(weights, x[:, :, t], state)
    assert state is not None
    nodes, shares = np.polynomial.legendre.leggauss(order)
    expected = np.zeros(order)
    for s, value in enumerate(x.flatten().tolist()):
        places = 2.0 * (s + 0.5 * (nodes + 1.0)) / steps - 1.0
        expected += [value * 0.5 * (shares * eval_legendre(n, places)).sum() for n in range(order)]
    expected *= np.sqrt(2.0 * np.arange(order) + 1.0) / steps
    np.testing.assert_allclose(state["memory"].flatten().numpy(), expected, rtol=1e-9, atol=1e-11)


def test_it_is_not_taken_for_a_convolution() -> None:
    config = ResidualStack.Config(unit=HiPPOLegSUnit.Config(), width=8, features=8)
    assert not ResidualStack.traits(config).linear
    (found,) = ResidualStack.Config(unit=HiPPOLegSUnit.Config(order=3), width=8).problems()
    assert "the unit hippo_legs has 3 numbers for each channel, but width is 8" in found
