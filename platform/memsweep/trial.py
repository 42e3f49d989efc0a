"""One trial, or a pack of trials that share a program: train, perturb, measure. Knows neither Ray nor MLflow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from memsweep import registry
from memsweep.config.schema.batch_loss import CONVOLUTION, SEQUENCES, trains_by_convolution, trains_over_sequences
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig, asks_measures
from memsweep.data.api import LinearFunctionalTask, Task
from memsweep.errors import counted
from memsweep.learning.ensemble import flat_layout
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loop import train
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.batch_sharding import BatchSharding
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.loss.convolved import ConvolvedLoss
from memsweep.learning.parallel import ProcessGroup, restrict, shard_replicas
from memsweep.learning.state.checkpoint import Checkpoint, ProcessGroupSlot, Slot
from memsweep.learning.state.foreign_file import is_plain
from memsweep.learning.state.found_weights import two_values
from memsweep.learning.state.trained import Trained, TrainedEnsemble, restored, trained_ensemble
from memsweep.learning.state.warm_start import WarmStart
from memsweep.learning.state.weights_file import WeightsFileError, other_kinds, read_weights
from memsweep.learning.training.learner import Learner
from memsweep.models.base import LayerModel, Model, Signature
from memsweep.recurrence.freed_memory import give_back_freed_memory, keep_freed_memory
from memsweep.stability.measure import Measurement, measure
from memsweep.stability.optional import Subject, with_optional
from memsweep.stability.results import TrialResult, result_of

__all__ = [
    "ReplicaMeasurement",
    "RunOptions",
    "TrialResult",
    "WorkerRank",
    "packs",
    "program",
    "result_of",
    "results_of",
    "run_pack",
    "run_replicas",
    "run_trial",
]

PACKED_TRAINING = frozenset({"seeds", "first_seed", "learning_rate"})
"""Training fields in which the trials of one pack may differ."""
TRAINING_SHARE = 0.8
"""Share of a pack's work that training usually is, for reports of progress."""


def _untimed(name: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class WorkerRank:
    """Which of the workers of a pack a process is.

    Attributes:
        rank: from 0.
        workers: how many processes run the pack.
        group: the workers train in step, each on a shard of every batch; None: each trains replicas of its own.
    """

    rank: int = 0
    workers: int = 1
    group: ProcessGroup | None = None


@dataclass(frozen=True)
class RunOptions:
    """Where and how a pack runs. Of these, ``device`` and ``shards`` alone decide last bits.

    Attributes:
        worker: which of the pack's workers this process is.
        shards: shards in which each training batch is computed; with a process group, one for each worker.
        checkpoint: where an interrupted training continues from and writes to; this worker's own, or the group's.
        start_states: for each trial, where the state of a shorter training with the same settings may lie. The
            training starts there if every trial has one of the same step. One worker only.
        end_states: for each trial, where its state at the end goes, or None. One worker only.
        trained: for each trial, seed -> what training made of it: the trials are measured then, and not trained. Empty:
            they are trained.
        progress: called with the fraction done, 0 ... 1.
        padded: run at the padded shapes that all packs have, so that other packs may hold the same trials. False:
            exactly these replicas without dummies, for chained trials.
        device: type of the device that computes: ``cpu`` or ``cuda``.
        phase: called with the name of what starts (data, training, perturbation, tables); the context ends with it.
    """

    worker: WorkerRank = WorkerRank()
    shards: int = 1
    checkpoint: Slot | None = None
    start_states: Sequence[Slot | None] = ()
    end_states: Sequence[Slot | None] = ()
    trained: Sequence[Mapping[int, Trained]] = ()
    progress: Callable[[float], None] | None = None
    padded: bool = True
    device: str = "cpu"
    phase: Callable[[str], AbstractContextManager[None]] = _untimed


DEFAULT = RunOptions()


@dataclass(frozen=True)
class ReplicaMeasurement:
    """The measurement of one replica of a pack.

    Attributes:
        position: index of its ensemble, and its row there: the order of replicas with one worker.
        trial: position of its trial in the pack.
        measurement: of its trained weights.
    """

    position: tuple[int, int]
    trial: int
    measurement: Measurement


@dataclass(frozen=True)
class TrainedPack:
    """One worker's trained replicas of a pack.

    Attributes:
        tasks: of the trials, in order.
        loss: on which they were trained.
        ensembles: index of each ensemble in the pack, the rows of it that are this worker's, and the ensemble.
    """

    tasks: list[Task]
    loss: TaskLoss[Any]
    ensembles: list[tuple[int, range, TrainedEnsemble]]


def program(config: TrialConfig) -> str:
    """The fields that trials must share to run as one pack, as canonical JSON; trials of equal text may be packed.

    Trials that do not train in closed form share a program only on the same task. Where a model has no pack
    fields, and where a trial is chained to others, the program is the whole config: one trial a pack.
    """
    data = to_dict(config)
    if packs(config):
        task = registry.get(registry.TASK, config.task.name)
        loose = {
            "task": task.pack_fields if config.trains_in_closed_form else frozenset(),
            "model": _model_class(config).traits(config.model).pack_fields,
            "training": PACKED_TRAINING,
        }
        for section, names in loose.items():
            data[section] = {key: value for key, value in data[section].items() if key not in names}
        if trains_over_sequences(config):
            data["way"] = SEQUENCES
        if trains_by_convolution(config):
            data["way"] = CONVOLUTION
    return json.dumps(data, sort_keys=True)


def packs(config: TrialConfig) -> bool:
    """Whether a trial may run in a pack with others, and therefore always runs at fixed shapes."""
    return config.chain is None and bool(_model_class(config).traits(config.model).pack_fields)


def _model_class(config: TrialConfig) -> type[Model]:
    model_class: type[Model] = registry.get(registry.MODEL, config.model.name)
    return model_class


def run_trial(config: TrialConfig, options: RunOptions = DEFAULT) -> TrialResult:
    """Run a pack of one trial; see ``run_pack``."""
    return run_pack([config], options)[0]


def run_pack(configs: Sequence[TrialConfig], options: RunOptions = DEFAULT) -> list[TrialResult]:
    """Run trials of one program together; each gets the numbers that it would get alone, bit for bit.

    Args:
        configs: trials with equal ``program``.
        options: where and how they run.

    Returns:
        One result per config, in order.

    Raises:
        ValueError: the trials do not share a program, or one is chained to a trial whose result it lacks.
        Exception: any exception of the task's or the model's code.
    """
    measurements = run_replicas(configs, options)
    with options.phase("tables"):
        return results_of(configs, measurements)


def results_of(configs: Sequence[TrialConfig], measurements: Iterable[ReplicaMeasurement]) -> list[TrialResult]:
    """Build the results of a pack's trials, in order, from the measurements of one worker or of several."""
    by_trial: list[list[Measurement]] = [[] for _ in configs]
    for replica in sorted(measurements, key=lambda replica: replica.position):
        by_trial[replica.trial].append(replica.measurement)
    required = [config.training.seeds for config in configs]
    if required != [len(measured) for measured in by_trial]:
        raise RuntimeError(
            f"{sum(map(len, by_trial))} replicas were measured, not {sum(required)}: a fault of memsweep, please "
            "report it"
        )
    return [result_of(config, _task(config), measured) for config, measured in zip(configs, by_trial, strict=True)]


def run_replicas(configs: Sequence[TrialConfig], options: RunOptions = DEFAULT) -> list[ReplicaMeasurement]:
    """Train and measure one worker's replicas of a pack; with one worker, all of them.

    Args:
        configs: trials with equal ``program``.
        options: where and how they run, and which of the workers this is.
    """
    first, progress = configs[0], options.progress
    trained = train_replicas(configs, options)
    measurements: list[ReplicaMeasurement] = []
    with _default_device(options.device):
        closed = first.has_closed_form
        with options.phase("data"):
            # a linear stack that learns by a rule trains on sequences, and its errors are expectations all the same
            same = closed == first.trains_in_closed_form
            loss = trained.loss if same else task_loss_for(trained.tasks, closed, getattr(torch, first.training.dtype))
        with options.phase("perturbation"):
            for done, (index, rows, ensemble) in enumerate(trained.ensembles, 1):
                measured = measure(ensemble, loss, first)
                if asks_measures(first):
                    measured = with_optional(measured, Subject(ensemble, loss, trained.tasks, first))
                measurements += [ReplicaMeasurement((index, row), *measured[row]) for row in rows]
                if progress:
                    progress(TRAINING_SHARE + (1.0 - TRAINING_SHARE) * done / len(trained.ensembles))
    return measurements


def train_replicas(configs: Sequence[TrialConfig], options: RunOptions = DEFAULT) -> TrainedPack:
    """Train one worker's replicas of a pack; with one worker, all of them. Arguments as of ``run_replicas``."""
    _check(configs, options)
    first, worker, phase, progress = configs[0], options.worker, options.phase, options.progress
    keep_freed_memory()
    give_back_freed_memory()  # the pack before this one had tensors of other sizes
    with phase("data"):
        tasks, ensembles = _tasks_and_ensembles(configs, padded=options.padded)
        sizes = [len(ensemble.replicas) for ensemble in ensembles]
        skips_dummies = not first.has_closed_form and _in_one_pass(first, tasks[0])
        own = shard_replicas(sizes, worker.workers, skips_dummies)[worker.rank]
    with _default_device(options.device):
        with phase("data"):
            loss = task_loss_for(tasks, first.trains_in_closed_form, getattr(torch, first.training.dtype))
            if trains_by_convolution(first):
                functionals = [task for task in tasks if isinstance(task, LinearFunctionalTask)]
                loss = ConvolvedLoss(functionals, getattr(torch, first.training.dtype), ensembles)
        if worker.group is None:
            ensembles = [restrict(ensembles[index], rows) for index, rows in own]
        with phase("training"):
            ensembles = [ensemble.to(options.device) for ensemble in ensembles]
            if options.trained:
                learners = [Learner.start(ensemble, loss, first.training) for ensemble in ensembles]
                trained = [restored(learner, options.trained) for learner in learners]
            else:
                learners = train(
                    ensembles,
                    loss,
                    first.training,
                    sharding=BatchSharding(options.shards, worker.group),
                    checkpoint=_checkpoint(configs, options),
                    warm_start=_warm_start(configs, options),
                    progress=progress and (lambda done: progress(TRAINING_SHARE * done)),
                )
                trained = [trained_ensemble(learner, first.training) for learner in learners]
        if worker.group is not None:  # all workers have trained all replicas, and each measures its own
            trained = [
                dataclasses.replace(trained[index], ensemble=restrict(trained[index].ensemble, rows))
                for index, rows in own
            ]
    return TrainedPack(tasks, loss, [(index, rows, each) for (index, rows), each in zip(own, trained, strict=True)])


def _check(configs: Sequence[TrialConfig], options: RunOptions) -> None:
    """Refuse a pack that has no common program, or options that its model or its task does not allow."""
    if len({program(config) for config in configs}) != 1:
        raise ValueError(f"{len(configs)} trials of different programs were put into one pack")
    first = configs[0]
    model, task = _model_class(first), registry.get(registry.TASK, first.task.name)
    if first.chain is not None:
        raise ValueError("a chained trial was run before the value that it takes from its predecessor was put in")
    if (options.start_states or options.end_states) and options.worker.workers > 1:
        raise ValueError("states are handed on by one worker alone: resources.workers must be 1 with a scheduler")
    if options.shards == 1:
        return
    # a model with a ``start_step`` of its own draws random numbers; one with a field ``dropout``, only where it is set
    if model.start_step is not Model.start_step and getattr(first.model, "dropout", True):
        raise ValueError(
            f"the model {first.model.name!r} draws random numbers in training (dropout), which the parts of a batch "
            "would share: use resources.strategy=replicas with it"
        )
    if task.carries_states:
        raise ValueError(
            f"the task {first.task.name!r} carries states from batch to batch, whose parts are not the same sequences "
            "everywhere: use resources.strategy=replicas with it"
        )
    if model.traits(first.model).whole_batch:
        raise ValueError(
            f"the model {first.model.name!r}, as it is set here, must see a training batch at once: use "
            "resources.strategy=replicas with it"
        )


def _checkpoint(configs: Sequence[TrialConfig], options: RunOptions) -> Checkpoint | None:
    slot, worker = options.checkpoint, options.worker
    if slot is None:
        return None
    key = _digest(configs)
    if worker.group is not None:
        slot = ProcessGroupSlot(slot, worker.group)
    elif worker.workers > 1:
        key += f", share {worker.rank} of {worker.workers}"
    return Checkpoint(slot, key if options.shards == 1 else f"{key}, {options.shards} parts")


def _warm_start(configs: Sequence[TrialConfig], options: RunOptions) -> WarmStart | None:
    if not options.start_states and not options.end_states:
        return None
    none = [None] * len(configs)
    return WarmStart(configs, options.start_states or none, options.end_states or none, options.shards)


def _default_device(device: str) -> AbstractContextManager[Any]:
    """Make the device torch's default for new tensors; the processor is that already, and costs nothing."""
    return nullcontext() if device == "cpu" else torch.device(device)


def check_weights(config: TrialConfig, given: Mapping[str, torch.Tensor] | None = None) -> None:
    """Refuse a trial whose file of initial weights (``training.weights``) does not fit its model.

    Args:
        config: of the trial.
        given: weights that were found in the file; None: it is read as a trial reads it.

    Raises:
        WeightsFileError: it cannot be read, or holds other weights, or numbers that are not finite; the message says
            which.
    """
    try:
        ensemble, file = _as_drawn(config), config.training.weights_file
        if file is not None:
            if given is None and not is_plain(file):
                wrong = f"{file}: training.weights takes safetensors, or what torch.save wrote"
                raise WeightsFileError(f"{wrong}. memsweep measure reads other forms.")
            own = ensemble.weights_of(ensemble.initial, 0)
            given = read_weights(file) if given is None else given
            problems = other_kinds(own, given)  # before shapes: complex numbers are pairs of numbers there
            if not problems:
                tied = ensemble.model.state_dict(keep_vars=True)
                problems = [*two_values(tied, given), *_not_finite(ensemble.starting_from(given))]
            if problems:
                raise ValueError("; ".join(problems[:3]))
    except ValueError as error:
        advice = " Give the sizes of the stored model." if " the shape " in str(error) else ""
        raise WeightsFileError(f"{config.training.weights}: {error}.{advice}") from error


def state_of(config: TrialConfig) -> Mapping[str, torch.Tensor]:
    """The state dict of a trial's model as it is drawn, whatever its file of initial weights, with its parameters."""
    state: Mapping[str, torch.Tensor] = _as_drawn(config).model.state_dict(keep_vars=True)
    return state


def _as_drawn(config: TrialConfig) -> Ensemble:
    """One model of a trial; all seeds of a file begin with the same weights."""
    one = dataclasses.replace(config, training=dataclasses.replace(config.training, seeds=1, weights=""))
    _, (ensemble,) = _tasks_and_ensembles([one], padded=packs(config))
    return ensemble


def _not_finite(ensemble: Ensemble) -> Iterator[str]:
    """The initial weights with numbers that are not finite, in words."""
    for name, value in ensemble.layout.named(ensemble.initial[0]).items():
        if count := int((~torch.isfinite(value)).sum()):
            yield f"{name} has {counted(count, 'number')} that {'is' if count == 1 else 'are'} not finite; all must be"


def _tasks_and_ensembles(configs: Sequence[TrialConfig], *, padded: bool) -> tuple[list[Task], list[Ensemble]]:
    """The tasks of the trials, and all replicas at their shapes, on the processor."""
    first = configs[0]
    dtype = getattr(torch, first.training.dtype)
    tasks = [_task(config) for config in configs]
    replicas = [
        Replica(trial, config.model, config.training.first_seed + index, config.training.learning_rate)
        for trial, config in enumerate(configs)
        for index in range(config.training.seeds)
    ]
    signature = Signature(tasks[0].inputs, tasks[0].outputs, tasks[0].horizon)
    slots = _slots(first, tasks[0]) if padded else None
    ensembles = build(_model_class(first), replicas, signature, dtype, slots)
    if (file := first.training.weights_file) is not None:
        state = read_weights(file)
        ensembles = [ensemble.starting_from(state) for ensemble in ensembles]
    return tasks, ensembles


def _task(config: TrialConfig) -> Task:
    task_class: type[Task] = registry.get(registry.TASK, config.task.name)
    return task_class(config.task)


def _slots(config: TrialConfig, task: Task) -> Callable[[int], int] | None:
    """Rows of an ensemble by padded width; None for exactly the replicas of the one trial."""
    if not packs(config):
        return None
    # dummies cost next to nothing in a matrix product, and where kernels skip rows that are not live
    dummies_are_free = config.has_closed_form or _in_one_pass(config, task)
    return partial(flat_layout.slots, full=flat_layout.SLOTS if dummies_are_free else flat_layout.SAMPLED_SLOTS)


def _in_one_pass(config: TrialConfig, task: Task) -> bool:
    """Whether the model's loss and gradient come from one pass of kernels that know which replicas are live."""
    model = _model_class(config)
    if task.carries_states:  # the kernels take no states
        return False
    return issubclass(model, LayerModel) and model.traits(config.model).layer and task.squared_weights() is not None


def _digest(configs: Sequence[TrialConfig]) -> str:
    text = json.dumps([to_dict(config) for config in configs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
