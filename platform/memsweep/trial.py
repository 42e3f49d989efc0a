"""One trial, or a pack of trials that share a program: train, perturb, measure. Knows neither Ray nor MLflow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch

from memsweep import registry
from memsweep.config.canonical import to_dict
from memsweep.config.schema import TrialConfig
from memsweep.learning import ensemble as ensembles
from memsweep.learning import layout
from memsweep.learning.checkpoints import Checkpoint, Slot
from memsweep.learning.ensemble import Ensemble, Replica
from memsweep.learning.loop import train
from memsweep.learning.objectives import LinearFunctionalTask, Task
from memsweep.learning.problem import problem_for
from memsweep.models.base import LayerModel, Model, Signature
from memsweep.outcome import Outcome
from memsweep.recurrence.memory import keep_freed_memory
from memsweep.stability.measure import Measurement, evaluated_exactly, evaluation_data, measure
from memsweep.stability.perturbation import radius_grid

PACKED_TRAINING = frozenset({"seeds", "first_seed", "learning_rate"})
"""Training fields in which the trials of one pack may differ."""

Phase = Callable[[str], AbstractContextManager[None]]
"""Called with the name of what begins (data, training, perturbation, tables); the context ends with it."""


def _untimed(name: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class TrialResult:
    """What a trial found.

    Attributes:
        config: what was run.
        outcome: done, diverged or stopped_early; a fault raises instead.
        summary: scalars over the replicas, for tables and tracking.
        tables: ``curves``, ``replicas``, ``memory`` and ``history``, a row per measured thing.
    """

    config: TrialConfig
    outcome: Outcome
    summary: dict[str, float | int | str]
    tables: dict[str, pd.DataFrame]


def program(config: TrialConfig) -> str:
    """What trials must share to run as one pack, as canonical JSON; trials of equal text may be packed.

    Models without a closed form share a program on one and the same task only. Where a model has no pack fields, and
    where a trial is chained to others, the program is the whole config: one trial a pack.
    """
    data = to_dict(config)
    if packs(config):
        task = registry.get(registry.TASK, config.task.name)
        loose = {
            "task": task.pack_fields if config.has_closed_form else frozenset(),
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


def run_pack(
    configs: Sequence[TrialConfig],
    *,
    checkpoint: Slot | None = None,
    progress: Callable[[float], None] | None = None,
    company: bool = True,
    device: str = "cpu",
    phase: Phase = _untimed,
) -> list[TrialResult]:
    """Run trials of one program together; each gets the numbers that it would get alone, bit for bit.

    Args:
        configs: trials with equal ``program``.
        checkpoint: place to continue an interrupted training from, and to write to.
        progress: called with the fraction done, 0 ... 1.
        company: the trials may run beside others elsewhere, so they run at the fixed shapes of all packs. False is for
            trials that never do (chained ones): exactly their replicas, no dummies.
        device: type of the device that computes: ``cpu`` or ``cuda``.
        phase: a stopwatch for the phases of the work, which follow one another.

    Returns:
        One result per config, in order.

    Raises:
        ValueError: the trials do not share a program, or one is chained to a trial whose result it lacks.
        Exception: whatever the task's or the model's code raises.
    """
    if len({program(config) for config in configs}) != 1:
        raise ValueError(f"{len(configs)} trials of different programs were put into one pack")
    first = configs[0]
    if first.chain is not None:
        raise ValueError("a chained trial was run before the value that it takes from its predecessor was put in")
    keep_freed_memory()
    with phase("data"):
        tasks, groups = _assembled(configs, company=company)
    with _placed(device):
        with phase("data"):
            problem = problem_for(tasks, first.has_closed_form, getattr(torch, first.training.dtype))
        share = 0.8  # of the work that training usually is
        with phase("training"):
            learners = train(
                [group.to(device) for group in groups],
                problem,
                first.training,
                checkpoint=Checkpoint(checkpoint, _digest(configs)) if checkpoint else None,
                progress=progress and (lambda fraction: progress(share * fraction)),
            )
        measured: list[list[Measurement]] = [[] for _ in configs]
        with phase("data"):
            data = evaluation_data(problem, first)
        with phase("perturbation"):
            for index, learner in enumerate(learners):
                for trial, measurement in measure(learner, problem, data, first):
                    measured[trial].append(measurement)
                if progress:
                    progress(share + (1.0 - share) * (index + 1) / len(learners))
    with phase("tables"):
        return [result_of(config, task, found) for config, task, found in zip(configs, tasks, measured, strict=True)]


def _placed(device: str) -> AbstractContextManager[Any]:
    """New tensors come to lie on the device; on a processor, where they do so anyway, at no cost."""
    return nullcontext() if device == "cpu" else torch.device(device)


def _assembled(configs: Sequence[TrialConfig], *, company: bool) -> tuple[list[Task], list[Ensemble]]:
    """The tasks of the trials, and all replicas at their shapes, on the processor."""
    first = configs[0]
    dtype = getattr(torch, first.training.dtype)
    task_class: type[Task] = registry.get(registry.TASK, first.task.name)
    tasks = [task_class(config.task) for config in configs]
    replicas = [
        Replica(trial, config.model, config.training.first_seed + index, config.training.learning_rate)
        for trial, config in enumerate(configs)
        for index in range(config.training.seeds)
    ]
    signature = Signature(tasks[0].inputs, tasks[0].outputs, tasks[0].horizon)
    slots = _slots(first, tasks[0]) if company else None
    return tasks, ensembles.build(_model_class(first), replicas, signature, dtype, slots)


def _slots(config: TrialConfig, task: Task) -> Callable[[int], int] | None:
    """Rows of an ensemble by padded width; None for exactly the replicas of the one trial."""
    if not packs(config):
        return None
    model = _model_class(config)
    in_one_pass = issubclass(model, LayerModel) and model.is_layer(config.model) and task.squared_weights() is not None
    dummies_are_free = config.has_closed_form or in_one_pass  # or a share of a matrix product
    return partial(layout.slots, full=layout.SLOTS if dummies_are_free else layout.SAMPLED_SLOTS)


def _digest(configs: Sequence[TrialConfig]) -> str:
    text = json.dumps([to_dict(config) for config in configs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def conditions(config: TrialConfig) -> dict[str, Any]:
    """The columns that say what a row is about; None where the task or the model has no such field."""
    task, model = config.task, config.model
    return {
        "task": task.name,
        "kernel": getattr(task, "kernel", None),
        "rate": getattr(task, "rate", None),
        "exponent": getattr(task, "exponent", None),
        "horizon": getattr(task, "horizon", None),
        "model": model.name,
        "activation": getattr(model, "activation", None),
        "parameterization": _label(getattr(model, "parameterization", None)),
        "normalize": getattr(model, "normalize", None),
        "width": getattr(model, "width", None),
    }


def _label(part: Any) -> str | None:
    """A component's name with its fields: ``exp``, ``best(a=1.0, b=0.5)``."""
    if part is None or isinstance(part, str):
        return part
    fields = ", ".join(f"{field.name}={getattr(part, field.name)}" for field in dataclasses.fields(part))
    return f"{part.name}({fields})" if fields else str(part.name)


def result_of(config: TrialConfig, task: Task, found: list[Measurement]) -> TrialResult:
    """What was measured on a trial's replicas, as its summary and its tables."""
    about = conditions(config) | {"horizon": task.horizon}
    zero_loss = task.chance()
    radii = [0.0, *radius_grid(config.perturbation.radii).tolist()]
    perturbation = config.perturbation
    curves = [
        about
        | {"seed": m.seed, "ball": ball, "norm": perturbation.norm, "method": perturbation.method}
        | {"radius": radius, "error": error, "zero_loss": zero_loss, "exact": evaluated_exactly(config)}
        for m in found
        for ball, errors in m.errors.items()
        for radius, error in zip(radii, errors, strict=True)
    ]
    replicas = [
        about
        | {"seed": m.seed, "outcome": str(m.outcome), "steps": m.steps, "best_step": m.best_step}
        | {"validation_loss": m.validation_loss, "error": m.error, "zero_loss": zero_loss}
        | _metric(m)
        | {"margin": m.margin, "slowest_rate": _slowest_rate(m.margin)}
        | {"encoder_norm": m.encoder_norm, "readout_norm": m.readout_norm}
        | {f"gradient_over_weight_{name}": value for name, value in m.gradient_over_weight.items()}
        for m in found
    ]
    target = task.kernel().abs().tolist() if isinstance(task, LinearFunctionalTask) else None
    memory = [
        {"seed": m.seed, "lag": lag, "learned": value, "target": target[lag] if target else math.nan}
        for m in found
        for lag, value in enumerate(m.memory)
    ]
    history = [
        {"seed": m.seed, "step": step, "train_loss": loss, "validation_loss": valid}
        for m in found
        for step, loss, valid in m.history
    ]
    tables = {"curves": curves, "replicas": replicas, "memory": memory, "history": history}
    return TrialResult(
        config=config,
        outcome=_outcome(found),
        summary=_summary(found, replicas, zero_loss),
        tables={name: pd.DataFrame(rows) for name, rows in tables.items()},
    )


def _metric(measurement: Measurement) -> dict[str, Any]:
    """The task's first metric by name, for the table; all of them are in the summary."""
    name = next(iter(measurement.metrics), None)
    return {"metric": name, "test_metric": measurement.metrics[name] if name else math.nan}


def _slowest_rate(margin: float) -> float:
    """-log max|eigenvalue| per step: negative when the recurrence is unstable."""
    largest = 1.0 - margin
    return -math.log(largest) if largest > 0 else math.inf if largest == 0 else math.nan


def _outcome(found: list[Measurement]) -> Outcome:
    outcomes = {measurement.outcome for measurement in found}
    if Outcome.DIVERGED in outcomes:
        return Outcome.DIVERGED
    return Outcome.STOPPED_EARLY if outcomes == {Outcome.STOPPED_EARLY} else Outcome.DONE


def _summary(
    found: list[Measurement], replicas: list[dict[str, Any]], zero_loss: float
) -> dict[str, float | int | str]:
    frame = pd.DataFrame(replicas)
    medians = (
        "validation_loss",
        "margin",
        "slowest_rate",
        *(c for c in map(str, frame.columns) if c.startswith("gradient_over")),
    )
    metrics = {f"test_{name}": [m.metrics[name] for m in found] for name in found[0].metrics}
    return {
        "replicas": len(found),
        "diverged_replicas": sum(m.outcome is Outcome.DIVERGED for m in found),
        "zero_loss": zero_loss,
        "error": float(frame["error"].median(skipna=False)),
        "relative_error": float((frame["error"] / zero_loss).median(skipna=False)),
        **{name: float(frame[name].median(skipna=False)) for name in medians},
        **{name: float(pd.Series(values).median(skipna=False)) for name, values in metrics.items()},
    }
