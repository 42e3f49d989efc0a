"""An ensemble: replicas of one model, with stacked weights, that train as one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.learning.layout import Layout, bucket, padded, slots
from memsweep.learning.streams import Stream
from memsweep.models.base import LinearModel, Model, Signature


@dataclass(frozen=True)
class Replica:
    """One model to be trained.

    Attributes:
        trial: position of its trial in the pack.
        model: its model Config.
        seed: seed of its initial weights.
        learning_rate: its optimizer's step size.
    """

    trial: int
    model: Any
    seed: int
    learning_rate: float


@dataclass(frozen=True)
class Ensemble:
    """Replicas at a fixed shape; rows beyond ``len(replicas)`` are dummies.

    Attributes:
        replicas: the real ones, in row order.
        model: computes for all rows at once.
        layout: where each weight tensor lies.
        initial: ``[rows, size]``, initial weights.
        exists: ``[rows, size]``, bool: padding is False.
        real: ``[rows]``, bool: dummies are False.
    """

    replicas: tuple[Replica, ...]
    model: Model
    layout: Layout
    initial: Tensor
    exists: Tensor
    real: Tensor

    @property
    def rows(self) -> int:
        return self.initial.shape[0]

    def spread(self, values: Sequence[Any]) -> Tensor:
        """One value per replica as a tensor ``[rows, ...]``, the dummies repeating the first."""
        tensors = [value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value)) for value in values]
        stacked = torch.stack(tensors)
        return torch.cat([stacked, stacked[:1].expand(self.rows - len(values), *stacked.shape[1:])])


def build(
    model_class: type[Model], replicas: Sequence[Replica], signature: Signature, dtype: torch.dtype, stackable: bool
) -> list[Ensemble]:
    """Ensembles that hold all replicas.

    Args:
        model_class: the model of all replicas.
        replicas: any widths and parameterizations when ``stackable``; of one config otherwise.
        signature: the task's shape.
        dtype: of weights.
        stackable: the model computes its response for stacked weights of mixed configs (a linear model).
    """
    groups: dict[int, list[Replica]] = {}
    for replica in replicas:
        groups.setdefault(bucket(replica.model.width), []).append(replica)
    ensembles = []
    for width, members in groups.items():
        rows = slots(width) if stackable else len(members)
        for start in range(0, len(members), rows):
            part = members[start : start + rows]
            ensembles.append(_ensemble(model_class, part, signature, dtype, width if stackable else None, rows))
    return ensembles


def _ensemble(
    model_class: type[Model],
    replicas: Sequence[Replica],
    signature: Signature,
    dtype: torch.dtype,
    width: int | None,
    rows: int,
) -> Ensemble:
    drawn = [
        model_class.initial(replica.model, signature, Stream(replica.seed, "initial weights").generator())
        for replica in replicas
    ]
    layout, initial, exists = padded(model_class.roles, drawn, width or replicas[0].model.width, rows)
    configs = [replica.model for replica in replicas]
    if width is not None and issubclass(model_class, LinearModel):
        model: Model = model_class.ensemble_of(configs + configs[:1] * (rows - len(configs)), signature)
    else:
        model = model_class(configs[0], signature)
    real = torch.arange(rows) < len(replicas)
    return Ensemble(tuple(replicas), model.to(dtype), layout, initial.to(dtype), exists, real)


def stability_margin(ensemble: Ensemble, weights: Tensor) -> Tensor:
    """1 - max |eigenvalue| over all modes that exist, ``[rows]``; negative when the recurrence is unstable."""
    assert isinstance(ensemble.model, LinearModel), "please report this: a margin was asked of a nonlinear model"
    sizes = ensemble.model.eigenvalues(ensemble.layout.named(weights)).abs()
    widths = ensemble.spread([replica.model.width for replica in ensemble.replicas])
    exists = torch.arange(sizes.shape[-1]) < widths.unsqueeze(-1)
    return 1.0 - torch.where(exists, sizes, 0.0).amax(-1)
