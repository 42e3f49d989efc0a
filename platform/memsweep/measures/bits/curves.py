"""Errors against bits, as rows of the table of errors against radii.

Letters: P rows (replicas and dummies), K numbers of bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from memsweep.config.schema.trial import ERROR, TrialConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.measures.bits.kinds import ROUNDINGS, Rounding
from memsweep.measures.bits.rounded import SEQUENCES, rounded_states_error, rounded_weights_error
from memsweep.outcome import Outcome
from memsweep.stability.evaluation import evaluated_exactly, in_groups, parts_of, rows_by_seed, rows_together
from memsweep.stability.measure import errors_taken_of
from memsweep.stability.optional import CURVES, Subject
from memsweep.streams import TEST, Stream

if TYPE_CHECKING:
    from memsweep.stability.optional import Measured

Errors = dict[int, dict[str, list[float]]]
"""Row of each real replica -> name of the rounding -> errors without rounding and at each number of bits, ``K + 1``."""


def rounded_errors(asked: Any, subject: Subject) -> Errors:
    """The errors of an ensemble's replicas under the roundings that are asked for: of weights, then of states."""
    kinds = {name: ROUNDINGS[name] for name in asked.roundings}
    of_weights = {name: kind for name, kind in kinds.items() if kind.parts}
    of_states = {name: kind for name, kind in kinds.items() if not kind.parts}
    moving = errors_taken_of(subject.pack, subject.task_loss, subject.config)
    weights = _of_weights(*moving, asked, of_weights, subject.config)
    states = _of_states(*moving, asked, of_states, subject.config)
    return {row: errors | states.get(row, {}) for row, errors in weights.items()}


def _of_weights(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    weights: Tensor,
    targets: Tensor,
    asked: Any,
    kinds: Mapping[str, Rounding],
    config: TrialConfig,
) -> Errors:
    found: Errors = {}
    for rows, part, data, _ in parts_of(ensemble, task_loss, config):
        numbers = (data, weights[rows], targets[rows])
        errors = {
            name: rounded_weights_error(
                part, task_loss, *numbers, kind, kind.bits_of(asked.bits), config.perturbation.seed
            )
            for name, kind in kinds.items()
        }
        for place, row in enumerate(rows[: len(part.replicas)]):
            if part.real[place]:
                found[row] = {name: values[place].tolist() for name, values in errors.items()}
    return found


def _of_states(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    weights: Tensor,
    targets: Tensor,
    asked: Any,
    kinds: Mapping[str, Rounding],
    config: TrialConfig,
) -> Errors:
    """On test sequences of the row's seed."""
    found: Errors = {}
    if not kinds:
        return found
    assert isinstance(task_loss, ExactLoss | SampledLoss), "please report this: states of an unknown loss"
    size = rows_together(ensemble, config)
    for seed, rows in rows_by_seed(ensemble).items():
        count = min(SEQUENCES, config.perturbation.test_size)
        batch = task_loss.draw(Stream(config.training.data_seed, TEST), seed, count)
        for own, taken in in_groups(rows, size):
            part = ensemble.part(own, size)
            for name, kind in kinds.items():
                rng = Stream(config.perturbation.seed, "rounding of states").generator(seed)
                numbers = (batch, weights[taken], targets[taken], kind, kind.bits_of(asked.bits), rng)
                errors = rounded_states_error(part, task_loss, *numbers).tolist()
                for place, row in enumerate(own):
                    found.setdefault(row, {})[name] = errors[place]
    return found


def curve_rows(asked: Any, errors: Mapping[str, Sequence[float]], config: TrialConfig) -> Iterator[dict[str, Any]]:
    """The rows of one replica, a row for each number of bits."""
    for name, values in errors.items():
        kind = ROUNDINGS[name]
        exact = bool(kind.parts) and evaluated_exactly(config)
        how = {"norm": kind.number, "method": kind.how, "exact": exact, "stronger": math.nan}
        how |= {"reading": ERROR, "threshold": math.nan}
        for radius, error in zip(kind.radii_of(asked.bits), values, strict=True):
            yield {"ball": name, "radius": radius, "error": error, "change": error} | how


def with_curves(measured: Measured, asked: Any, errors: Errors, config: TrialConfig) -> Measured:
    """The measurements with the rows of their replicas; the errors of one that diverged are infinite."""
    found = {}
    for row, (trial, one) in measured.items():
        own = errors[row]
        if one.trained.outcome is Outcome.DIVERGED:
            own = {name: [math.inf] * len(values) for name, values in own.items()}
        rows = [*one.tables.get(CURVES, ()), *curve_rows(asked, own, config)]
        found[row] = trial, replace(one, tables={**one.tables, CURVES: rows})
    return found
