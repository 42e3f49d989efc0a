"""Models whose weights move: what is climbed on some data, in which ball, and where a search begins.

What is climbed is what a radius is read from (``perturbation.reading``): the distance of the outputs from the model's
own (drift), the growth of the error (excess), or the error. Changes may also be held against a metric, which judges the
pushes that the loss was climbed to, or against the model itself (``perturbation.reference``).

Letters: P rows (replicas and dummies), K copies, C starts, S size of the flat weights.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic

import torch
from torch import Tensor

from memsweep.config.schema.trial import DRIFT, ERROR, EXCESS, METRIC, SELF, PerturbationConfig, refers_elsewhere
from memsweep.data.levels import Levels
from memsweep.data.task import Batch, on_processor
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.models.base import Part, as_linear
from memsweep.models.copies import COPIES_BUDGET, takes_copies
from memsweep.stability.perturbation.ascent import FIRST_STEP, LAST_STEP, Ascent, Loss, first_steps, slice_size
from memsweep.stability.perturbation.ball import RECURRENT, Ball
from memsweep.streams import Stream


@dataclass(frozen=True)
class Sample(Generic[Data]):
    """What a search over sequences climbs on: few of them first, then more. All of them decide at last."""

    few: Data
    more: Data


def reading_of(config: PerturbationConfig, task_loss: TaskLoss[Data]) -> str:
    """What radii are read from: the reading that is asked for, or excess where the loss knows no distance."""
    return EXCESS if config.reading == DRIFT and not task_loss.has_distance else config.reading


@dataclass(frozen=True)
class Moved(Generic[Data]):
    """The models whose weights move, around the weights ``[P, S]``."""

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
    ) -> Moved[Data]:
        """In the balanced gauge, where that is asked for."""
        if takes_copies(ensemble.model):
            budget = budget or (COPIES_BUDGET if weights.device.type == "cpu" else None)
        if refers_elsewhere(config):
            how, around = _AGAINST[config.reference], balanced(ensemble, weights, ball, config)
            return how(ensemble, task_loss, around, targets, ball, config, budget)
        return Moved(ensemble, task_loss, balanced(ensemble, weights, ball, config), targets, ball, config, budget)

    @property
    def reading(self) -> str:
        return reading_of(self.config, self.task_loss)

    @property
    def ball(self) -> Ball:
        return Ball(self.ensemble, self.name, self.config.norm)

    def ascents(self, data: Data, sample: Sample[Data] | None) -> list[Ascent]:
        """Of what is climbed: on few of the data, on more and on all of them, or on all alone."""
        if sample is None:
            return [self.ascent(data, self._size(data, self.reading), self.reading)]
        size = self._size(sample.more, self.reading)  # a loss over sequences takes them in chunks: all need no more
        few = self._size(sample.few, self.reading)
        parts = ((sample.few, few), (sample.more, size), (data, size))
        return [self.ascent(part, own, self.reading) for part, own in parts]

    def ascent(self, data: Data, size: int, reading: str) -> Ascent:
        """Of one reading, in slices of ``size`` copies."""
        return Ascent(self._loss(data, self.ensemble, self.ensemble.real, reading), self.ball, size)

    def _loss(self, data: Data, rows: Ensemble, live: Tensor, reading: str) -> Loss:
        targets, start = self.targets.unsqueeze(1), rows.layout.named(self.weights.unsqueeze(1))

        def error(shift_PKS: Tensor) -> Tensor:
            shifted = rows.layout.named(self.weights.unsqueeze(1) + shift_PKS)
            return self.task_loss.loss(rows.model, shifted, data, targets, live)

        @functools.cache
        def own() -> dict[str, Any]:
            if not isinstance(self.task_loss, SampledLoss) or not isinstance(data, Batch):
                return {}
            return {"own": self.task_loss.own_outputs(rows.model, start, data)}

        def drift(shift_PKS: Tensor) -> Tensor:
            shifted = rows.layout.named(self.weights.unsqueeze(1) + shift_PKS)
            return self.task_loss.distance(rows.model, shifted, start, data, live, **own())

        if reading == EXCESS:
            with torch.no_grad():
                unmoved = error(torch.zeros_like(self.weights).unsqueeze(1))
            return lambda shift_PKS: error(shift_PKS) - unmoved
        return error if reading == ERROR else drift

    def _size(self, data: Data, reading: str) -> int:
        # a slice must not depend on the number of real rows, so it is measured as if all were real; no row is live in
        # the measurement, because kernels take the same memory for rows that they skip, and no time
        full = replace(self.ensemble, real=torch.ones_like(self.ensemble.real))
        loss = self._loss(data, full, torch.zeros_like(self.ensemble.real), reading)
        steps = self.config.ascent_steps if self.config.method == "worst_case" else 0
        any_radius = self.weights.new_tensor([self.config.radii.from_])
        work = first_steps(loss, Ball(full, self.name, self.config.norm), self.weights, any_radius, steps)
        return slice_size(work, self.weights.device, self.budget, self._alike(data, reading, steps))

    def _alike(self, data: Data, reading: str, steps: int) -> Hashable:
        """Equal for slices of equal code and shapes, whatever the weights, the seed and the sequences are."""
        if not isinstance(data, Batch) or not isinstance(self.task_loss, SampledLoss):
            return None  # closed forms, of which there is one slice
        model, configs = self.ensemble.model, tuple(replica.model for replica in self.ensemble.replicas)
        code = (type(self), type(model), configs, model.signature, self.task_loss.task.config, reading, self.name)
        shapes = tuple((each.shape, each.dtype, each.device) for each in (data.inputs, data.targets, self.weights))
        return (*code, self.config.norm, min(steps, 2), self.task_loss.chunk, shapes)

    def zero_losses(self, data: Data) -> Tensor:
        """Losses of the same models without encoder and readout, which answer with zeros: ``[P]``."""
        silent = torch.where(self.ensemble.select(Part.RECURRENT), self.weights, 0.0).unsqueeze(1)
        with torch.no_grad():
            named = self.ensemble.layout.named(silent)
            return self.task_loss.loss(self.ensemble.model, named, data, self.targets.unsqueeze(1)).squeeze(1)

    def starts(self, count: int, signs: bool = False) -> Tensor:
        """As ``starts``, of which ``count`` are random, and as many random signs more where ``signs``."""
        return starts(self.ensemble, self.weights, self.name, self.config, count, signs)

    def draws(self) -> Tensor:
        """The draws of the random methods: ``[P, C, S]``."""
        stream = Stream(self.config.seed, "perturbation draws")
        drawn = _random(self.ball, self.weights, self.config.repeats, stream)
        return _pushed(self.ensemble, drawn) if self.config.method == "random_push" else drawn


@dataclass(frozen=True)
class MovedByItself(Moved[Data]):
    """Models whose outputs drift from their own, relative to the variance of these."""

    @property
    def reading(self) -> str:
        return DRIFT

    def _loss(self, data: Data, rows: Ensemble, live: Tensor, reading: str) -> Loss:
        return super()._loss(data, rows, live, DRIFT)


@dataclass(frozen=True)
class MovedByMetric(Moved[Data]):
    """Models whose loss is climbed, and whose error rate says how far a push has changed them."""

    @property
    def reading(self) -> str:
        return EXCESS

    def ascent(self, data: Data, size: int, reading: str) -> Ascent:
        rate = self._rate(data)
        if reading == ERROR:
            return Ascent(rate, self.ball, size)
        unmoved = rate(torch.zeros_like(self.weights).unsqueeze(1))
        loss = self._loss(data, self.ensemble, self.ensemble.real, ERROR)
        return Judged(loss, self.ball, size, lambda shift_PKS: rate(shift_PKS) - unmoved)

    def _rate(self, data: Data) -> Loss:
        """Error rates above that of the right answers."""
        levels = levels_of(self.task_loss, self.config)

        @torch.no_grad()
        def rate(shift_PKS: Tensor) -> Tensor:
            shifted = self.ensemble.layout.named(self.weights.unsqueeze(1) + shift_PKS)
            found = self.task_loss.metrics(self.ensemble.model, shifted, data)[levels.name]
            return (levels.best - found).to(shift_PKS)

        return rate


@dataclass(frozen=True)
class Judged(Ascent):
    """Ascent of a loss whose pushes are judged by another number.

    Attributes:
        judge: gives it, of the shifts without a gradient.
    """

    judge: Loss

    def climb(
        self, shifts: Tensor, radii: Tensor, steps: int, first_step: float = FIRST_STEP, last_step: float = LAST_STEP
    ) -> tuple[Tensor, Tensor]:
        """As of ``Ascent``; without a step, the judge's number of the shifts."""
        if steps:
            return super().climb(shifts, radii, steps, first_step, last_step)
        return Ascent(self.judge, self.ball, self.size).climb(shifts, radii, 0)


_AGAINST = {METRIC: MovedByMetric, SELF: MovedByItself}
"""How models move whose changes are held against another reference than the target."""


def levels_of(task_loss: TaskLoss[Any], config: PerturbationConfig) -> Levels:
    """Of the metric that changes are held against."""
    assert isinstance(task_loss, ExactLoss | SampledLoss), "please report this: a metric of an unknown loss"
    with on_processor():
        return Levels.of(task_loss.task, config)


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
