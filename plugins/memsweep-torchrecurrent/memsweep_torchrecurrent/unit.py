"""The layers of torchrecurrent as units of deep models.

The weights are those of the layer's one cell, under its own names, and a readout of its answers.

Letters: N replicas and copies, B batch, T time, F features of the layer's input, M width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torchrecurrent
from torch import Tensor, nn

from memsweep.config.core.fields import setting
from memsweep.models.base import Part, Role, Weights
from memsweep.models.deep.unit import State, Unit
from memsweep.registry import register_unit

_WITHOUT_STEPS = ("TGRU", "TLSTM", "tauGRU")
"""Layers that need more than the state that they give: earlier inputs, or a history of states."""
LAYERS = tuple(
    sorted({name.removesuffix("Cell") for name in torchrecurrent.__all__ if name.endswith("Cell")} - {*_WITHOUT_STEPS})
)
"""The names of the layers; each has a cell of its name."""
_READ_INPUTS = ("weight_ih", "weight_res")
"""The weights that multiply inputs; other weights multiply states."""
_CELL = "cells.0."
_READOUT = "readout"


@register_unit("torchrecurrent")
class TorchrecurrentUnit(Unit):
    """A recurrent layer of the package torchrecurrent, with a readout to the features."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A layer of torchrecurrent, by its name there."""

        layer: str = setting("MGU", "the layer, by its name in torchrecurrent", choices=LAYERS)

    def __init__(self, config: Any, width: int, features: int) -> None:
        super().__init__(config, width, features)
        self._made: dict[tuple[torch.dtype, torch.device], nn.Module] = {}

    @classmethod
    def refusal(cls, config: Any, width: int, features: int) -> str | None:
        """IntersectionRNN adds inputs to states."""
        if config.layer == "IntersectionRNN" and width != features:
            return (
                f"IntersectionRNN needs as many units as features, got width {width} and {features} features: "
                "make them equal"
            )
        return None

    def roles(self) -> Mapping[str, Role]:
        found = {name: self._role(name, tensor) for name, tensor in self._parameters(0).items()}
        return {**found, _READOUT: Role(Part.READOUT, ("feature", "width"))}

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The layer's own initialization, with torch seeded by the generator; a normal readout of variance 1/M."""
        del horizon  # the layers are drawn alike for all lengths
        drawn = {name: tensor.numpy() for name, tensor in self._parameters(int(rng.integers(2**63))).items()}
        return {**drawn, _READOUT: rng.standard_normal((self.features, self.width)) / np.sqrt(self.width)}

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        return self._over(weights, x_NBTF, None)[0]

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        before = None if state is None else [state[name].unsqueeze(1) for name in sorted(state)]
        answers_NB1F, after = self._over(weights, x_NBF.unsqueeze(2), before)
        return answers_NB1F.squeeze(2), {str(place): each.squeeze(1) for place, each in enumerate(after)}

    def _over(self, weights: Weights, x_NBTF: Tensor, before: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """Answers ``[N, B, T, F]``, and the states after the last step, ``[N, 1, B, M]`` each."""
        layer = self._layer_like(x_NBTF)

        def of_one(own: dict[str, Tensor], x_BTF: Tensor, states: Any) -> tuple[Tensor, list[Tensor]]:
            given = None if states is None else states[0] if len(states) == 1 else tuple(states)
            h_BTM, after = torch.func.functional_call(layer, own, (x_BTF, given))
            return h_BTM, [after] if isinstance(after, Tensor) else list(after)

        own = {f"{_CELL}{name}": weight for name, weight in weights.items() if name != _READOUT}
        h_NBTM, after = torch.func.vmap(of_one, in_dims=(0, 0, None if before is None else 0))(own, x_NBTF, before)
        return torch.einsum("nbtm,nfm->nbtf", h_NBTM, weights[_READOUT]), after

    def _role(self, name: str, tensor: Tensor) -> Role:
        """Axes have names of their own: gates are stacked along the first one, so that no padding fits."""
        axes = tuple(f"{name} {axis}" for axis in range(tensor.dim()))
        if name.startswith("bias"):
            return Role(Part.BIAS, axes)
        if name in _READ_INPUTS:
            return Role(Part.ENCODER, axes)
        return Role(Part.RECURRENT, axes, diagonal=tensor.dim() < 2)

    def _parameters(self, seed: int) -> dict[str, Tensor]:
        made = self._new(seed, torch.float64).named_parameters()
        return {name.removeprefix(_CELL): tensor.detach() for name, tensor in made}

    def _layer_like(self, like: Tensor) -> nn.Module:
        """A layer in a tensor's precision and place, for its code and its buffers: weights replace its parameters."""
        kind = like.dtype, like.device
        if kind not in self._made:
            self._made[kind] = self._new(0, like.dtype).to(like.device)
        return self._made[kind]

    def _new(self, seed: int, dtype: torch.dtype) -> nn.Module:
        """A layer of the seed, all of it in one precision; torch's random numbers go on as if none was made."""
        make: Any = getattr(torchrecurrent, self.config.layer)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made: nn.Module = make(self.features, self.width, batch_first=True, dtype=dtype)
        return made.to(dtype)
