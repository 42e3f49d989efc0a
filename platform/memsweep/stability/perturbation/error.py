"""The perturbation error E_m(radius), and how far a model drifts whose weights move by at most the radius.

``worst_case`` is a search by projected gradient ascent (``memsweep.stability.perturbation.search``): a lower bound of
the supremum, which it reaches on models with few modes (checked against exhaustive grids). ``random`` is the published
protocol: the largest of some draws on the sphere, a weak lower bound whose bias grows with width; ``random_push`` is
its first version, in which all raw rates fall by the radius, towards slower modes.

What is climbed, and what radii are read from, is ``perturbation.reading``
(``memsweep.stability.perturbation.moved``). A loss that is not finite is inf. Losses are monotone in the radius because
a larger ball contains the smaller one.

Letters: P rows (replicas and dummies), C starts, R radii, L limits, S size of the flat weights.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from memsweep.config.schema.trial import ERROR, EXCESS, TARGET, PerturbationConfig, RadiiConfig, refers_elsewhere
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.models.parameterizations.base import build
from memsweep.stability.perturbation.ascent import NEAR_STEP, Ascent, finite_or_inf
from memsweep.stability.perturbation.crossing import crossings
from memsweep.stability.perturbation.moved import Moved, Sample
from memsweep.stability.perturbation.search import REACH, Pushes, Search, guessed, taken
from memsweep.stability.verdict.radius import THRESHOLDS

CLOSED = 4
"""Times as many random starts where the search climbs on all data: an expected loss in closed form costs little."""
STRONGER = 2
"""Times the random starts, and as many random signs, of the search that measures what the usual one misses."""
FINALISTS = 2
"""Ascents of that search, at each radius, that go on."""
APART = 4.2
"""Curves of pictures over sequences have radii so far apart, and all starts are climbed so far apart for other curves.

A non-normal matrix has another worst push at 0.07 than at 0.02, and no path leads there.
"""


def radius_grid(radii: RadiiConfig) -> Tensor:
    """``[R]``: the geometric grid, float64, both ends exact."""
    return torch.from_numpy(np.geomspace(radii.from_, radii.to, radii.count))


@dataclass(frozen=True)
class Worst:
    """The worst pushes that were found. Losses are inf where one is not finite, and undefined for dummies.

    Attributes:
        radii: of the curve, ``[R + 1]``, the first is 0.
        errors: of the curve: those of the pushed models, ``[P, R + 1]``, nondecreasing along the radii.
        changes: of the curve: what radii are read from, in the same shape.
        weights: of the curve: the moved weights, ``[P, R + 1, S]``; in the balanced gauge, where it is taken.
        limits: of the changes, ``[P, L]``.
        crossings: the smallest radii found at which the changes reach the limits, ``[P, L]``; where none is within
            reach, the last radius that was tried.
        at_crossings: the changes there, ``[P, L]``, which are the limits where they are reached.
        errors_at_crossings: errors there.
    """

    radii: Tensor
    errors: Tensor
    changes: Tensor
    weights: Tensor
    limits: Tensor
    crossings: Tensor
    at_crossings: Tensor
    errors_at_crossings: Tensor


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
    limits: Tensor | None = None,
) -> Worst:
    """The changes and errors at radius 0 and along the grid, and the radii at which the changes reach their limits.

    Args:
        ensemble: of the models.
        task_loss, data, targets: of the loss.
        weights: ``[P, S]``, the trained weights.
        ball: ``recurrent``, ``weights`` or ``all`` (with ``balance``, linear models are brought to the balanced gauge
            before encoder and readout move).
        config: grid, norm, method, effort and reading.
        sample: what the search climbs on; None: all of the data, with more starts (see ``CLOSED``).
        budget: bytes of a slice of perturbed copies (None: see ``memsweep.stability.perturbation.ascent.BUDGETS``).
        limits: of the changes, ``[P, L]``; None: the thresholds of a verdict.
    """
    moved = Moved.of(ensemble, task_loss, weights, targets, ball, config, budget)
    if limits is None:
        limits = moved.zero_losses(data).unsqueeze(-1) * weights.new_tensor(THRESHOLDS)
    ascents = moved.ascents(data, sample)
    judge = ascents[-1]
    radii = _curve(config, moved.reading, sample).to(weights)
    if config.method == "worst_case":
        anchors = apart(config.radii) if moved.reading == ERROR else ()
        search = Search(radii, ascents, config.ascent_steps, anchors)
        pushes = search.worst(moved.starts(_count(config, sample)), limits)
    else:
        pushes = _drawn(judge, moved.draws(), radii, limits)
    errors = moved.ascent(data, judge.size, ERROR)
    unmoved = finite_or_inf(errors.loss(torch.zeros_like(weights).unsqueeze(1)).detach())
    changes, where = torch.cat([_unchanged(moved, unmoved), pushes.losses], 1).cummax(1)
    shifts = torch.cat([torch.zeros_like(pushes.shifts[:, :1]), pushes.shifts], 1)
    worst = taken(shifts, where)
    crossing = pushes.units * pushes.radii.unsqueeze(-1)
    reached = torch.where(pushes.found, limits, judge.climb(crossing, pushes.radii, 0)[0])
    own = _errors(moved, errors, unmoved, worst, changes)
    at = _errors(moved, errors, unmoved, crossing, reached)
    moved_weights = moved.weights.unsqueeze(1) + worst
    whole = torch.cat([radii.new_zeros(1), radii])
    return Worst(whole, own.cummax(1).values, changes, moved_weights, limits, pushes.radii, reached, at)


def stronger_change(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    ball: str,
    config: PerturbationConfig,
    radii: Tensor,
    found: Tensor,
    sample: Sample[Data] | None = None,
) -> Tensor:
    """What a search of several times the effort finds at some radii, to tell how much the usual one misses.

    It climbs from ``STRONGER`` times the random starts, and from as many random signs; those that lead furthest go on
    for half as many steps, twice (steps of the study, or of the default effort where that is more).

    Args:
        ensemble, task_loss, data, weights, targets, ball, config, sample: as of ``perturbation_error``.
        radii: ``[P, L]``.
        found: what the usual search has found there, ``[P, L]``.

    Returns:
        ``[P, L]``, at least what the usual search has found.
    """
    moved = Moved.of(ensemble, task_loss, weights, targets, ball, config)
    ascents = moved.ascents(data, sample)
    usual = PerturbationConfig()  # a study with little effort is measured by a search that does not have as little
    effort = replace(config, starts=max(usual.starts, config.starts))
    starts = moved.starts(STRONGER * _count(effort, sample), signs=True)
    steps, count, places = max(usual.ascent_steps, config.ascent_steps), starts.shape[1], radii.shape[1]
    copies = radii.repeat_interleave(count, 1)
    values, reached = ascents[0].climb(starts.repeat(1, places, 1) * copies.unsqueeze(-1), copies, steps)
    best = values.unflatten(1, (places, count)).topk(min(FINALISTS, count), 2).indices
    best = (best + count * torch.arange(places, device=best.device).unsqueeze(-1)).flatten(1)
    last, copies = taken(reached, best), copies.gather(1, best)
    for ascent in (ascents[0], ascents[-2] if len(ascents) > 1 else ascents[0]):
        _, last = ascent.climb(last, copies, (steps + 1) // 2, NEAR_STEP)
    judge = ascents[-1]
    worst = torch.maximum(judge.climb(last, copies, 0)[0], judge.climb(-last, copies, 0)[0])
    return torch.maximum(worst.unflatten(1, (places, -1)).amax(2), found)


def worst_at(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    ball: str,
    config: PerturbationConfig,
    sample: Sample[Data] | None = None,
) -> Tensor:
    """The moved weights, ``[P, S]``, with the largest error that a search finds at the largest radius of the grid.

    Arguments as of ``perturbation_error``; a path leads from the smaller radii of the grid to the largest.
    """
    if refers_elsewhere(config):
        config = replace(config, reference=TARGET)
    moved = Moved.of(ensemble, task_loss, weights, targets, ball, replace(config, reading=ERROR))
    search = Search(radius_grid(config.radii).to(weights), moved.ascents(data, sample), config.ascent_steps)
    _, shifts = search.at_radii(moved.starts(_count(config, sample)))
    return moved.weights + shifts[:, -1]


def _count(config: PerturbationConfig, sample: Sample[Data] | None) -> int:
    """Random starts."""
    return config.starts * (CLOSED if sample is None else 1)


def curve_places(radii: RadiiConfig, reading: str, *, closed: bool) -> list[int]:
    """Which radii of the grid have errors: all but where the curve of a mean over sequences is a picture."""
    if closed or reading == ERROR:
        return list(range(radii.count))
    return apart(radii)


def apart(radii: RadiiConfig) -> list[int]:
    """Places in the grid, both ends among them, of radii at most ``APART`` times as large as the one before."""
    growth = (radii.to / radii.from_) ** (1.0 / (radii.count - 1))
    every = max(1, int(np.log(APART) / np.log(growth)))
    return sorted({*range(0, radii.count, every), radii.count - 1})


def _curve(config: PerturbationConfig, reading: str, sample: Sample[Data] | None) -> Tensor:
    return radius_grid(config.radii)[curve_places(config.radii, reading, closed=sample is None)]


def _unchanged(moved: Moved[Data], unmoved: Tensor) -> Tensor:
    """What radii are read from, without a push: ``[P, 1]``; inf where a model has no finite error."""
    return unmoved if moved.reading == ERROR else torch.where(torch.isfinite(unmoved), 0.0, unmoved)


def _errors(moved: Moved[Data], errors: Ascent, unmoved: Tensor, shifts: Tensor, changes: Tensor) -> Tensor:
    """The errors of moved models, ``[P, N]``, of which the changes are known."""
    if moved.reading == ERROR:
        return changes
    if moved.reading == EXCESS:
        return unmoved + changes
    with torch.no_grad():
        return errors.climb(shifts, shifts.new_ones(shifts.shape[:2]), 0)[0]


def _drawn(judge: Ascent, draws: Tensor, radii: Tensor, limits: Tensor) -> Pushes:
    """The worst of draws ``[P, C, S]`` on the spheres of the radii, and the smallest radii at which one is."""

    def tried(at: Tensor) -> Tensor:
        copies = at.repeat_interleave(draws.shape[1], 1)
        values, _ = judge.climb(draws.repeat(1, at.shape[1], 1) * copies.unsqueeze(-1), copies, 0)
        return values.unflatten(1, (at.shape[1], -1))

    on_curve = radii.expand(len(draws), -1)
    losses, which = tried(on_curve).max(2)
    start = guessed(radii, losses.cummax(1).values, limits)
    at = crossings(lambda there: tried(there).amax(2), limits, start, float(radii[-1]) * REACH)
    units = taken(draws, tried(at.radii).argmax(2))
    return Pushes(losses, taken(draws, which) * on_curve.unsqueeze(-1), at.radii, at.found, units)


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
