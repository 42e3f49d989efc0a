"""What pruning a linear layer costs: balanced truncation to fewer states, and its measured error.

In balanced coordinates every state is reached as easily as it is seen, by its Hankel singular value. The truncation to
k states keeps the k largest (Moore, IEEE Trans. Automatic Control 26, 1981; by square roots of the Gramians: Antoulas,
Approximation of Large-Scale Dynamical Systems, 2005, section 7.4). With singular values s_1 >= s_2 >= ... its gain
error lies between s_{k+1} and 2 (s_{k+1} + s_{k+2} + ...) (Al-Saggaf and Franklin, IEEE Trans. Automatic Control 32,
1987).

Letters: M width, I inputs, O outputs, K states that are kept, W frequencies.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from memsweep.measures.capacity.linear import LinearSystem

WIDEST = 64
"""States of a layer whose truncations are measured: each takes a system of equations at every frequency."""
_NEGLIGIBLE = 1e-6
"""A truncation whose bound is below this share of the gain is not measured, nor are those that keep more states."""
_SPACED = 64
"""Frequencies from 0 to pi, evenly spaced; as many evenly in the logarithm of their distance from 0, and from pi."""
_AROUND = (-3.0, -1.0, -0.3, 0.0, 0.3, 1.0, 3.0)
"""Frequencies around that of a mode, in units of its decay rate."""


def truncated(system: LinearSystem, states: int) -> LinearSystem:
    """The balanced truncation of a stable system to so many states: A ``[K, K]``, B ``[K, I]``, C ``[O, K]``.

    Args:
        system: any that is stable.
        states: at most as many as it has Hankel singular values above zero.
    """
    reached, seen = system.roots
    left, values, right = torch.linalg.svd(seen.mT @ reached, full_matrices=False)
    scale = values[:states].sqrt()
    into = (seen @ left[:, :states] / scale).mT
    back = reached @ right.mT[:, :states] / scale
    moved = system.matrix.unsqueeze(1) * back if system.matrix.ndim == 1 else system.matrix @ back
    return LinearSystem(into @ moved, into @ system.encoder, system.readout @ back)


def truncation_errors(system: LinearSystem) -> Tensor:
    """The largest error of a stable system's truncations over frequencies, by the states that are kept.

    Returns:
        ``[K + 1]``: entry k is the largest singular value of the difference of both transfer functions for k states, so
        that entry 0 is the gain of the system itself. A lower bound of the error over all frequencies, because it is
        taken at some: around those of the modes, and spaced. As far as errors are more than a millionth of the gain, by
        their bound.
    """
    points = _frequencies(system)
    whole = _transfer(system, points)
    values = system.hankel
    bounds = 2.0 * values.flip(0).cumsum(0).flip(0)
    errors = [_largest(whole)]
    for states, bound in enumerate(bounds[1:].tolist(), start=1):
        if bound <= _NEGLIGIBLE * errors[0]:
            break
        errors.append(_largest(whole - _transfer(truncated(system, states), points)))
    return torch.tensor(errors, dtype=values.dtype)


def _frequencies(system: LinearSystem) -> Tensor:
    """Angles between 0 and pi, ``[W]``: around those of the modes, and from the slowest decay upwards."""
    modes = (system.matrix if system.matrix.ndim == 1 else torch.linalg.eigvals(system.matrix)).to(torch.complex128)
    rates = (1.0 - modes.abs()).clamp(min=torch.finfo(torch.float64).eps)
    around = modes.angle().abs().unsqueeze(1) + rates.unsqueeze(1) * torch.tensor(_AROUND, dtype=torch.float64)
    spaced = torch.logspace(math.log10(0.1 * float(rates.min())), math.log10(math.pi), _SPACED, dtype=torch.float64)
    even = torch.linspace(0.0, math.pi, _SPACED, dtype=torch.float64)
    return torch.cat([even, spaced, math.pi - spaced, around.flatten().clamp(0.0, math.pi)]).unique()


def _transfer(system: LinearSystem, points: Tensor) -> Tensor:
    """C (z - A)^-1 B at z = e^(i point), ``[W, O, I]``."""
    z = torch.polar(torch.ones_like(points), points)
    encoder, readout = (each.to(z.dtype) for each in (system.encoder, system.readout))
    if system.matrix.ndim == 1:
        return readout @ (encoder / (z.unsqueeze(1) - system.matrix).unsqueeze(2))
    resolvent = z.view(-1, 1, 1) * torch.eye(len(system.matrix), dtype=z.dtype) - system.matrix
    return readout @ torch.linalg.solve(resolvent, encoder)


def _largest(transfer: Tensor) -> float:
    return float(torch.linalg.matrix_norm(transfer, 2).max())
