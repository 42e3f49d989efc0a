"""An ensemble: replicas of one model, with stacked weights, that train as one program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.errors import listed
from memsweep.learning.ensemble.flat_layout import Layout, bucket, padded
from memsweep.models.base import Group, Model, Part, Signature
from memsweep.streams import Stream


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
    """Replicas with stacked weights; rows beyond ``len(replicas)`` are dummies.

    Attributes:
        replicas: the real ones, in row order.
        model: computes for all rows at once.
        layout: position of each weight tensor in a row.
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

    def to(self, device: str) -> Ensemble:
        """The same ensemble on a device; initial weights are drawn on the processor, the same for every device."""
        tensors = {name: getattr(self, name).to(device) for name in ("initial", "exists", "real")}
        return replace(self, model=self.model.to(device), **tensors)

    def select(self, *of: Part | Group) -> Tensor:
        """Which entries of the flat weights belong to one of these parts or groups: ``[size]``, bool."""
        return self.layout.select(*of).to(self.initial.device)

    def spread(self, values: Sequence[Any]) -> Tensor:
        """One value per replica as a tensor ``[rows, ...]``; the dummies repeat the first."""
        tensors = [value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value)) for value in values]
        stacked = torch.stack(tensors)
        return torch.cat([stacked, stacked[:1].expand(self.rows - len(values), *stacked.shape[1:])])

    def weights_of(self, weights: Tensor, row: int) -> dict[str, Tensor]:
        """The weights of one row of ``[rows, size]`` as the plain module has them: no padding, on the processor."""
        exists, values = self.layout.named(self.exists[row].cpu()), self.layout.named(weights[row].cpu())
        return self.model.state_of({name: value[_box(exists[name])].clone() for name, value in values.items()})

    def with_weights(self, flat: Tensor, row: int, state: Mapping[str, Tensor]) -> Tensor:
        """A row ``[size]`` with the weights of a plain module in the places that are not padding.

        Args:
            flat: ``[size]``, which holds the padding.
            row: of the ensemble.
            state: as ``weights_of`` gives it, or the module's state dict.

        Raises:
            ValueError: other names or shapes than this row's; a buffer that is no weight has another value.
        """
        named = self.model.weights_from(state)
        exists, values = self.layout.named(self.exists[row].cpu()), self.layout.named(flat.cpu())
        own = {name: list(value[_box(exists[name])].shape) for name, value in values.items()}
        if problem := _difference(own, {name: list(value.shape) for name, value in named.items()}):
            raise ValueError(f"the given weights are not those of this model: {problem}")
        for name, value in values.items():
            value[_box(exists[name])] = named[name].to(value)
        return self.layout.flat(values).to(flat)

    def starting_from(self, state: Mapping[str, Tensor]) -> Ensemble:
        """The ensemble whose replicas all begin with the weights of a plain module; see ``with_weights``."""
        initial = self.initial.clone()
        for row in range(len(self.replicas)):
            initial[row] = self.with_weights(initial[row], row, state)
        initial[len(self.replicas) :] = initial[0]
        return replace(self, initial=initial)

    def part(self, indices: Sequence[int], rows: int) -> Ensemble:
        """An ensemble of some of the replicas, in an order of one's own.

        Args:
            indices: rows of the replicas.
            rows: of the part, at least as many; the others are dummies.
        """
        replicas = tuple(self.replicas[index] for index in indices)
        taken = [*indices, *[indices[0]] * (rows - len(indices))]
        model = type(self.model).ensemble_of([self.replicas[index].model for index in taken], self.model.signature)
        initial = self.initial[taken]
        return replace(
            self,
            replicas=replicas,
            model=model.to(initial.device, initial.dtype).eval(),
            initial=initial,
            exists=self.exists[taken],
            real=torch.arange(rows, device=initial.device) < len(replicas),
        )


def _difference(own: Mapping[str, list[int]], given: Mapping[str, list[int]]) -> str:
    """In which names and shapes weights differ from a model's, as the end of a sentence; empty where they do not."""
    missing, unknown = [sorted(set(one) - set(other)) for one, other in ((own, given), (given, own))]
    other = sorted(name for name in own if name in given and own[name] != given[name])
    parts = [f"they lack {listed(missing, 5)}"] if missing else []
    parts += [f"the model has no {listed(unknown, 5)}"] if unknown else []
    parts += [f"{name} has the shape {given[name]}, and the model's {own[name]}" for name in other[:3]]
    return "; ".join(parts)


def _box(exists: Tensor) -> tuple[slice, ...]:
    """The entries of a padded tensor that are not padding, which comes last along each axis."""
    sizes = exists.nonzero().amax(0).add(1).tolist() if exists.numel() else exists.shape
    return tuple(slice(size) for size in sizes)


def build(
    model_class: type[Model],
    replicas: Sequence[Replica],
    signature: Signature,
    dtype: torch.dtype,
    slots: Callable[[int], int] | None,
) -> list[Ensemble]:
    """Ensembles that hold all replicas.

    Args:
        model_class: the model of all replicas.
        replicas: of configs that differ in the model's pack fields only; of one config without ``slots``.
        signature: the task's shape.
        dtype: of weights.
        slots: number of rows of an ensemble by padded width: fixed shapes, so that numbers do not depend on the other
            replicas. None: one ensemble of exactly these replicas, for trials that always run alone.
    """
    if slots is None:
        return [_ensemble(model_class, replicas, signature, dtype, None, len(replicas))]
    groups: dict[int, list[Replica]] = {}
    for replica in replicas:
        groups.setdefault(bucket(replica.model.width), []).append(replica)
    ensembles = []
    for width, members in groups.items():
        rows = slots(width)
        for start in range(0, len(members), rows):
            own = members[start : start + rows]
            ensembles.append(_ensemble(model_class, own, signature, dtype, width, rows))
    return ensembles


def _ensemble(
    model_class: type[Model],
    replicas: Sequence[Replica],
    signature: Signature,
    dtype: torch.dtype,
    width: int | None,
    rows: int,
) -> Ensemble:
    initial_weights = [
        model_class.initial(replica.model, signature, Stream(replica.seed, "initial weights").generator())
        for replica in replicas
    ]
    configs = [replica.model for replica in replicas]
    roles = model_class.roles_at(configs[0], signature)
    layout, initial, exists = padded(roles, initial_weights, width or configs[0].width, rows)
    model = model_class.ensemble_of(configs + configs[:1] * (rows - len(configs)), signature)
    real = torch.arange(rows) < len(replicas)
    return Ensemble(tuple(replicas), model.to(dtype).eval(), layout, initial.to(dtype), exists, real)


def stability_margin(ensemble: Ensemble, weights: Tensor, alive: bool = False) -> Tensor:
    """1 - max |eigenvalue| over the modes, ``[rows]``; negative when the recurrence (linearized at rest) is unstable.

    Args:
        ensemble: of the models.
        weights: ``[rows, size]``.
        alive: leave out modes whose eigenvalue is exactly 1. Such a mode is a dead one of a clamped rate: it keeps
            its input for ever, and its gradient is zero, so a penalty on it would change nothing.

    Returns:
        nan where the model has no eigenvalues.
    """
    eigenvalues = ensemble.model.eigenvalues(ensemble.layout.named(weights))
    if eigenvalues is None:
        return torch.full_like(weights[:, 0], math.nan)
    sizes = _own(ensemble, eigenvalues.abs(), 0.0)
    if alive:
        sizes = torch.where(eigenvalues == 1.0, 0.0, sizes)
    return 1.0 - sizes.amax(-1)


def time_scales(ensemble: Ensemble, weights: Tensor) -> Tensor:
    """The shortest, the median and the longest time scale -1 / log |eigenvalue| of the modes, in steps: ``[rows, 3]``.

    Of an even number of modes the lower of the two medians. Infinite for a mode that does not decay.

    Args:
        ensemble, weights: as of ``stability_margin``.

    Returns:
        nan where the model has no eigenvalues.
    """
    eigenvalues = ensemble.model.eigenvalues(ensemble.layout.named(weights))
    if eigenvalues is None:
        return weights.new_full((len(weights), 3), math.nan)
    sizes = _own(ensemble, eigenvalues.abs(), math.nan)
    own = ~sizes.isnan()
    ends = torch.where(own, sizes, math.inf).amin(-1), torch.where(own, sizes, -math.inf).amax(-1)
    found = torch.stack([ends[0], sizes.nanmedian(-1).values, ends[1]], -1)
    scales = torch.where(found < 1.0, -1.0 / found.log(), math.inf)
    return torch.where(torch.isfinite(found), scales, math.nan)


def _own(ensemble: Ensemble, sizes: Tensor, padding: float) -> Tensor:
    """Numbers of modes ``[rows, M]`` with this value in the place of modes beyond a replica's own width."""
    if "width" not in ensemble.model.traits(ensemble.model.config).pack_fields:
        return sizes
    widths = ensemble.spread([replica.model.width for replica in ensemble.replicas])
    return torch.where(torch.arange(sizes.shape[-1]) < widths.unsqueeze(-1), sizes, padding)
