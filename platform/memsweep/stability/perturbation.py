"""The perturbation error E_m(radius): the largest loss of a model whose weights move by at most the radius.

``worst_case`` climbs by projected gradient ascent from structured and random starts; it is a lower bound of the
supremum, and on models with few modes it reaches it (checked against exhaustive grids). ``random`` is the published
protocol: the largest of some draws on the sphere, a weak lower bound whose bias grows with width; ``random_push`` is
its first version, in which the raw rates do not move at random but all fall by the radius, towards slower modes.

An error that is not finite is inf. E is monotone in the radius because a larger ball contains the smaller one.

Letters: P rows (replicas and dummies), K copies (radii x starts), R radii, S size of the flat weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.config.schema import PerturbationConfig, RadiiConfig
from memsweep.learning.ensemble import Ensemble
from memsweep.learning.problem import Problem
from memsweep.models.base import Part, as_linear
from memsweep.stability.ball import RECURRENT, Ball
from memsweep.streams import Stream

SLICE_NUMBERS = 2_000_000
"""Numbers that one slice of copies may hold at a time (16 MB in float64), but always one copy of each row."""
FIRST_STEP, LAST_STEP = 2.0, 0.05
"""Ascent steps in units of the radius: the first jump across the ball, the last ones settle."""

Loss = Callable[[Tensor], Tensor]


def radius_grid(radii: RadiiConfig) -> Tensor:
    """``[R]``: the geometric grid, float64, both ends exact."""
    return torch.from_numpy(np.geomspace(radii.from_, radii.to, radii.count))


def perturbation_error(
    ensemble: Ensemble,
    problem: Problem,
    data: Any,
    weights: Tensor,
    targets: Tensor,
    ball: str,
    config: PerturbationConfig,
) -> Tensor:
    """E_m at radius 0 and at every radius of the grid.

    Args:
        ensemble: of the models.
        problem, data, targets: what the loss is measured on.
        weights: ``[P, S]``, the trained weights.
        ball: ``recurrent``, ``weights`` or ``all`` (with ``balance``, linear models are brought to the balanced gauge
            before encoder and readout move).
        config: grid, norm, method and effort.

    Returns:
        ``[P, R + 1]``, nondecreasing along the radii, inf where any perturbed model's loss is not finite.
    """
    linear = as_linear(ensemble.model)
    if ball != RECURRENT and config.balance and linear is not None:
        weights = ensemble.layout.flat(linear.balanced(ensemble.layout.named(weights)))
    radii = radius_grid(config.radii).to(weights)
    moves = Ball(ensemble, ball, config.norm)

    def loss(shift_PKS: Tensor) -> Tensor:
        shifted = ensemble.layout.named(weights.unsqueeze(1) + shift_PKS)
        return problem.loss(ensemble.model, shifted, data, targets.unsqueeze(1))

    unperturbed = _finite_or_inf(loss(torch.zeros_like(weights).unsqueeze(1)).detach())
    size = max(1, SLICE_NUMBERS // (weights.shape[0] * problem.numbers_per_model(ensemble.layout.width)))
    climb = partial(_climb, loss, moves, radii, size)
    if config.method != "worst_case":
        draws = _random(moves, weights, config.repeats, Stream(config.seed, "perturbation draws"))
        if config.method == "random_push":
            draws = _pushed(ensemble, draws)
        worst, _ = climb(draws.unsqueeze(1).expand(-1, len(radii), -1, -1), 0)
    else:
        random = _random(moves, weights, config.starts, Stream(config.seed, "perturbation starts"))
        starts = _structured(moves, ball, ensemble, weights, random)
        first, shifts = climb(starts.unsqueeze(1).expand(-1, len(radii), -1, -1), config.ascent_steps // 2)
        # what is worst at one radius is a good start at the next, and where a start got stuck a neighbour's did not
        neighbours = torch.stack([shifts, shifts.roll(1, 1), shifts.roll(-1, 1)], 2)
        second, _ = climb(
            moves.sphere(neighbours.flatten(1, 2)).unflatten(1, (len(radii), 3)),
            config.ascent_steps - config.ascent_steps // 2,
        )
        worst = torch.maximum(first, second)
    return torch.cat([unperturbed, worst], 1).cummax(1).values


def _climb(loss: Loss, ball: Ball, radii: Tensor, size: int, directions: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Ascend from unit directions ``[P, R, K, S]`` at every radius, in slices of ``size`` copies.

    Returns:
        The largest loss met at each radius ``[P, R]``, and the shift that gave it ``[P, R, S]``.
    """
    rows, _, copies, _ = directions.shape
    flat_radii = radii.repeat_interleave(copies)
    starts = directions.flatten(1, 2) * flat_radii.unsqueeze(-1)
    slices = zip(starts.split(size, 1), flat_radii.split(size), strict=True)
    found = [_ascend(loss, ball, start, radius, steps) for start, radius in slices]
    values, shifts = (torch.cat(part, 1).unflatten(1, (len(radii), copies)) for part in zip(*found, strict=True))
    best, winner = values.max(2)
    return best, shifts[torch.arange(rows).unsqueeze(1), torch.arange(len(radii)), winner]


def _ascend(loss: Loss, ball: Ball, shift: Tensor, radius: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Largest losses met on the way up from the starts ``[P, K, S]``, and where: ``[P, K]``, ``[P, K, S]``."""
    best, best_shift = shift.new_full(shift.shape[:2], -torch.inf), shift
    for step in range(steps + 1):
        climbing = step < steps
        with torch.set_grad_enabled(climbing):
            here = shift.detach().requires_grad_(climbing)
            value = loss(here)
        reached = _finite_or_inf(value.detach())
        better = reached > best
        best, best_shift = torch.where(better, reached, best), torch.where(better.unsqueeze(-1), shift, best_shift)
        if climbing:
            (gradient,) = torch.autograd.grad(value.sum(), here)
            length = radius * FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (step / max(1, steps - 1))
            shift = ball.project(shift + length.unsqueeze(-1) * ball.steepest(gradient), radius)
    return best, best_shift


def _finite_or_inf(value: Tensor) -> Tensor:
    return torch.where(torch.isfinite(value), value, torch.inf)


def _random(ball: Ball, weights: Tensor, count: int, stream: Stream) -> Tensor:
    """``[P, count, S]``: Gaussian directions on the unit sphere, the same for every replica of a bucket."""
    noise = torch.from_numpy(stream.generator().standard_normal((count, weights.shape[1]))).to(weights)
    return ball.sphere(noise.unsqueeze(0).expand(weights.shape[0], -1, -1))


def _pushed(ensemble: Ensemble, draws: Tensor) -> Tensor:
    """The draws with every diagonal recurrent weight at -1: the direction of the instability proof."""
    pushed = draws.clone()
    for segment in ensemble.layout.segments:
        if segment.role.rate:
            pushed[..., segment.start : segment.stop] = -1.0
    return torch.where(ensemble.exists.unsqueeze(1), pushed, 0.0)


def _structured(ball: Ball, name: str, ensemble: Ensemble, weights: Tensor, random: Tensor) -> Tensor:
    """Starts that theory knows to be bad, then the random ones: ``[P, K, S]``.

    All raw rates pushed up, or down (towards the slower or the faster: whichever the parameterization makes of it),
    and recurrent matrices by the identity; where encoder and readout move, too, while these grow along their own
    direction, or shrink.
    """
    ones = _towards_slower(ensemble, weights)
    pushes = [ones, -ones]
    if name != RECURRENT:
        amplitudes = ensemble.layout.select(Part.ENCODER, Part.READOUT).to(weights.device)
        own = torch.where(amplitudes, weights, 0.0)
        pushes = [ones + own, own - ones, ones - own, -ones - own]
    return torch.cat([ball.sphere(torch.stack(pushes, 1)), random], 1)


def _towards_slower(ensemble: Ensemble, weights: Tensor) -> Tensor:
    """Ones on diagonal recurrent weights, the identity on square recurrent matrices: ``[P, S]``."""
    pushes = torch.zeros_like(weights[0])
    for segment in ensemble.layout.segments:
        if segment.role.part is Part.RECURRENT:
            square = not segment.role.diagonal and len(segment.shape) == 2 and segment.shape[0] == segment.shape[1]
            push = torch.eye(segment.shape[0]).flatten() if square else torch.ones(segment.stop - segment.start)
            pushes[segment.start : segment.stop] = push.to(pushes)
    return pushes.expand_as(weights)
