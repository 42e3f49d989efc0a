"""The parts of a deep model's layer around its unit: norms, gates and dropout; gates act on one step at a time.

A norm over a batch counts every step of every sequence alike, including the padding of shorter sequences. A mask of
dropout depends on replica, step of training, place and sequence alone, and holds at all steps of its sequence: a batch
computed in pieces, or step by step, drops what the whole one does.

Letters: see memsweep.models.deep.unit; O features that come out, R replicas, P places at which something is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.models.base import Part, Role, Weights
from memsweep.models.initialization import lecun_normal
from memsweep.recurrence.layer import affine
from memsweep.streams import Stream

FULL_GLU, HALF_GLU1, HALF_GLU2, GELU, NONE = "full_glu", "half_glu1", "half_glu2", "gelu", "none"
MIXINGS = (FULL_GLU, HALF_GLU1, HALF_GLU2, GELU, NONE)
PLACES = 2
"""Places of a layer at which features are dropped: the input and the output of the gates."""

_MAPS = {FULL_GLU: ("mix", "gate"), HALF_GLU1: ("gate",), HALF_GLU2: ("gate",), GELU: (), NONE: ()}


def mixing_roles(mixing: str) -> dict[str, Role]:
    """Weights of the affine maps of one layer."""
    roles = {}
    for name in _MAPS[mixing]:
        roles[f"{name}_weight"] = Role(Part.READOUT, ("feature", "feature"))
        roles[f"{name}_bias"] = Role(Part.BIAS, ("feature",))
    return roles


def mixing_initial(mixing: str, features: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Their initial weights, as of ``affine_initial``."""
    return {
        key: value for name in _MAPS[mixing] for key, value in affine_initial(name, features, features, rng).items()
    }


def apply_gates(mixing: str, weights: Weights, a_NBTF: Tensor, drop: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Applies the gates of a layer to its unit's answers.

    Args:
        mixing: one of ``MIXINGS``.
        weights: of the layer, ``[N, *shape]`` each.
        a_NBTF: the unit's answers.
        drop: takes features and a place, 0 or 1.

    Returns:
        ``[N, B, T, F]``; the gelu is the one with tanh, flax's default.
    """
    if mixing == NONE:
        return a_NBTF
    activated = drop(functional.gelu(a_NBTF, approximate="tanh"), 0)
    if mixing == GELU:
        return activated
    if mixing == FULL_GLU:  # both maps have one input: one product [N, B, T, 2 F], and the gate in one pass over it
        maps = [torch.cat([weights[f"{name}_{what}"] for name in _MAPS[mixing]], 1) for what in ("weight", "bias")]
        return drop(functional.glu(affine(activated, *maps), -1), 1)
    gate = torch.sigmoid(affine(activated, weights["gate_weight"], weights["gate_bias"]))
    return drop((activated if mixing == HALF_GLU1 else a_NBTF) * gate, 1)


def affine_initial(name: str, outputs: int, inputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Of an affine map: normal with variance 1 / inputs, cut off at two deviations; bias zero (flax's dense layers)."""
    return {f"{name}_weight": lecun_normal(outputs, inputs, rng), f"{name}_bias": np.zeros(outputs)}


LAYER, BATCH, NONE = "layer", "batch", "none"
NORMS = (LAYER, BATCH, NONE)
MOMENTUM = 0.1
"""Share of a batch's statistics in the running ones, as torch.nn.BatchNorm1d has it."""
_LAYER_EPSILON = 1e-6  # flax's LayerNorm; torch's has 1e-5
_BATCH_EPSILON = 1e-5  # flax's and torch's BatchNorm

_GAIN, _BIAS, _MEAN, _VARIANCE = "norm_weight", "norm_bias", "norm_mean", "norm_variance"


def norm_roles(norm: str) -> dict[str, Role]:
    """Weights of one normalization."""
    if norm == NONE:
        return {}
    roles = {_GAIN: Role(Part.GAIN, ("feature",)), _BIAS: Role(Part.BIAS, ("feature",))}
    if norm == BATCH:
        roles |= {name: Role(Part.STATISTIC, ("feature",)) for name in (_MEAN, _VARIANCE)}
    return roles


def norm_initial(norm: str, features: int) -> dict[str, np.ndarray]:
    """A normalization that changes nothing of features with mean 0 and variance 1."""
    ones, zeros = np.ones(features), np.zeros(features)
    initial = {_GAIN: ones, _BIAS: zeros, _MEAN: zeros, _VARIANCE: ones}
    return {name: initial[name] for name in norm_roles(norm)}


class Norm:
    """One normalization; over a batch it keeps the statistics of the last training batch."""

    def __init__(self, norm: str) -> None:
        self.norm = norm
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, weights: Weights, x_NBTF: Tensor, training: bool) -> Tensor:
        """The features, normalized, times a gain and plus a bias: ``[N, B, T, F]``.

        Args:
            weights: of this normalization, ``[N, F]`` each.
            x_NBTF: features.
            training: take the statistics of this batch, not the running ones.
        """
        if self.norm == NONE:
            return x_NBTF
        gain, bias = weights[_GAIN][:, None, None], weights[_BIAS][:, None, None]
        if self.norm == LAYER:
            return torch.addcmul(bias, functional.layer_norm(x_NBTF, x_NBTF.shape[-1:], eps=_LAYER_EPSILON), gain)
        # folded into one scale and one shift per feature, [N, 1, 1, F]: one pass over the features
        mean, variance = self._batch_statistics(x_NBTF) if training else self._running_statistics(weights)
        scale = gain * torch.rsqrt(variance + _BATCH_EPSILON)
        return torch.addcmul(bias - mean * scale, x_NBTF, scale)

    def updated_statistics(self, weights: Weights) -> Mapping[str, Tensor]:
        """The running statistics after the last batch in training, by name; none before the first."""
        if self._last is None:
            return {}
        names = (_MEAN, _VARIANCE)
        return {name: weights[name].lerp(last, MOMENTUM) for name, last in zip(names, self._last, strict=True)}

    def _batch_statistics(self, x_NBTF: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance over batch and time, ``[N, 1, 1, F]``; the running one is the unbiased variance."""
        variance, mean = torch.var_mean(x_NBTF, (1, 2), correction=0, keepdim=True)
        count = x_NBTF.shape[1] * x_NBTF.shape[2]
        unbiased = variance.detach() * (count / max(count - 1, 1))
        self._last = (mean.detach()[:, 0, 0], unbiased[:, 0, 0])
        return mean, variance

    def _running_statistics(self, weights: Weights) -> tuple[Tensor, Tensor]:
        """Running mean and variance over all training batches so far, as constants."""
        return weights[_MEAN].detach()[:, None, None], weights[_VARIANCE].detach()[:, None, None]


def clashes(around: Mapping[str, Role], unit: str, roles: Mapping[str, Role]) -> Iterator[str]:
    """Weights of a unit, and of the layer around it, that have one name: a sentence each."""
    for name in sorted(roles.keys() & around.keys()):
        yield (
            f"the unit {unit} has a weight {name}, and so has the norm or the mixing of a layer: rename it in the unit"
        )


class Dropout:
    """The elements that a model drops in one training step; before the first ``start_step``, none.

    Args:
        share: of the features that are dropped; the others grow by 1 / (1 - share).
        places: P.
        features: F.
    """

    def __init__(self, share: float, places: int, features: int) -> None:
        self.share, self.shape = share, (places, features)
        self.start_step([], 0)

    def start_step(self, seeds: Sequence[int], step: int) -> None:
        """Draws the masks of one training step, for replicas with these seeds."""
        active = seeds if self.share else []
        self._generators = [Stream(seed, "dropout").generator(step) for seed in active]
        self._masks_RBPF = np.zeros((len(self._generators), 0, *self.shape), bool)

    def apply(self, x_NBTF: Tensor, place: int, first_row: int) -> Tensor:
        """Sets some features to zero and scales the others; copies of a replica share its mask.

        Args:
            x_NBTF: ``[N, B, T, F]``.
            place: 0 ... P-1.
            first_row: where in the batch the first sequence of x stands.
        """
        if not self._generators:
            return x_NBTF
        rows = slice(first_row, first_row + x_NBTF.shape[1])
        mask_RBF = torch.from_numpy(self._masks(rows.stop)[:, rows, place])
        scale_RBF = mask_RBF.to(x_NBTF) / (1.0 - self.share)
        return x_NBTF * scale_RBF.repeat_interleave(x_NBTF.shape[0] // len(scale_RBF), 0).unsqueeze(2)

    def factors_of_rows(self, first_row: int, like_BTI: Tensor) -> Tensor | None:
        """The factors by which ``apply`` multiplies features, ``[R, B, P, F]``; None where nothing is dropped.

        Args:
            first_row: where in the batch the first sequence stands.
            like_BTI: the sequences, with numbers of the type that is wanted.
        """
        if not self._generators:
            return None
        last_row = first_row + len(like_BTI)
        return torch.from_numpy(self._masks(last_row)[:, first_row:last_row]).to(like_BTI) / (1.0 - self.share)

    def _masks(self, rows: int) -> np.ndarray:
        """Masks of at least so many rows of the batch; more rows continue the same random numbers."""
        more = rows - self._masks_RBPF.shape[1]
        if more > 0:
            drawn = np.stack([generator.random((more, *self.shape)) for generator in self._generators])
            self._masks_RBPF = np.concatenate([self._masks_RBPF, drawn >= self.share], 1)
        return self._masks_RBPF
