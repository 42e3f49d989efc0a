"""Estimated seconds of one core for trials that run as one program: for order, pack sizes and times left only.

The constants were measured on one core of a 2023 server. They hold within a factor of three for the models that come
with memsweep, those of the training of deep models for stacks of 1 to 4 layers of 8 to 134 features. What follows it
was measured on stacks of four units with 8 features; others may take ten times as long. Linear models with a closed
form were measured on a core with AVX2: trials with widths of 2 to 64 and horizons of 16 to 128, trainings at horizon
512 and packs of quickstart. There they hold within a factor of four, as they do for a module of a user that is as small
as those of docs/your_model.md. Only estimates depend on them, never a result.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.schema.batch_loss import CONVOLUTION, SEQUENCES, STATISTICS, way_of
from memsweep.config.schema.trial import asked_of

if TYPE_CHECKING:
    from memsweep.config.schema.training import TrainingConfig
    from memsweep.config.schema.trial import TrialConfig

# Seconds where no other unit is named.
_STEP = 8e-4  # per optimizer step of an ensemble, for the calls and the optimizer
_DRAWN = 1e-8  # per sequence and step of time of a batch, which all ensembles share
_STATISTICS = 3.5e-11  # per multiplication in a batch's second moments
_CONVOLVED, _LINEAR_STATE = 1e-8, 1e-9  # per sequence and step of time: convolved; in kernels, per state
_RESPONSE, _RESPONSE_MOVED = 3e-8, 1e-8  # per state and step of time of a response: in training, in an ascent
_RESPONSE_ENTRY = 5e-10  # per entry of a recurrent matrix and step of time, in an ascent
_RESPONSE_CALLS = 4e-5  # per evaluation of such an ascent, for the calls: many starts share one
# Where the loss is that of modes. A step of a training: per mode of the ensemble's rows; per replica, for its calls;
# per mode of it and step of time; and per square of the horizon, for the quadratic form.
_MODE, _MODES, _MODE_STEP, _QUADRATIC = 1.5e-7, 5e-6, 2.5e-9, 1e-10
# An evaluation in an ascent, whatever the horizon: for the calls of an ensemble, and for them per unit of width; for
# each replica, and for each mode of it.
_MODES_CALLS, _MODE_CALLS, _MODES_MOVED, _MODE_MOVED = 2e-5, 2e-6, 2.5e-7, 4e-8
_SEQUENCES = 1.2e-3  # per optimizer step over sequences, for the calls and the data
_STATE, _STATE_MOVED = 3e-9, 2e-9  # per state, step of time and sequence in compiled kernels: training, ascent
_PLAIN_CALL, _PLAIN_STATE = 3e-5, 1.5e-8  # in torch's own operations: per step of time, and per state of it
_MODULE_CALLS, _MODULE_STEP = 1.5e-3, 2e-4  # a user's module, of each gradient or evaluation of each replica: per step
_MOVED = 2e-4  # per evaluation in an ascent over sequences, for the calls
TABLES = 0.02  # per trial, for its tables and their files

# Products with matrices: one multiplication for each entry, sequence and step of time; most of what deep models cost.
_CALLS = 1e-2  # per layer and optimizer step, for torch's calls forward and backward
_ENTRY = 1.6e-10  # per matrix entry, sequence and step of time, forward and backward
_FEATURE = 1.5e-8  # per feature or state of a layer, likewise, for elementwise operations
_FUSED_CALLS, _FUSED_ENTRY, _FUSED_FEATURE = 1e-4, 5e-11, 1e-9  # the same for a stack that is one compiled call
_MOVED_FEATURE = 10.0  # times as long a feature takes in a pass of a search: gru, lru, gla and delta_net on AVX2
_LANES = {"float32": 16, "float64": 8}  # sequences per vector of such a call, with AVX-512
_DOUBLE = 1.8  # float64 against float32
_FORWARD = 1.5  # a rule that goes forward in time, batched, against backpropagation through time
EVALUATION = 1.0 / 3.0  # a pass without its gradient
_TALKS = 16  # number of inputs and of outputs that a task is assumed to have


def seconds(trials: Sequence[TrialConfig]) -> float:
    """The seconds that these trials of one program cost together."""
    return sum(_parts(trials))


def training_share(trials: Sequence[TrialConfig]) -> float:
    """The share of these seconds that training takes: the rest are measurements, and the tables of their results."""
    trained, measured = _parts(trials)
    return trained / (trained + measured)


def _parts(trials: Sequence[TrialConfig]) -> tuple[float, float]:
    """The seconds of the training, and those of what follows it."""
    first = trials[0]
    trained, measured = _by_response(trials) if first.has_closed_form else _by_sequences(trials)
    return shared(first) + trained, measured + TABLES * len(trials)


def is_known(trial: TrialConfig) -> bool:
    """Whether the constants were measured on such models: others take ten times as long as estimated, or more."""
    traits = registry.get(registry.MODEL, trial.model.name).traits(trial.model)
    return trial.has_closed_form or traits.layer or (_is_deep(trial.model) and not _runs_modules(trial.model))


def shared(trial: TrialConfig) -> float:
    """The seconds of the program that do not grow with the number of its trials."""
    training, horizon = trial.training, _horizon(trial)
    if _is_deep(trial.model):
        return _gradients(trial) * _calls(trial)
    if one_by_one(trial):
        return 0.0
    if not trial.has_closed_form:
        return _steps(training) * (_SEQUENCES if _compiled(trial) else _PLAIN_CALL * horizon)
    products = horizon**2 * (training.batch_size + horizon) if way_of(trial) == STATISTICS else 0.0
    return _steps(training) * (_STEP + _DRAWN * training.batch_size * horizon + _STATISTICS * products)


def _by_response(trials: Sequence[TrialConfig]) -> tuple[float, float]:
    """Replicas train in ensembles of fixed size: a full one costs what a nearly empty one does.

    A search pays its calls by ensemble, and the rest by replica.
    """
    from memsweep.learning.ensemble.flat_layout import SLOTS, bucket, slots

    first, horizon = trials[0], _horizon(trials[0])
    replicas: Counter[int] = Counter()
    for trial in trials:
        replicas[bucket(_width(trial))] += trial.training.seeds
    ensembles = {width: math.ceil(count / slots(width, SLOTS)) for width, count in replicas.items()}
    rows = sum(slots(width, SLOTS) * width * count for width, count in ensembles.items())
    states = sum(trial.training.seeds * _width(trial) for trial in trials)
    modes, way = _has_modes(first), way_of(first)
    step = _STEP * (sum(ensembles.values()) - 1)
    if way == SEQUENCES:
        least = sum(trial.training.seeds * max(8, _width(trial)) for trial in trials)
        step += _LINEAR_STATE * first.training.batch_size * horizon * least
    elif modes and way == STATISTICS:
        step += _MODE * rows + _MODE_STEP * horizon * states + (_MODES + _QUADRATIC * horizon**2) * replicas.total()
    else:
        step += _RESPONSE * horizon * rows
    if way == CONVOLUTION:
        step += _CONVOLVED * first.training.batch_size * horizon * replicas.total()
    searched = sum(trial.training.seeds * _response_moved(trial) for trial in trials)
    calls = sum(
        (_MODES_CALLS + _MODE_CALLS * width if modes else _RESPONSE_CALLS) * n for width, n in ensembles.items()
    )
    return _steps(first.training) * step, evaluations(first) * (calls + searched)


def _has_modes(trial: TrialConfig) -> bool:
    """Whether a linear model's loss is computed from its modes, without its response."""
    from memsweep.models.base import LinearModel

    own = registry.get(registry.MODEL, trial.model.name).as_modes is not LinearModel.as_modes
    return own and not getattr(trial.model, "skip", False)  # a skip is no mode


def _response_moved(trial: TrialConfig) -> float:
    """Seconds of one replica in one evaluation of an ascent, without the calls."""
    if _has_modes(trial):
        return _MODES_MOVED + _MODE_MOVED * _width(trial)
    entries = _width(trial) ** 2 if _has_matrix(trial) else 0
    return (_RESPONSE_MOVED * _width(trial) + _RESPONSE_ENTRY * entries) * _horizon(trial)


def _by_sequences(trials: Sequence[TrialConfig]) -> tuple[float, float]:
    first, horizon = trials[0], _horizon(trials[0])
    if _is_deep(first.model):
        each = [_by_layers(trial, horizon) for trial in trials]
        return sum(training for training, _ in each), sum(measuring for _, measuring in each)
    from memsweep.learning.ensemble.flat_layout import SAMPLED_SLOTS

    training, moved = first.training, evaluations(first)
    states = horizon * sum(trial.training.seeds * _layers(trial.model) * max(8, _width(trial)) for trial in trials)
    groups = math.ceil(sum(trial.training.seeds for trial in trials) / SAMPLED_SLOTS)
    trained, tested = states * training.batch_size, states * first.perturbation.test_size
    if _compiled(first):
        entry = _entry(first)
        step, pass_ = _STATE + entry, _STATE_MOVED + EVALUATION * entry
        return _steps(training) * step * trained, moved * (_MOVED * groups + pass_ * tested)
    if one_by_one(first):  # the calls of a gradient, and of an evaluation, are those of every replica and copy
        calls = (_MODULE_CALLS + _MODULE_STEP * horizon) * sum(trial.training.seeds for trial in trials)
        return _steps(training) * (calls + _PLAIN_STATE * trained), moved * (calls + _PLAIN_STATE * tested)
    calls = _PLAIN_CALL * horizon * groups
    return _steps(training) * _PLAIN_STATE * trained, moved * (calls + _PLAIN_STATE * tested)


def _by_layers(trial: TrialConfig, horizon: float) -> tuple[float, float]:
    moved = evaluations(trial) * _deep_evaluation(trial, trial.perturbation.test_size, horizon)
    trained = _gradients(trial) * _deep_replica_gradient(trial, horizon)
    return trial.training.seeds * trained, trial.training.seeds * moved


@functools.lru_cache(maxsize=100_000)
def evaluations(trial: TrialConfig) -> float:
    """Evaluations of the loss of a replica on all of its data, in all balls; one with its gradient counts as three.

    Those on a part of the test sequences count by its share. Of the stronger search, every replica has its part of what
    it costs on ``SEEDS_OF`` of ``stronger_every`` seeds, where one of the trial's has it. See
    ``memsweep.stability.perturbation``. Asked several times for each trial.
    """
    return _evaluations(trial, _shares(trial))


@functools.lru_cache(maxsize=100_000)
def passes(trial: TrialConfig) -> float:
    """The same, each as one on however few sequences: what a pass costs whatever its size is paid for each."""
    return _evaluations(trial, (1.0, 1.0))


def _evaluations(trial: TrialConfig, data: tuple[float, float]) -> float:
    """Evaluations, where those on the few and the more sequences count by these shares."""
    from memsweep.stability.evaluation import SEEDS_OF
    from memsweep.stability.optional import Effort
    from memsweep.stability.perturbation import effort

    moved, closed = trial.perturbation, trial.has_closed_form
    asking = Effort(trial, _horizon(trial), functools.partial(effort.worst_at, moved, closed, data))
    total = sum(registry.get(registry.MEASURE, asked.name).cost(asked, asking) for asked in asked_of(moved))
    if moved.method != "worst_case":
        return total + len(moved.balls) * effort.drawn(moved)
    every, first = moved.stronger_every, trial.training.first_seed
    checked = every and any(seed % every < SEEDS_OF for seed in range(first, first + trial.training.seeds))
    share = min(1.0, SEEDS_OF / every) if checked else 0.0
    parts = (effort.search, 1.0), (effort.stronger, share)
    return total + sum(times * part(moved, closed, data, ball) for ball in moved.balls for part, times in parts)


def _shares(trial: TrialConfig) -> tuple[float, float]:
    """Of the data, those on which a search climbs first, and last."""
    from memsweep.stability.evaluation import FEW, MORE

    few, more = (1.0 if trial.has_closed_form else min(1.0, s / trial.perturbation.test_size) for s in (FEW, MORE))
    return few, more


def _is_deep(model: Any) -> bool:
    from memsweep.models.deep.unit import is_deep

    return is_deep(model)


def one_by_one(trial: TrialConfig) -> bool:
    """Whether the model is a module of a user, whose replicas are computed one after the other."""
    from memsweep.models.module.config import ModuleConfig

    return isinstance(trial.model, ModuleConfig)


def copies_at_once(trial: TrialConfig) -> int:
    """How many pushed copies share the calls of a pass, about: the starts of a search, or its draws."""
    own = trial.model if one_by_one(trial) else None
    if own is None and _is_deep(trial.model) and _runs_modules(trial.model):
        own = next(each for each in _units(trial.model) if hasattr(each, "replicas"))
    if own is not None and getattr(own, "replicas", "") != "vmap":
        return 1
    moved = trial.perturbation
    return 1 + moved.starts if moved.method == "worst_case" else moved.repeats


def _compiled(trial: TrialConfig) -> bool:
    """Whether kernels run over the steps of time; other models have a loop or a convolution of their own."""
    import torch

    from memsweep.models.base import LayerModel
    from memsweep.recurrence.layer_outputs import kernels

    known = _is_deep(trial.model) or issubclass(registry.get(registry.MODEL, trial.model.name), LayerModel)
    return known and kernels(getattr(torch, trial.training.dtype)) == "compiled"


def _entry(trial: TrialConfig) -> float:
    """Seconds that a recurrent matrix costs a state on top in a step of time: a product with one of its rows."""
    if not _has_matrix(trial):
        return 0.0
    return _ENTRY * _width(trial) * (_DOUBLE if trial.training.dtype == "float64" else 1.0)


def _has_matrix(trial: TrialConfig) -> bool:
    """Whether the recurrent weights are a matrix."""
    roles = registry.get(registry.MODEL, trial.model.name).roles(trial.model).values()
    return any(role.axes == ("width", "width") for role in roles)


def _horizon(trial: TrialConfig) -> float:
    own = getattr(trial.task, "horizon", None)
    return float(_task_horizon(trial.task) if own is None else own)


@functools.lru_cache(maxsize=256)
def _task_horizon(task: Any) -> int:
    """The sequence length of a task, given by its Config, that follows from other fields."""
    horizon: int = registry.get(registry.TASK, task.name)(task).horizon
    return horizon


def _width(trial: TrialConfig) -> int:
    return int(getattr(trial.model, "width", 1))


def _deep_replica_gradient(trial: TrialConfig, horizon: float) -> float:
    """Seconds of a gradient that each replica costs on top of the calls."""
    return _computed(trial, trial.training.batch_size) * horizon * _of_a_step_of_time(trial, horizon)


def _deep_evaluation(trial: TrialConfig, sequences: int, horizon: float) -> float:
    """Seconds of one pass of one replica over so many sequences."""
    of_a_step = _of_a_step_of_time(trial, horizon, elementwise=_MOVED_FEATURE)
    return EVALUATION * (_calls(trial) + _computed(trial, sequences) * horizon * of_a_step)


def _computed(trial: TrialConfig, sequences: int) -> int:
    """Sequences that are computed for so many: the compiled call of a stack fills its vectors."""
    lanes = _LANES[trial.training.dtype] if _is_fused(trial) else 1
    return math.ceil(sequences / lanes) * lanes


def _calls(trial: TrialConfig) -> float:
    """Seconds of torch's calls in a gradient, whatever it is of."""
    return (_FUSED_CALLS if _is_fused(trial) else _CALLS) * _layers(trial.model)


def _is_fused(trial: TrialConfig) -> bool:
    """Whether one compiled call computes the whole stack and its gradient."""
    from memsweep.models.deep.fused_stack import knows

    by_itself = trial.model.name == "residual_stack" and not registry.get(registry.RULE, trial.training.rule).forward
    if not by_itself or not _compiled(trial):
        return False
    model: Any = trial.model
    return knows(dataclasses.replace(model, dropout=0.0), int(_horizon(trial)))


def _gradients(trial: TrialConfig) -> float:
    """Gradients of a training, counted in those by backpropagation: the rule's, and those that its measures take."""
    forward = registry.get(registry.RULE, trial.training.rule).forward
    return trial.training.end * (_FORWARD if forward else 1.0) + _measured(trial.training)


def _steps(training: TrainingConfig) -> float:
    """Optimizer steps of a training, and as many gradients as its measures take."""
    return training.end + _measured(training)


def _measured(training: TrainingConfig) -> float:
    measures = ((registry.get(registry.MEASURE, asked.name), asked) for asked in asked_of(training))
    return sum(measure.gradients(asked, training) for measure, asked in measures)


def _of_a_step_of_time(trial: TrialConfig, horizon: float, elementwise: float = 1.0) -> float:
    model: Any = trial.model
    roles = registry.get(registry.MODEL, model.name).roles(model).values()
    entries = sum(math.prod(_size(model, axis) for axis in role.axes) for role in roles if len(role.axes) > 1)
    products = [_unit(model, each).products(int(horizon)) for each in _units(model)]
    entries += _layers(model) * sum(products) / len(products)
    alone = _layers(model) * (_size(model, "feature") + _size(model, "width"))
    entry, feature = (_FUSED_ENTRY, _FUSED_FEATURE) if _is_fused(trial) else (_ENTRY, _FEATURE)
    return (entry * entries + elementwise * feature * alone) * (_DOUBLE if trial.training.dtype == "float64" else 1.0)


def _runs_modules(model: Any) -> bool:
    """Whether a deep model has layers of a user, which may loop over time in Python."""
    from memsweep.models.deep.unit import LayerUnit

    return any(issubclass(registry.get(registry.UNIT, each.name), LayerUnit) for each in _units(model))


def _units(model: Any) -> tuple[Any, ...]:
    from memsweep.models.deep.unit import units_of

    return units_of(model)


def _unit(model: Any, own: Any) -> Any:
    return registry.get(registry.UNIT, own.name)(own, _size(model, "width"), _size(model, "feature"))


def _layers(model: Any) -> int:
    return int(getattr(model, "layers", 1))


def _size(model: Any, axis: str) -> int:
    """Length of an axis of a weight tensor; a usual one where the task decides it."""
    fields = {"width": "width", "feature": "features", "hidden": "readout_width"}
    return int(getattr(model, fields[axis])) if axis in fields and hasattr(model, fields[axis]) else _TALKS
