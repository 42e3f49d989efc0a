"""Small engine set-ups that several tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from memsweep import registry
from memsweep.config.schema import PerturbationConfig, RadiiConfig, TrainingConfig, TrialConfig
from memsweep.learning.ensemble import Ensemble, Replica, build
from memsweep.learning.layout import slots
from memsweep.learning.problem import Problem, problem_for
from memsweep.models.base import Signature

WORKSPACE = Path(__file__).parents[1]
registry.discover(WORKSPACE)


def task_config(**fields: Any) -> Any:
    return registry.get(registry.TASK, "linear_functional").Config(**{"horizon": 20} | fields)


def model_config(parameterization: str = "exp", **fields: Any) -> Any:
    part = registry.get(registry.PARAMETERIZATION, parameterization).Config()
    return registry.get(registry.MODEL, "diagonal_rnn").Config(**{"width": 3} | fields, parameterization=part)


def trial(
    *,
    task: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    perturbation: dict[str, Any] | None = None,
) -> TrialConfig:
    """A trial that runs in a second or two."""
    return TrialConfig(
        task=task_config(**task or {}),
        model=model_config(**model or {}),
        training=TrainingConfig(
            **{"seeds": 2, "steps": 60, "batch_size": 32, "validation_size": 64, "validate_every": 10}
            | (training or {})
        ),
        perturbation=PerturbationConfig(
            **{"radii": RadiiConfig(from_=1e-3, to=1.0, count=6), "starts": 1, "ascent_steps": 3} | (perturbation or {})
        ),
    )


def stacked(
    models: list[Any],
    task: Any = None,
    seeds: list[int] | None = None,
    learning_rate: float = 0.01,
    rows: Callable[[int], int] = slots,
) -> tuple[list[Ensemble], Problem]:
    """Ensembles of diagonal RNNs on a linear functional, on the exact path; ``rows`` as in ``ensemble.build``."""
    task_class = registry.get(registry.TASK, "linear_functional")
    model_class = registry.get(registry.MODEL, "diagonal_rnn")
    built = task_class(task or task_config())
    numbers = seeds or list(range(len(models)))
    replicas = [Replica(0, model, seed, learning_rate) for model, seed in zip(models, numbers, strict=True)]
    ensembles = build(model_class, replicas, Signature(1, 1, built.horizon), torch.float64, rows)
    return ensembles, problem_for([built], True, torch.float64)
