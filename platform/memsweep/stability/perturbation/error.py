"""The perturbation error E_m(radius): the largest loss of a model whose weights move by at most the radius.

``worst_case`` is projected gradient ascent from structured and random starts: a lower bound of the supremum, which it
reaches on models with few modes (checked against exhaustive grids). ``random`` is the published protocol: the largest
of some draws on the sphere, a weak lower bound whose bias grows with width; ``random_push`` is its first version, in
which all raw rates fall by the radius, towards slower modes.

An error that is not finite is inf. E is monotone in the radius because a larger ball contains the smaller one.

Letters: P rows (replicas and dummies), K copies, R radii, S size of the flat weights.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.models.base import Part, as_linear
from memsweep.models.parameterizations.base import build
from memsweep.stability.perturbation.ascent import Ascent, Loss, finite_or_inf, first_steps, slice_size
from memsweep.stability.perturbation.ball import RECURRENT, Ball
from memsweep.streams import Stream


def radius_grid(radii: RadiiConfig) -> Tensor:
    """``[R]``: the geometric grid, float64, both ends exact."""
    return torch.from_numpy(np.geomspace(radii.from_, radii.to, radii.count))


def perturbation_error(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    ball: str,
    config: PerturbationConfig,
    budget: int | None = None,
) -> Tensor:
    """E_m at radius 0 and at every radius of the grid.

    Args:
        ensemble: of the models.
        task_loss, data, targets: of the loss.
        weights: ``[P, S]``, the trained weights.
        ball: ``recurrent``, ``weights`` or ``all`` (with ``balance``, linear models are brought to the balanced gauge
            before encoder and readout move).
        config: grid, norm, method and effort.
        budget: bytes of the perturbed copies besides the starts and the worst shift of every radius (None: see
            ``memsweep.stability.perturbation.ascent.BUDGETS``).

    Returns:
        ``[P, R + 1]``, nondecreasing along the radii, inf where any perturbed model's loss is not finite; undefined for
        dummies.
    """
    linear = as_linear(ensemble.model)
    if ball != RECURRENT and config.balance and linear is not None:
        weights = ensemble.layout.flat(linear.balanced(ensemble.layout.named(weights)))
    radii = radius_grid(config.radii).to(weights)
    worst_case = config.method == "worst_case"
    steps = config.ascent_steps if worst_case else 0

    def loss_and_ball(rows: Ensemble, live: Tensor) -> tuple[Loss, Ball]:
        def loss(shift_PKS: Tensor) -> Tensor:
            shifted = rows.layout.named(weights.unsqueeze(1) + shift_PKS)
            return task_loss.loss(rows.model, shifted, data, targets.unsqueeze(1), live)

        return loss, Ball(rows, ball, config.norm)

    # a slice must not depend on the number of real rows, so it is measured as if all were real; no row is live in the
    # measurement, because kernels take the same memory for rows that they skip, and no time
    full = replace(ensemble, real=torch.ones_like(ensemble.real))
    measured = first_steps(*loss_and_ball(full, torch.zeros_like(ensemble.real)), weights, radii[:1], steps)
    size = slice_size(measured, weights.device, budget)
    loss, moves = loss_and_ball(ensemble, ensemble.real)
    ascent = Ascent(loss, moves, radii, size)
    unperturbed = finite_or_inf(loss(torch.zeros_like(weights).unsqueeze(1)).detach())
    if worst_case:
        worst = _worst(ascent, _starts(moves, ball, ensemble, weights, config), steps)
    else:
        draws = _random(moves, weights, config.repeats, Stream(config.seed, "perturbation draws"))
        if config.method == "random_push":
            draws = _pushed(ensemble, draws)
        worst, _ = ascent.climb(draws, torch.arange(config.repeats).expand(len(radii), -1), 0)
    return torch.cat([unperturbed, worst], 1).cummax(1).values


def _worst(ascent: Ascent, starts: Tensor, steps: int) -> Tensor:
    """``[P, R]``: half of the steps from the starts, the others from the best of each radius and of its neighbours."""
    count = len(ascent.radii)
    first, shifts = ascent.climb(starts, torch.arange(starts.shape[1]).expand(count, -1), steps // 2)
    # the worst shift of one radius is a good start at the next one, and where a start got stuck, a neighbour's may not
    neighbours = (torch.arange(count).unsqueeze(1) + torch.tensor([0, -1, 1])) % count
    second, _ = ascent.climb(ascent.ball.sphere(shifts), neighbours, steps - steps // 2)
    return torch.maximum(first, second)


def _random(ball: Ball, weights: Tensor, count: int, stream: Stream) -> Tensor:
    """``[P, count, S]``: Gaussian directions on the unit sphere, the same for every replica of a bucket."""
    noise = torch.from_numpy(stream.generator().standard_normal((count, weights.shape[1]))).to(weights)
    return ball.sphere(noise.unsqueeze(0).expand(weights.shape[0], -1, -1))


def _pushed(ensemble: Ensemble, draws: Tensor) -> Tensor:
    """The draws with every diagonal recurrent weight set to -1: the direction of the instability proof."""
    pushed = draws.clone()
    for segment in ensemble.layout.segments:
        if segment.role.rate:
            pushed[..., segment.start : segment.stop] = -1.0
    return torch.where(ensemble.exists.unsqueeze(1), pushed, 0.0)


def _starts(ball: Ball, name: str, ensemble: Ensemble, weights: Tensor, config: PerturbationConfig) -> Tensor:
    """Starts that theory predicts to be bad, then random ones: ``[P, K, S]``.

    All raw rates move up, or down (towards slower or faster modes, depending on the parameterization), and recurrent
    matrices by plus or minus the identity. Where encoder and readout move, too, they grow or shrink along their own
    direction.
    """
    ones = _towards_slower(ensemble, weights)
    pushes = [ones, -ones]
    if name != RECURRENT:
        amplitudes = ensemble.select(Part.ENCODER, Part.READOUT)
        own = torch.where(amplitudes, weights, 0.0)
        pushes = [ones + own, own - ones, ones - own, -ones - own]
    random = _random(ball, weights, config.starts, Stream(config.seed, "perturbation starts"))
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


def project(ensemble: Ensemble, weights: Tensor) -> tuple[Ensemble, Tensor]:
    """The ensemble with rates in the place of clamped raw weights, and its weights ``[rows, size]``.

    So the published code does before it perturbs a model: one with the parameterization ``relu`` becomes one with
    ``direct``, the same function, whose weights may then leave the clamp. Other parameterizations stay as they are.
    """
    configs = [replica.model for replica in ensemble.replicas]
    if not all(hasattr(config, "parameterization") for config in configs):
        return ensemble, weights
    free = [build(config.parameterization).projection() for config in configs]  # None: stays as it is
    weights = weights.clone()
    for segment in ensemble.layout.segments:
        if segment.role.rate:
            columns = slice(segment.start, segment.stop)
            for row, part in enumerate(free):
                if part is not None:
                    weights[row, columns] = build(configs[row].parameterization).rate(weights[row, columns])
    replicas = tuple(
        dataclasses.replace(replica, model=dataclasses.replace(replica.model, parameterization=part.config))
        if part is not None
        else replica
        for replica, part in zip(ensemble.replicas, free, strict=True)
    )
    chosen = [replica.model for replica in replicas]
    model = type(ensemble.model).ensemble_of(
        chosen + chosen[:1] * (ensemble.rows - len(chosen)), ensemble.model.signature
    )
    return dataclasses.replace(ensemble, replicas=replicas, model=model.to(weights.dtype).eval()), weights
