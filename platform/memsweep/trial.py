"""One trial, or a pack of trials that share a program: train, perturb, measure. Knows neither Ray nor MLflow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.canonical import to_dict
from memsweep.config.schema import TrialConfig
from memsweep.learning import ensemble as ensembles
from memsweep.learning.checkpoints import Checkpoint
from memsweep.learning.ensemble import Replica, stability_margin
from memsweep.learning.learner import Learner
from memsweep.learning.loop import train
from memsweep.learning.objectives import LinearFunctionalTask, Task
from memsweep.learning.problem import Problem, problem_for
from memsweep.learning.streams import TEST, Stream
from memsweep.models.base import LinearModel, Part, Signature
from memsweep.outcome import Outcome
from memsweep.stability.memory import memory_function
from memsweep.stability.perturbation import perturbation_error, radius_grid

PACKED_TRAINING = frozenset({"seeds", "first_seed", "learning_rate"})
"""Training fields in which the trials of one pack may differ."""


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

    Models without a closed form run one trial a pack: their program is the whole config.
    """
    data = to_dict(config)
    if config.has_closed_form:
        loose = {
            "task": registry.get(registry.TASK, config.task.name).pack_fields,
            "model": registry.get(registry.MODEL, config.model.name).pack_fields,
            "training": PACKED_TRAINING,
        }
        for section, names in loose.items():
            data[section] = {key: value for key, value in data[section].items() if key not in names}
    return json.dumps(data, sort_keys=True)


def run_trial(config: TrialConfig, **options: Any) -> TrialResult:
    """A pack of one; see ``run_pack``."""
    return run_pack([config], **options)[0]


def run_pack(
    configs: Sequence[TrialConfig],
    *,
    checkpoint: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[TrialResult]:
    """Run trials of one program together; each gets the numbers that it would get alone, bit for bit.

    Args:
        configs: trials with equal ``program``.
        checkpoint: file to continue an interrupted training from, and to write to.
        progress: called with the fraction done, 0 ... 1.

    Returns:
        One result per config, in order.

    Raises:
        ValueError: the trials do not share a program.
        Exception: whatever the task's or the model's code raises.
    """
    if len({program(config) for config in configs}) != 1:
        raise ValueError(f"{len(configs)} trials of different programs were put into one pack")
    first = configs[0]
    dtype = getattr(torch, first.training.dtype)
    task_class: type[Task] = registry.get(registry.TASK, first.task.name)
    model_class = registry.get(registry.MODEL, first.model.name)
    tasks = [task_class(config.task) for config in configs]
    problem = problem_for(tasks, model_class, dtype)
    replicas = [
        Replica(trial, config.model, config.training.first_seed + index, config.training.learning_rate)
        for trial, config in enumerate(configs)
        for index in range(config.training.seeds)
    ]
    signature = Signature(tasks[0].inputs, tasks[0].outputs, tasks[0].horizon)
    groups = ensembles.build(model_class, replicas, signature, dtype, stackable=first.has_closed_form)
    share = 0.8  # of the work that training usually is
    learners = train(
        groups,
        problem,
        first.training,
        checkpoint=Checkpoint(checkpoint, _digest(configs)) if checkpoint else None,
        progress=progress and (lambda fraction: progress(share * fraction)),
    )
    measured: list[list[Measurement]] = [[] for _ in configs]
    data = _evaluation_data(problem, first)
    for index, learner in enumerate(learners):
        for trial, measurement in _measure(learner, problem, data, first):
            measured[trial].append(measurement)
        if progress:
            progress(share + (1.0 - share) * (index + 1) / len(learners))
    return [_result(config, task, found) for config, task, found in zip(configs, tasks, measured, strict=True)]


def _digest(configs: Sequence[TrialConfig]) -> str:
    text = json.dumps([to_dict(config) for config in configs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Measurement:
    """Everything measured on one replica."""

    seed: int
    outcome: Outcome
    steps: int
    best_step: int
    validation_loss: float
    errors: dict[str, list[float]]
    memory: list[float]
    margin: float
    encoder_norm: float
    readout_norm: float
    history: list[tuple[int, float, float]]


def _evaluation_data(problem: Problem, config: TrialConfig) -> Any:
    exact = config.perturbation.error == "exact" or (config.perturbation.error == "auto" and config.has_closed_form)
    if exact:
        return problem.population()
    return problem.data(Stream(config.training.data_seed, TEST), 0, config.perturbation.test_size)


def _measure(learner: Learner, problem: Problem, data: Any, config: TrialConfig) -> list[tuple[int, Measurement]]:
    """Measurements of the real replicas of one ensemble, each with the position of its trial in the pack."""
    ensemble, weights = learner.ensemble, learner.best_weights
    errors = {
        ball: perturbation_error(ensemble, problem, data, weights, learner.targets, ball, config.perturbation)
        for ball in config.perturbation.balls
    }
    with torch.no_grad():
        memory = memory_function(ensemble.model, ensemble.layout.named(weights), ensemble.model.signature.horizon)
        linear = isinstance(ensemble.model, LinearModel)
        margin = stability_margin(ensemble, weights) if linear else torch.full_like(weights[:, 0], math.nan)
        norms = {part: _norms(learner, part) for part in (Part.ENCODER, Part.READOUT)}
    found = []
    for row, replica in enumerate(ensemble.replicas):
        diverged = bool(learner.diverged[row])
        stopped = not diverged and int(learner.steps[row]) < config.training.steps
        outcome = Outcome.DIVERGED if diverged else Outcome.STOPPED_EARLY if stopped else Outcome.DONE
        measurement = Measurement(
            seed=replica.seed,
            outcome=outcome,
            steps=int(learner.steps[row]),
            best_step=int(learner.best_step[row]),
            validation_loss=math.inf if diverged else float(learner.best_loss[row]),
            # a diverged replica has no approximant: its error is infinite at every radius
            errors={ball: [math.inf if diverged else v for v in e[row].tolist()] for ball, e in errors.items()},
            memory=memory[row].tolist(),
            margin=float(margin[row]),
            encoder_norm=float(norms[Part.ENCODER][row]),
            readout_norm=float(norms[Part.READOUT][row]),
            # others of the pack may train on after this replica has ended
            history=[
                (step, float(loss[row]), float(valid[row]))
                for step, loss, valid in learner.history
                if step <= int(learner.steps[row])
            ],
        )
        found.append((replica.trial, measurement))
    return found


def _norms(learner: Learner, part: Part) -> Tensor:
    chosen = learner.ensemble.layout.select(part)
    return torch.where(chosen, learner.best_weights, 0.0).norm(dim=-1)


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


def _result(config: TrialConfig, task: Task, found: list[Measurement]) -> TrialResult:
    about = conditions(config) | {"horizon": task.horizon}
    zero_loss = task.chance()
    radii = [0.0, *radius_grid(config.perturbation.radii).tolist()]
    perturbation = config.perturbation
    curves = [
        about
        | {"seed": m.seed, "ball": ball, "norm": perturbation.norm, "method": perturbation.method}
        | {"radius": radius, "error": error, "zero_loss": zero_loss}
        for m in found
        for ball, errors in m.errors.items()
        for radius, error in zip(radii, errors, strict=True)
    ]
    replicas = [
        about
        | {"seed": m.seed, "outcome": str(m.outcome), "steps": m.steps, "best_step": m.best_step}
        | {"validation_loss": m.validation_loss, "error": next(iter(m.errors.values()))[0], "zero_loss": zero_loss}
        | {"margin": m.margin, "slowest_rate": _slowest_rate(m.margin)}
        | {"encoder_norm": m.encoder_norm, "readout_norm": m.readout_norm}
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
    return {
        "replicas": len(found),
        "diverged_replicas": sum(m.outcome is Outcome.DIVERGED for m in found),
        "zero_loss": zero_loss,
        "error": float(frame["error"].median()),
        "relative_error": float((frame["error"] / zero_loss).median()),
        "validation_loss": float(frame["validation_loss"].median()),
        "margin": float(frame["margin"].median()),
        "slowest_rate": float(frame["slowest_rate"].median()),
    }
