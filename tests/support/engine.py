"""Small engine set-ups that several tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.core.reflect import arguments_of
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.learning.ensemble.flat_layout import slots
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.learning.loss.carried import task_loss_for
from memsweep.models.base import Model, Signature
from paths import ROOT, TESTS

registry.discover(ROOT)
NETS = TESTS / "support" / "nets"
M = TypeVar("M", bound=Model)
C = TypeVar("C")


def usual_model(name: str, **fields: Any) -> Any:
    """The Config of a registered model with its defaults, and with what it requires."""
    required = {"module": {"factory": f"{NETS}/min_gru.py:MinGRU"}}.get(name, {})
    return registry.get(registry.MODEL, name).Config(**required | fields)


def usual_unit(name: str, **fields: Any) -> Any:
    """The same of a recurrent unit."""
    required = {"module": {"factory": f"{NETS}/mixer.py:Mixer"}}.get(name, {})
    return registry.get(registry.UNIT, name).Config(**required | fields)


def task_config(**fields: Any) -> Any:
    return registry.get(registry.TASK, "linear_functional").Config(**{"horizon": 20} | fields)


def model_config(parameterization: str = "exp", **fields: Any) -> Any:
    part = registry.get(registry.PARAMETERIZATION, parameterization).Config()
    return registry.get(registry.MODEL, "diagonal_rnn").Config(**{"width": 3} | fields, parameterization=part)


TRAINING = {"seeds": 2, "steps": 60, "batch_size": 32, "validation_size": 64, "validate_every": 10}
PERTURBATION = {"radii": RadiiConfig(from_=1e-3, to=1.0, count=6), "starts": 1, "ascent_steps": 3}


def section(cls: type[C], **fields: Any) -> C:
    """A section of a trial with these fields, those of flat measures among them."""
    return cls(**arguments_of(cls, fields))


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
        training=section(TrainingConfig, **TRAINING | (training or {})),
        perturbation=section(PerturbationConfig, **PERTURBATION | (perturbation or {})),
    )


def stacked(
    models: list[Any],
    task: Any = None,
    seeds: list[int] | None = None,
    learning_rate: float = 0.01,
    rows: Callable[[int], int] = slots,
) -> tuple[list[Ensemble], TaskLoss]:
    """Ensembles of diagonal RNNs on a linear functional, on the exact path; ``rows`` as in ``ensemble.build``."""
    task_class = registry.get(registry.TASK, "linear_functional")
    model_class = registry.get(registry.MODEL, "diagonal_rnn")
    built = task_class(task or task_config())
    numbers = seeds or list(range(len(models)))
    replicas = [Replica(0, model, seed, learning_rate) for model, seed in zip(models, numbers, strict=True)]
    ensembles = build(model_class, replicas, Signature(1, 1, built.horizon), torch.float64, rows)
    return ensembles, task_loss_for([built], True, torch.float64)


def noise(*shape: int, seed: int = 3) -> Tensor:
    """Standard normal numbers, float64."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def with_random(words: tuple[str, ...], model: M, seed: int) -> M:
    """The model with random numbers on the weights whose names hold any of these words: zeros would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(word in name for word in words):
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return model.eval()


def moved(model: M, seed: int) -> M:
    """The model with every weight a little away from its start."""
    rng = np.random.default_rng(seed + 1000)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.from_numpy(0.1 * rng.standard_normal(tuple(weight.shape))))
    return model.eval()


def weights_of(*models: Model) -> dict[str, Tensor]:
    """The weights of models of one shape, stacked, without gradients."""
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([one[name].detach() for one in named]) for name in named[0]}


def whole(data: Data) -> ShardedBatch[Data]:
    """Prepared data as a batch of one shard."""
    return ShardedBatch([(1.0, data)])
