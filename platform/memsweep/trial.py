"""One trial, or a pack of trials that share a program: train, perturb, measure. Knows neither Ray nor MLflow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.api import Task
from memsweep.learning.ensemble import flat_layout
from memsweep.learning.ensemble import replicas as ensembles
from memsweep.learning.ensemble.replicas import Ensemble, Replica
from memsweep.learning.loop import train
from memsweep.learning.loss.problem import problem_for
from memsweep.learning.parallel.batch_shards import ProblemInParts
from memsweep.learning.parallel.process_group import ProcessGroup, ProcessGroupSlot
from memsweep.learning.parallel.replica_shards import restricted, shared_out
from memsweep.learning.state.checkpoints import Checkpoint, Slot
from memsweep.learning.state.warm_start import WarmStart
from memsweep.models.base import LayerModel, Model, Signature
from memsweep.recurrence.freed_memory import keep_freed_memory
from memsweep.stability.measure import Measurement, evaluation_data, measure
from memsweep.stability.results import TrialResult, conditions, result_of

__all__ = [
    "Finding",
    "Seat",
    "TrialResult",
    "conditions",
    "packs",
    "program",
    "result_of",
    "results_of",
    "run_pack",
    "run_share",
    "run_trial",
]

PACKED_TRAINING = frozenset({"seeds", "first_seed", "learning_rate"})
"""Training fields in which the trials of one pack may differ."""

Phase = Callable[[str], AbstractContextManager[None]]
"""Called with the name of what begins (data, training, perturbation, tables); the context ends with it."""


def _untimed(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def program(config: TrialConfig) -> str:
    """What trials must share to run as one pack, as canonical JSON; trials of equal text may be packed.

    Trials that do not train in closed form share a program on one and the same task only. Where a model has no pack
    fields, and where a trial is chained to others, the program is the whole config: one trial a pack.
    """
    data = to_dict(config)
    if packs(config):
        task = registry.get(registry.TASK, config.task.name)
        loose = {
            "task": task.pack_fields if config.trains_in_closed_form else frozenset(),
            "model": _model_class(config).pack_fields(config.model),
            "training": PACKED_TRAINING,
        }
        for section, names in loose.items():
            data[section] = {key: value for key, value in data[section].items() if key not in names}
    return json.dumps(data, sort_keys=True)


def packs(config: TrialConfig) -> bool:
    """Whether a trial may run in a pack with others, and therefore always runs at fixed shapes."""
    return config.chain is None and bool(_model_class(config).pack_fields(config.model))


def _model_class(config: TrialConfig) -> type[Model]:
    found: type[Model] = registry.get(registry.MODEL, config.model.name)
    return found


def run_trial(config: TrialConfig, **options: Any) -> TrialResult:
    """A pack of one; see ``run_pack``."""
    return run_pack([config], **options)[0]


@dataclass(frozen=True)
class Seat:
    """Which of the workers of a pack a process is.

    Attributes:
        rank: from 0.
        workers: how many share the pack out.
        crew: the workers train in step, each on a part of every batch; None: each trains replicas of its own.
    """

    rank: int = 0
    workers: int = 1
    crew: ProcessGroup | None = None


@dataclass(frozen=True)
class Finding:
    """What was measured on one replica of a pack.

    Attributes:
        place: of the replica: its ensemble and its row; what is in order by it is as one worker finds it.
        trial: position of its trial in the pack.
        measurement: what was found.
    """

    place: tuple[int, int]
    trial: int
    measurement: Measurement


def run_pack(configs: Sequence[TrialConfig], **options: Any) -> list[TrialResult]:
    """Run trials of one program together; each gets the numbers that it would get alone, bit for bit.

    Args:
        configs: trials with equal ``program``.
        options: see ``run_share``.

    Returns:
        One result per config, in order.

    Raises:
        ValueError: the trials do not share a program, or one is chained to a trial whose result it lacks.
        Exception: whatever the task's or the model's code raises.
    """
    found = run_share(configs, **options)
    with options.get("phase", _untimed)("tables"):
        return results_of(configs, found)


def results_of(configs: Sequence[TrialConfig], findings: Iterable[Finding]) -> list[TrialResult]:
    """The results of a pack's trials, in order, from what was found on its replicas, by one worker or several."""
    measured: list[list[Measurement]] = [[] for _ in configs]
    for finding in sorted(findings, key=lambda finding: finding.place):
        measured[finding.trial].append(finding.measurement)
    wanted = [config.training.seeds for config in configs]
    if wanted != [len(found) for found in measured]:
        raise RuntimeError(
            f"{sum(map(len, measured))} replicas were measured, not {sum(wanted)}: a fault of memsweep, please "
            "report it"
        )
    tasks = [_task(config) for config in configs]
    return [result_of(config, task, found) for config, task, found in zip(configs, tasks, measured, strict=True)]


def run_share(
    configs: Sequence[TrialConfig],
    *,
    seat: Seat = Seat(),
    shards: int = 1,
    checkpoint: Slot | None = None,
    handed: Sequence[Slot | None] | None = None,
    kept: Sequence[Slot | None] | None = None,
    progress: Callable[[float], None] | None = None,
    company: bool = True,
    device: str = "cpu",
    phase: Phase = _untimed,
) -> list[Finding]:
    """Train and measure what is a worker's own of a pack; with one worker, all of it.

    Args:
        configs: trials with equal ``program``.
        seat: which of the workers this is.
        shards: parts in which each batch is computed; with a crew, one for each of its workers.
        checkpoint: place to continue an interrupted training from, and to write to; of this share alone, or of the
            whole crew.
        handed: for each trial, where the state may lie that an earlier row left, of the same settings up to its end;
            the training begins with it where all trials have one of the same step. The numbers are the same either way.
        kept: for each trial, where its state at the end goes; neither with several workers.
        progress: called with the fraction done, 0 ... 1.
        company: the trials may run beside others elsewhere, so they run at the fixed shapes of all packs. False is for
            trials that never do (chained ones): exactly their replicas, no dummies.
        device: type of the device that computes: ``cpu`` or ``cuda``.
        phase: a stopwatch for the phases of the work, which follow one another.
    """
    if len({program(config) for config in configs}) != 1:
        raise ValueError(f"{len(configs)} trials of different programs were put into one pack")
    first, crew = configs[0], seat.crew
    if first.chain is not None:
        raise ValueError("a chained trial was run before the value that it takes from its predecessor was put in")
    if shards > 1 and _draws_in_training(first):
        raise ValueError(
            f"the model {first.model.name!r} draws random numbers in training (dropout), which the parts of a batch "
            "would share: use resources.strategy=replicas with it"
        )
    if shards > 1 and _task_class(first).carries_states:
        raise ValueError(
            f"the task {first.task.name!r} carries states from batch to batch, whose parts are not the same sequences "
            "everywhere: use resources.strategy=replicas with it"
        )
    if shards > 1 and _model_class(first).whole_batch(first.model):
        raise ValueError(
            f"the model {first.model.name!r}, as it is set here, must see a training batch at once: use "
            "resources.strategy=replicas with it"
        )
    if (handed or kept) and seat.workers > 1:
        raise ValueError("states are handed on by one worker alone: resources.workers must be 1 with a scheduler")
    keep_freed_memory()
    with phase("data"):
        tasks, groups = _assembled(configs, company=company)
        own = _owned(groups, seat, _passes_over(first, tasks[0]))
    with _placed(device):
        with phase("data"):
            dtype = getattr(torch, first.training.dtype)
            problem = problem_for(tasks, first.has_closed_form, dtype)
            closed = first.trains_in_closed_form
            taught = problem if closed == first.has_closed_form else problem_for(tasks, closed, dtype)
            trained_on = taught if shards == 1 else ProblemInParts(taught, shards, crew)
        if crew is None:
            groups = [restricted(groups[place], rows) for place, rows in own]
        fraction = 0.8  # of the work that training usually is
        with phase("training"):
            learners = train(
                [group.to(device) for group in groups],
                trained_on,
                first.training,
                checkpoint=_checkpoint(configs, checkpoint, seat, shards),
                handover=_handover(configs, handed, kept, shards),
                progress=progress and (lambda done: progress(fraction * done)),
            )
        if crew is not None:  # all have trained all replicas, and each measures its own
            learners = [
                dataclasses.replace(learners[place], ensemble=restricted(learners[place].ensemble, rows))
                for place, rows in own
            ]
        findings: list[Finding] = []
        with phase("data"):
            data = evaluation_data(problem, first)
        with phase("perturbation"):
            for index, ((place, rows), learner) in enumerate(zip(own, learners, strict=True)):
                measured = measure(learner, problem, data, first)
                findings += [Finding((place, row), *measured[row]) for row in rows]
                if progress:
                    progress(fraction + (1.0 - fraction) * (index + 1) / len(learners))
    return findings


def _owned(groups: Sequence[Ensemble], seat: Seat, passed_over: bool) -> list[tuple[int, range]]:
    return shared_out([len(group.replicas) for group in groups], seat.workers, passed_over)[seat.rank]


def _checkpoint(configs: Sequence[TrialConfig], slot: Slot | None, seat: Seat, shards: int) -> Checkpoint | None:
    if slot is None:
        return None
    key = _digest(configs)
    if seat.crew is not None:
        slot = ProcessGroupSlot(slot, seat.crew)
    elif seat.workers > 1:
        key += f", share {seat.rank} of {seat.workers}"
    return Checkpoint(slot, key if shards == 1 else f"{key}, {shards} parts")


def _handover(
    configs: Sequence[TrialConfig],
    handed: Sequence[Slot | None] | None,
    kept: Sequence[Slot | None] | None,
    shards: int,
) -> WarmStart | None:
    if not handed and not kept:
        return None
    nowhere = [None] * len(configs)
    return WarmStart(configs, handed or nowhere, kept or nowhere, shards)


def _draws_in_training(config: TrialConfig) -> bool:
    """Whether the model's ``stir`` may do something; of a model that has a field ``dropout``, with dropout only."""
    return _model_class(config).stir is not Model.stir and bool(getattr(config.model, "dropout", True))


def _passes_over(config: TrialConfig, task: Task) -> bool:
    """Whether replicas that are not live cost next to nothing."""
    return not config.has_closed_form and _in_one_pass(config, task)


def _placed(device: str) -> AbstractContextManager[Any]:
    """New tensors come to lie on the device; on a processor, where they do so anyway, at no cost."""
    return nullcontext() if device == "cpu" else torch.device(device)


def _assembled(configs: Sequence[TrialConfig], *, company: bool) -> tuple[list[Task], list[Ensemble]]:
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
    slots = _slots(first, tasks[0]) if company else None
    return tasks, ensembles.build(_model_class(first), replicas, signature, dtype, slots)


def _task(config: TrialConfig) -> Task:
    return _task_class(config)(config.task)


def _task_class(config: TrialConfig) -> type[Task]:
    found: type[Task] = registry.get(registry.TASK, config.task.name)
    return found


def _slots(config: TrialConfig, task: Task) -> Callable[[int], int] | None:
    """Rows of an ensemble by padded width; None for exactly the replicas of the one trial."""
    if not packs(config):
        return None
    dummies_are_free = config.has_closed_form or _in_one_pass(config, task)  # or a share of a matrix product
    return partial(flat_layout.slots, full=flat_layout.SLOTS if dummies_are_free else flat_layout.SAMPLED_SLOTS)


def _in_one_pass(config: TrialConfig, task: Task) -> bool:
    """Whether the model's loss and gradient come from one pass of kernels that know which replicas are live."""
    model = _model_class(config)
    if task.carries_states:  # which the kernels do not take
        return False
    return issubclass(model, LayerModel) and model.is_layer(config.model) and task.squared_weights() is not None


def _digest(configs: Sequence[TrialConfig]) -> str:
    text = json.dumps([to_dict(config) for config in configs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
