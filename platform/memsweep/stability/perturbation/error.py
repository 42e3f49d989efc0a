"""The perturbation error E_m(radius): the largest loss of a model whose weights move by at most the radius.

``worst_case`` is a search by projected gradient ascent (``memsweep.stability.perturbation.search``): a lower bound of
the supremum, which it reaches on models with few modes (checked against exhaustive grids). ``random`` is the published
protocol: the largest of some draws on the sphere, a weak lower bound whose bias grows with width; ``random_push`` is
its first version, in which all raw rates fall by the radius, towards slower modes.

An error that is not finite is inf. E is monotone in the radius because a larger ball contains the smaller one.

Letters: P rows (replicas and dummies), K copies, R radii, S size of the flat weights.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.models.base import Part, as_linear
from memsweep.models.parameterizations.base import build
from memsweep.stability.perturbation.ascent import NEAR_STEP, Ascent, Loss, finite_or_inf, first_steps, slice_size
from memsweep.stability.perturbation.ball import RECURRENT, Ball
from memsweep.stability.perturbation.search import Search
from memsweep.streams import Stream

CLOSED = 4
"""Times as many random starts where the search climbs on all data: an expected loss in closed form costs little."""
STRONGER = 3
"""Times the effort of the search that measures what the usual one misses."""
FINALISTS = 4
"""Ascents of that search, of each radius, that go on to more data."""


def radius_grid(radii: RadiiConfig) -> Tensor:
    """``[R]``: the geometric grid, float64, both ends exact."""
    return torch.from_numpy(np.geomspace(radii.from_, radii.to, radii.count))


@dataclass(frozen=True)
class Sample(Generic[Data]):
    """What a search over sequences climbs on: few of them first, then more. All of them decide at last.

    Attributes:
        few, more: parts of the data.
        limits: errors at whose crossings a radius is read; the search climbs at the radii around them alone. None: at
            all radii.
    """

    few: Data
    more: Data
    limits: tuple[float, ...] | None


@dataclass(frozen=True)
class Worst:
    """The worst pushes that were found, at radius 0 and at every radius of the grid.

    Attributes:
        errors: E_m, ``[P, R + 1]``, nondecreasing along the radii, inf where any perturbed model's loss is not finite;
            undefined for dummies.
        weights: ``[P, R + 1, S]``, the moved weights that have these errors; in the balanced gauge, where it is taken.
    """

    errors: Tensor
    weights: Tensor


def perturbation_error(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    ball: str,
    config: PerturbationConfig,
    sample: Sample[Data] | None = None,
    budget: int | None = None,
) -> Worst:
    """E_m at radius 0 and at every radius of the grid, with the weights that have it.

    Args:
        ensemble: of the models.
        task_loss, data, targets: of the loss.
        weights: ``[P, S]``, the trained weights.
        ball: ``recurrent``, ``weights`` or ``all`` (with ``balance``, linear models are brought to the balanced gauge
            before encoder and readout move).
        config: grid, norm, method and effort.
        sample: what the search climbs on; None: all of the data, at all radii, with more starts (see ``CLOSED``).
        budget: bytes of a slice of perturbed copies (None: see ``memsweep.stability.perturbation.ascent.BUDGETS``).
    """
    moved = _Moved.of(ensemble, task_loss, weights, targets, ball, config, budget)
    radii = radius_grid(config.radii).to(weights)
    judge, few, more = moved.ascents(data, sample)
    unperturbed = finite_or_inf(judge.loss(torch.zeros_like(weights).unsqueeze(1)).detach())
    if config.method == "worst_case":
        starts = moved.starts(_count(config, sample))
        limits = None if sample is None else sample.limits
        worst, shifts = Search(radii, (few, few, more), judge, config.ascent_steps, limits).worst(starts)
    else:
        draws = _random(judge.ball, weights, config.repeats, Stream(config.seed, "perturbation draws"))
        if config.method == "random_push":
            draws = _pushed(ensemble, draws)
        worst, shifts = (torch.stack(each, 1) for each in zip(*(_largest(judge, draws, r) for r in radii), strict=True))
    errors, where = torch.cat([unperturbed, worst], 1).cummax(1)
    shifts = torch.cat([torch.zeros_like(shifts[:, :1]), shifts], 1)
    largest = shifts.gather(1, where.unsqueeze(-1).expand_as(shifts))
    return Worst(errors, moved.weights.unsqueeze(1) + largest)


def stronger_error(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    ball: str,
    config: PerturbationConfig,
    found: Tensor,
    limits: Tensor,
    sample: Sample[Data] | None = None,
) -> Tensor:
    """What a search of several times the effort finds at the radii that decide, to tell how much the usual one misses.

    It climbs from ``STRONGER`` times the random starts, and from as many random signs, for as many times the steps (of
    the study, or of the default effort where that is more), at the first radius beyond the smallest limit and the first
    one beyond the largest.

    Args:
        ensemble, task_loss, data, weights, targets, ball, config, sample: as of ``perturbation_error``.
        found: ``[P, R + 1]``, what the usual search has found.
        limits: ``[P, 2]``, the smallest and the largest error at whose crossing a radius is read.

    Returns:
        ``[P, R + 1]``: nan where it did not search, otherwise at least what the usual search has found.
    """
    moved = _Moved.of(ensemble, task_loss, weights, targets, ball, config)
    judge, few, more = moved.ascents(data, sample)
    beyond = (found.unsqueeze(-1) <= limits.unsqueeze(1)).sum(1).clamp(1, found.shape[1] - 1)  # [P, 2]
    grid = radius_grid(config.radii).to(weights)
    usual = PerturbationConfig()  # a study with little effort is measured by a search that does not have as little
    effort = replace(config, starts=max(usual.starts, config.starts))
    starts = moved.starts(STRONGER * _count(effort, sample), signs=True)
    steps, count = STRONGER * max(usual.ascent_steps, config.ascent_steps), starts.shape[1]
    radii = grid[beyond - 1].repeat_interleave(count, 1)
    values, reached = few.climb(starts.repeat(1, 2, 1) * radii.unsqueeze(-1), radii, steps)
    best = values.unflatten(1, (2, count)).topk(min(FINALISTS, count), 2).indices
    best = (best + count * torch.arange(2, device=best.device).unsqueeze(-1)).flatten(1)
    radii = radii.gather(1, best)
    last = reached.gather(1, best.unsqueeze(-1).expand(-1, -1, reached.shape[-1]))
    if more is not few:
        _, last = more.climb(last, radii, usual.ascent_steps, NEAR_STEP)
    worst = torch.maximum(judge.climb(last, radii, 0)[0], judge.climb(-last, radii, 0)[0])
    worst = worst.unflatten(1, (2, -1)).amax(2)
    result = torch.full_like(found, torch.nan)
    worst = torch.maximum(worst, found.gather(1, beyond))
    # where one radius is beyond both limits, both have the larger
    worst = torch.where(beyond[:, :1] == beyond[:, 1:], worst.amax(1, keepdim=True), worst)
    return result.scatter(1, beyond, worst)


def _count(config: PerturbationConfig, sample: Sample[Data] | None) -> int:
    """Random starts."""
    return config.starts * (CLOSED if sample is None else 1)


@dataclass(frozen=True)
class _Moved(Generic[Data]):
    """The models whose weights move: a loss of shifts on some data, and where the search for the worst one begins."""

    ensemble: Ensemble
    task_loss: TaskLoss[Data]
    weights: Tensor
    targets: Tensor
    name: str
    config: PerturbationConfig
    budget: int | None

    @staticmethod
    def of(
        ensemble: Ensemble,
        task_loss: TaskLoss[Data],
        weights: Tensor,
        targets: Tensor,
        ball: str,
        config: PerturbationConfig,
        budget: int | None = None,
    ) -> _Moved[Data]:
        """In the balanced gauge, where that is asked for."""
        return _Moved(ensemble, task_loss, balanced(ensemble, weights, ball, config), targets, ball, config, budget)

    def ascents(self, data: Data, sample: Sample[Data] | None) -> tuple[Ascent, Ascent, Ascent]:
        """On all data, on few and on more of them."""
        part = Sample(data, data, None) if sample is None else sample
        size = self._size(part.more)  # a loss over sequences takes them chunk by chunk: all need no more memory
        judge, more = self._ascent(data, size), self._ascent(part.more, size)
        return judge, more if part.few is part.more else self._ascent(part.few, self._size(part.few)), more

    def _loss(self, data: Data, rows: Ensemble, live: Tensor) -> Loss:
        def loss(shift_PKS: Tensor) -> Tensor:
            shifted = rows.layout.named(self.weights.unsqueeze(1) + shift_PKS)
            return self.task_loss.loss(rows.model, shifted, data, self.targets.unsqueeze(1), live)

        return loss

    def _size(self, data: Data) -> int:
        # a slice must not depend on the number of real rows, so it is measured as if all were real; no row is live in
        # the measurement, because kernels take the same memory for rows that they skip, and no time
        full = replace(self.ensemble, real=torch.ones_like(self.ensemble.real))
        loss = self._loss(data, full, torch.zeros_like(self.ensemble.real))
        steps = self.config.ascent_steps if self.config.method == "worst_case" else 0
        any_radius = self.weights.new_tensor([self.config.radii.from_])
        work = first_steps(loss, Ball(full, self.name, self.config.norm), self.weights, any_radius, steps)
        return slice_size(work, self.weights.device, self.budget)

    def _ascent(self, data: Data, size: int) -> Ascent:
        ball = Ball(self.ensemble, self.name, self.config.norm)
        return Ascent(self._loss(data, self.ensemble, self.ensemble.real), ball, size)

    def starts(self, count: int, signs: bool = False) -> Tensor:
        """As ``starts``, of which ``count`` are random, and as many random signs more where ``signs``."""
        return starts(self.ensemble, self.weights, self.name, self.config, count, signs)


def balanced(ensemble: Ensemble, weights: Tensor, ball: str, config: PerturbationConfig) -> Tensor:
    """The weights ``[P, S]`` around which a ball lies: those of linear models in the balanced gauge, if asked for."""
    linear = as_linear(ensemble.model)
    if ball == RECURRENT or not config.balance or linear is None:
        return weights
    return ensemble.layout.flat(linear.balanced(ensemble.layout.named(weights)))


def starts(
    ensemble: Ensemble, weights: Tensor, name: str, config: PerturbationConfig, count: int, signs: bool = False
) -> Tensor:
    """Starts that theory predicts to be bad, then random ones: ``[P, C, S]``, of norm 1.

    All raw rates move up, or down (towards slower or faster modes, depending on the parameterization), and recurrent
    matrices by plus or minus the identity. Where encoder and readout move, too, they grow or shrink along their own
    direction.

    Args:
        ensemble, weights: around which the ball lies.
        name: of the ball.
        config: its norm, and the seed of the draws.
        count: of the random ones.
        signs: as many random signs more.
    """
    ball = Ball(ensemble, name, config.norm)
    ones = _towards_slower(ensemble, weights)
    pushes = [ones, -ones]
    if name != RECURRENT:
        amplitudes = ensemble.select(Part.ENCODER, Part.READOUT)
        own = torch.where(amplitudes, weights, 0.0)
        pushes = [ones + own, own - ones, ones - own, -ones - own]
    stream = Stream(config.seed, "perturbation starts")
    draws = [_random(ball, weights, (1 + signs) * count, stream)]
    if signs:
        draws = [draws[0][:, :count], ball.sphere(draws[0][:, count:].sign())]
    return torch.cat([ball.sphere(torch.stack(pushes, 1)), *draws], 1)


def _largest(judge: Ascent, draws: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The largest loss of draws ``[P, C, S]`` on the sphere of a radius, ``[P]``, and its shift, ``[P, S]``."""
    values, shifts = judge.climb(draws * radius, radius.expand(draws.shape[:2]), 0)
    largest, which = values.max(1)
    return largest, shifts[torch.arange(len(shifts)), which]


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
