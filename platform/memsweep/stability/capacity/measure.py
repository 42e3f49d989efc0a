"""The capacity of trained replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema.trial import RadiiConfig, TrialConfig
from memsweep.data.task import as_read
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.state.trained import TrainedEnsemble
from memsweep.models.base import Model, Part, Weights, as_layer, as_linear
from memsweep.stability.capacity.block import STEPS, block_values, singular_values, steps_of
from memsweep.stability.capacity.linear import LinearSystem
from memsweep.stability.capacity.truncation import WIDEST, truncation_errors
from memsweep.stability.evaluation import metrics_of, worst_weights
from memsweep.stability.measure import Measurement, with_table
from memsweep.stability.perturbation.ball import ALL, ENTRYWISE
from memsweep.stability.rounding.numbers import fixed
from memsweep.streams import TEST, Stream

TABLE = "singular_values"
BLOCK, HANKEL = "block", "hankel"
"""Maps from the past to the future: over the horizon, of any model; over all time, of a linear layer that is stable."""
ROUNDED, PUSHED = "{}_bits", "radius_{:g}"
"""After the name of the block, or of the task's metric: with rounded weights, and with weights that were moved, by
chance for the block, by the worst push that a search finds for the metric."""
ROBUST = f"{BLOCK}_robust_{{:g}}"
"""By index the least share of the largest singular value within a radius: of the model as it was trained, of the one
moved by chance, and of the one with the worst push that a search finds. The size at any share is the least of theirs.
"""
PATH = 4.0
"""The search climbs at a radius so many times smaller first: a path leads from there to the radius."""
TRUNCATION = "truncation"
"""In the place of singular values the errors of that layer's truncations, the first of which keeps no state."""


def with_capacity(
    measured: dict[int, tuple[int, Measurement]], pack: TrainedEnsemble, task_loss: TaskLoss[Data], config: TrialConfig
) -> dict[int, tuple[int, Measurement]]:
    """The measurements of an ensemble's replicas, with their capacity. Arguments and result as of ``measure``.

    The task's first metric has companions of other names: those of rounded and of moved weights.
    """
    asked, stream = config.perturbation.capacity, Stream(config.training.data_seed, TEST)
    assert asked is not None, "please report this: no capacity was asked for"

    rounded = {ROUNDED.format(bits): rounded_weights(pack, bits) for bits in asked.bits or ()}
    pushes = {
        radius: (pushed_weights(pack, radius, config.perturbation.seed), worst_push(pack, task_loss, radius, config))
        for radius in asked.radii or ()
    }
    worst_pushes = {PUSHED.format(radius): worst for radius, (_, worst) in pushes.items()}
    measured = _with_metrics(measured, pack, task_loss, rounded | worst_pushes, config)

    def rows(model: Model, weights: Weights, row: int) -> Iterator[dict[str, Any]]:
        inputs = task_loss.draw(stream, pack.replicas[row].seed, asked.sequences).inputs

        def block(moved: Tensor) -> Tensor:
            return capacity_of(model, pack.ensemble.layout.named(moved[row : row + 1]), inputs)[BLOCK]

        maps = capacity_of(model, weights, inputs)
        maps |= {f"{BLOCK}_{how}": block(moved) for how, moved in rounded.items()}
        for radius, (by_chance, worst) in pushes.items():
            pushed = f"{BLOCK}_{PUSHED.format(radius)}"
            maps[pushed] = block(by_chance)
            maps[ROBUST.format(radius)] = lowest(maps[BLOCK], maps[pushed], block(worst))
        return _rows(maps)

    return with_table(measured, pack, TABLE, rows)


def _with_metrics(
    measured: dict[int, tuple[int, Measurement]],
    pack: TrainedEnsemble,
    task_loss: TaskLoss[Data],
    moved: Mapping[str, Tensor],
    config: TrialConfig,
) -> dict[int, tuple[int, Measurement]]:
    """The measurements with the task's first metric at moved weights, by how they were moved; nan where diverged."""
    name = next((name for _, measurement in measured.values() for name in measurement.metrics), None)
    if name is None:
        return measured
    task_loss = pack.split(task_loss)
    again = {f"{name}_{how}": metrics_of(pack.ensemble, task_loss, at, config) for how, at in moved.items()}
    found = {}
    for row, (trial, one) in measured.items():
        own = {key: values[row][name] if math.isfinite(one.error) else math.nan for key, values in again.items()}
        found[row] = trial, replace(one, metrics={**one.metrics, **own})
    return found


def lowest(*blocks: Tensor) -> Tensor:
    """By index the least share of the largest singular value, ``[R]``; blocks that are not finite are left out.

    nan where the first block, the trained model's, is not finite.
    """
    first = _shares(blocks[0])
    return torch.stack([first, *(_shares(each) for each in blocks[1:] if bool(torch.isfinite(each).all()))]).amin(0)


def rounded_weights(pack: TrainedEnsemble, bits: int) -> Tensor:
    """The trained weights ``[rows, size]``, each at the nearest of 2^bits cells over +- the largest of its tensor."""
    ensemble, weights = pack.ensemble, pack.weights
    sizes, largest = torch.where(ensemble.exists, weights.abs(), 0.0), torch.zeros_like(weights)
    for segment in ensemble.layout.segments:
        columns = slice(segment.start, segment.stop)
        largest[:, columns] = sizes[:, columns].amax(1, keepdim=True)
    return _moved(pack, fixed(weights, bits, largest))


def pushed_weights(pack: TrainedEnsemble, radius: float, seed: int) -> Tensor:
    """The trained weights ``[rows, size]``, each moved by the radius up or down.

    Args:
        pack: of the weights.
        radius: of the entrywise ball of which this is a corner.
        seed: of the draws; every replica has signs of its own, the same ones at all radii.
    """
    stream, size = Stream(seed, "corner of a ball"), pack.weights.shape[1]
    drawn = [stream.generator(each.seed).random(size) < 0.5 for each in pack.ensemble.replicas]
    up = pack.ensemble.spread(drawn).to(pack.weights.device)
    return _moved(pack, pack.weights + torch.where(up, radius, -radius))


def worst_push(pack: TrainedEnsemble, task_loss: TaskLoss[Data], radius: float, config: TrialConfig) -> Tensor:
    """The weights ``[rows, size]`` of largest error that a search finds in the entrywise ball around the trained ones.

    Args:
        pack: of the weights, which move as they are stored, biases included.
        task_loss: of the error.
        radius: of the ball.
        config: any trial of the pack: its search's effort and test sequences.
    """
    grid = RadiiConfig(from_=radius / PATH, to=radius, count=2)
    how = replace(config.perturbation, radii=grid, norm=ENTRYWISE, balance=False, method="worst_case")
    ensemble = pack.ensemble
    targets = ensemble.spread([task_loss.target(replica.trial) for replica in ensemble.replicas])
    numbers = (pack.weights, targets, ALL, replace(config, perturbation=how))
    return worst_weights(ensemble, pack.split(task_loss), *numbers)


def _moved(pack: TrainedEnsemble, weights: Tensor) -> Tensor:
    """These weights, but for padding and statistics, which stay."""
    moving = pack.ensemble.exists & ~pack.ensemble.select(Part.STATISTIC)
    return torch.where(moving, weights, pack.weights)


def capacity_of(model: Model, weights: Weights, inputs: Tensor) -> dict[str, Tensor]:
    """The singular values of one model's maps from past inputs to future outputs.

    Args:
        model: any model that does not read ids.
        weights: stacked, ``[1, ...]``.
        inputs: sequences, ``[B, T, I]`` or symbols ``[B, T]``. A linear model does not depend on them.

    Returns:
        ``BLOCK`` -> those of the block at the middle of the horizon, in shares of the largest, medians over the
        sequences; of a linear model the values themselves. ``HANKEL`` -> in closed form, of a stable linear layer.
        ``TRUNCATION`` -> of such a layer of at most ``WIDEST`` states, the errors of its balanced truncations.
    """
    linear = as_linear(model)
    if linear is None:
        example = next(iter(weights.values()))
        read = as_read(inputs, model.signature.inputs, example.dtype).to(example)  # tasks draw numbers in float64
        blocks = [block_values(lambda given: model.outputs(weights, given)[0], one, STEPS) for one in read.split(1)]
        return {BLOCK: torch.stack([_shares(each) for each in blocks]).median(0).values}
    with torch.no_grad():
        before, after = steps_of(model.signature.horizon)
        kernel = linear.response(weights, model.signature.horizon).kernel[0].to("cpu", torch.float64)
        block = kernel[..., after.unsqueeze(1) - before].permute(2, 0, 3, 1)  # of [O, I, lag after, lag before]
        values = {BLOCK: singular_values(block.flatten(2).flatten(0, 1))}
        layer = as_layer(model)
        system = None if layer is None else LinearSystem.of(layer.layer(weights), 0)
        if system is not None and system.stable:
            values[HANKEL] = system.hankel
            if len(system.encoder) <= WIDEST:
                values[TRUNCATION] = truncation_errors(system)
    return values


def _shares(values: Tensor) -> Tensor:
    return values / values[0] if values[0] > 0 else values


def _rows(maps: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
    """The singular values as rows of a table: those that are more than rounding, and the largest in any case."""
    for name, values in maps.items():
        least = torch.finfo(values.dtype).eps * float(values[0])
        for index, value in enumerate(values.tolist()):
            if index == 0 or value > least:
                yield {"map": name, "index": index + 1, "value": value}
