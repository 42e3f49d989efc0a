"""The steps of a unit and their derivatives, by autograd: what a unit says of them by hand must be equal.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from memsweep.models.contracts import TOLERANCES, difference
from memsweep.models.deep.unit import OnlineUnit, State, Unit, before

REPLICAS, BATCH, HORIZON = 2, 3, 6
_TOLERANCE = TOLERANCES[torch.float64]


def weights_of(unit: Unit) -> dict[str, Tensor]:
    """Weights of a stack of replicas, none of them zero: zeros hide mistakes."""
    drawn = [unit.initial(HORIZON, np.random.default_rng(seed)) for seed in range(REPLICAS)]
    noise = np.random.default_rng(5)
    result = {}
    for name in drawn[0]:
        values = np.stack([weights[name] for weights in drawn])
        result[name] = torch.from_numpy(values + 0.1 * noise.standard_normal(values.shape))
    return result


def inputs_of(unit: Unit) -> Tensor:
    """Inputs of a unit, ``[N, B, T, F]``."""
    return torch.from_numpy(np.random.default_rng(7).standard_normal((REPLICAS, BATCH, HORIZON, unit.features)))


def live_parts(unit: OnlineUnit) -> dict[str, Tensor]:
    """Parts that can be differentiated by, apart from the weights."""
    return {name: part.detach().requires_grad_() for name, part in unit.parts(weights_of(unit)).items()}


def run_by_steps(unit: Unit, weights: Mapping[str, Tensor], x_NBTF: Tensor) -> Tensor:
    """Answers, one step after the other."""
    state: State | None = None
    answers = []
    for x_NBF in x_NBTF.unbind(2):
        answer, state = unit.step(weights, x_NBF, state)
        answers.append(answer)
    return torch.stack(answers, 2)


def state_jacobian(unit: OnlineUnit, parts: Mapping[str, Tensor], x_NBTF: Tensor, states: Tensor) -> Tensor:
    """dh_t / dh_{t-1} of every step, row i the derivative of state i: ``[N, B, T, M, M]``."""
    live = states.detach().requires_grad_()
    answer = unit.advance(parts, x_NBTF, live)
    return torch.stack([derivative(answer[..., row], live) for row in range(unit.width)], -2)


def by_rows(unit: OnlineUnit, parts: Mapping[str, Tensor], x_NB1F: Tensor, states_NB1M: Tensor) -> dict[str, Tensor]:
    """The derivative of each state of a step by each row of each part: ``[N B, M, M, ...]``, by the part's name."""
    # every sequence a replica of its own, so that a gradient is one of a single step
    count = x_NB1F.shape[1]
    single = {name: part.detach().repeat_interleave(count, 0).requires_grad_() for name, part in parts.items()}
    x_S1F, state_S1M = x_NB1F.flatten(0, 1), states_NB1M.flatten(0, 1)
    answer = unit.advance(single, x_S1F[:, None], state_S1M[:, None])[:, 0, 0]
    rows = range(unit.width)
    return {name: torch.stack([derivative(answer[:, row], part) for row in rows], 1) for name, part in single.items()}


def derivative(values: Tensor, by: Tensor) -> Tensor:
    """Of each value by what it alone depends on, of the shape of ``by``; holomorphic where both are complex."""
    ones = torch.ones_like(values)
    (real,) = torch.autograd.grad(values, by, ones, retain_graph=True)
    if by.is_complex():
        return real.conj()
    if not values.is_complex():
        return real
    (imaginary,) = torch.autograd.grad(values, by, 1j * ones, retain_graph=True)
    return torch.complex(real, imaginary)


def wrong_steps(unit: Unit) -> Iterator[str]:
    """The fault of steps that are not those of the whole sequence, to follow the unit's name."""
    weights, x_NBTF = weights_of(unit), inputs_of(unit)
    with torch.no_grad():
        size = _apart(run_by_steps(unit, weights, x_NBTF), unit.run(weights, x_NBTF))
    if size > _TOLERANCE:
        yield (
            f"answers otherwise step by step than to the whole sequence (relative difference {size:.1g}): step, or "
            "advance, must do what run, or states, does at each step"
        )


def wrong_derivatives(unit: OnlineUnit) -> Iterator[str]:
    """The faults of what rules that go forward in time read of a unit, to follow its name."""
    x_NBTF, parts = inputs_of(unit), live_parts(unit)
    states = unit.states(parts, x_NBTF).detach()
    x_NB1F, states_NB1M = x_NBTF[:, :, 4:5], states[:, :, 3:4]
    size = _apart(unit.advance(parts, x_NBTF, before(states)).detach(), states)
    if size > _TOLERANCE:
        yield f"has an advance that gives other states than states does (relative difference {size:.1g})"
        return
    expected = state_jacobian(unit, parts, x_NB1F, states_NB1M).diagonal(dim1=-2, dim2=-1)
    size = _apart(unit.slope(parts, x_NB1F, states_NB1M).detach(), expected)
    if size > _TOLERANCE:
        yield (
            "has a slope that is not the diagonal of the derivative of advance by the states before (relative "
            f"difference {size:.1g})"
        )
    found = unit.immediate(parts, x_NB1F[:, :, 0], states_NB1M[:, :, 0])
    if not found.keys() == parts.keys() == unit.part_names:
        yield (
            f"has the parts {sorted(parts)}, the part_names {sorted(unit.part_names)} and an immediate of "
            f"{sorted(found)}: they must be the same"
        )
        return
    for name, own in by_rows(unit, parts, x_NB1F, states_NB1M).items():
        size = _apart(found[name].detach().flatten(0, 1), own.diagonal(dim1=1, dim2=2).movedim(-1, 1))
        if size > _TOLERANCE:
            yield (
                f"has an immediate that is not the derivative of advance by the part {name}, each state by its own row "
                f"(relative difference {size:.1g})"
            )


def _apart(found: Tensor, expected: Tensor) -> float:
    """How far two tensors are apart; infinitely, where they have other shapes."""
    return difference(found, expected) if found.shape == expected.shape else torch.inf
