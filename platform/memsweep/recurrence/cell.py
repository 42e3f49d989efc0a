"""One step of a recurrence with gains, element by element, with its derivatives.

    h = rho sigma(a),    or exponential:    h = (1 - exp(-rho a)) sigma(a)

The activations are those of memsweep.recurrence.activations and modrelu, sigma(a) = sign(a) relu(|a| + b) with a
threshold b per unit (Arjovsky et al., arXiv 1511.06464), for which sign(0) = 0. At corners derivatives are those of
torch's own operations: sigma' is 0 for relu at 0, for hardtanh at -1 and 1, and for modrelu where the answer is 0,
which includes a = 0 whatever the threshold; so is the derivative of modrelu by b.

Letters: N leading dimension (replicas and copies), B batch, S some steps, T time, M width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.errors import did_you_mean, one_of
from memsweep.recurrence.activations import ACTIVATIONS

MODRELU = "modrelu"
CELL_ACTIVATIONS = (*ACTIVATIONS, MODRELU)
"""Activations of a cell, by name."""


@dataclass(frozen=True)
class Cell:
    """The map of a step from its pre-activation a_t = x_t + V h_{t-1}.

    h_t = rho_t sigma(a_t), or with ``exponential`` h_t = (1 - exp(-rho_t a_t)) sigma(a_t).

    Attributes:
        activation: sigma: linear, hardtanh, tanh, relu or modrelu, sign(a) relu(|a| + b).
        threshold: b of modrelu, ``[N, M]``; None for the others.
        gains: rho, ``[N, T]``; None: all are 1. Where a sequence is longer, the last gain goes on.
        exponential: the gains are rates of an exponential instead of factors.
    """

    activation: str
    threshold: Tensor | None = None
    gains: Tensor | None = None
    exponential: bool = False


@dataclass(frozen=True)
class CellGradients:
    """Gradients of a recurrence by everything except its matrix.

    Attributes:
        drive: ``[N, B, T, M]``, which is also that of the pre-activations.
        threshold, gains, before: ``[N, M]``, ``[N, T]``, ``[N, B, M]``; None where not required.
    """

    drive: Tensor
    threshold: Tensor | None
    gains: Tensor | None
    before: Tensor | None


def check_cell(cell: Cell) -> None:
    """Refuse an unknown activation, or a cell without what its activation or its exponential needs (ValueError)."""
    name = cell.activation
    if name not in CELL_ACTIVATIONS:
        allowed = one_of(CELL_ACTIVATIONS)
        raise ValueError(f"unknown activation {name!r}; allowed: {allowed}.{did_you_mean(name, CELL_ACTIVATIONS)}")
    if (name == MODRELU) != (cell.threshold is not None):
        raise ValueError(f"a threshold belongs to modrelu and to no other activation; this is {name!r}")
    if cell.exponential and cell.gains is None:
        raise ValueError("an exponential needs its rates: give gains")


def gains_of_steps(gains_NT: Tensor, steps: int) -> Tensor:
    """The gains of so many steps, ``[N, steps]``: the last one goes on where there are fewer; differentiable."""
    missing = steps - gains_NT.shape[1]
    if missing <= 0:
        return gains_NT[:, :steps]
    return torch.cat([gains_NT, gains_NT[:, -1:].expand(-1, missing)], 1)


@dataclass(frozen=True)
class CellValue:
    """A cell's function at some steps, and what it is value of: h = factor * answer.

    Attributes:
        answer: sigma(a), ``[N, S, B, M]``.
        factor: rho or 1 - exp(-rho a), broadcastable to that; None: 1.
    """

    answer: Tensor
    factor: Tensor | None

    @property
    def states(self) -> Tensor:
        return self.answer if self.factor is None else self.factor * self.answer


def evaluate(a_NSBM: Tensor, cell: Cell, gains_NS: Tensor | None) -> CellValue:
    """Function of pre-activations ``[N, S, B, M]`` whose steps have these gains; differentiable."""
    answer = activated(a_NSBM, cell)
    if gains_NS is None:
        return CellValue(answer, None)
    rho = gains_NS[:, :, None, None]
    return CellValue(answer, -torch.expm1(-rho * a_NSBM) if cell.exponential else rho)


def activated(a_NSBM: Tensor, cell: Cell) -> Tensor:
    """sigma of pre-activations ``[N, ..., M]`` of four dimensions, without gains; differentiable."""
    match cell.activation:
        case "hardtanh":
            return a_NSBM.clamp(-1.0, 1.0)
        case "tanh":
            return a_NSBM.tanh()
        case "relu":
            return a_NSBM.relu()
        case "modrelu":
            assert cell.threshold is not None
            return a_NSBM.sign() * (a_NSBM.abs() + cell.threshold[:, None, None, :]).relu()
    return a_NSBM


def activation_slopes(a_NSBM: Tensor, answer_NSBM: Tensor, cell: Cell) -> Tensor:
    """sigma'(a), ``[N, S, B, M]``."""
    match cell.activation:
        case "hardtanh":
            return (a_NSBM.abs() < 1).to(a_NSBM.dtype)
        case "tanh":
            return 1 - answer_NSBM.square()
        case "relu":
            return (a_NSBM > 0).to(a_NSBM.dtype)
        case "modrelu":
            return (answer_NSBM != 0).to(a_NSBM.dtype)
    return torch.ones_like(a_NSBM)


def threshold_slopes(value: CellValue) -> Tensor:
    """dh / db of modrelu, ``[N, S, B, M]``."""
    sign = value.answer.sign()
    return sign if value.factor is None else value.factor * sign


def gain_slopes(a_NSBM: Tensor, cell: Cell, value: CellValue) -> Tensor:
    """dh / drho, ``[N, S, B, M]``."""
    if value.factor is None or not cell.exponential:
        return value.answer
    return a_NSBM * (1 - value.factor) * value.answer


def slopes(a_NSBM: Tensor, cell: Cell, gains_NS: Tensor | None, value: CellValue) -> Tensor:
    """dh / da, ``[N, S, B, M]``."""
    sigma = activation_slopes(a_NSBM, value.answer, cell)
    if value.factor is None or gains_NS is None:
        return sigma
    if not cell.exponential:
        return value.factor * sigma
    return value.factor * sigma + gains_NS[:, :, None, None] * (1 - value.factor) * value.answer
