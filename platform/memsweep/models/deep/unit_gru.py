"""The GRU as a unit of deep models (arXiv 1406.1078), as in the code published with arXiv 2305.15947.

    r = sigmoid(W_r x_t + U_r h_{t-1} + b_r),   z = sigmoid(W_z x_t + U_z h_{t-1} + b_z),
    n = tanh(W_n x_t + b_n + r (U_n h_{t-1} + c)),   h_t = (1 - z) h_{t-1} + z n,   y_t = h_t

z is the share of a state that is new; torch.nn.GRU calls the other share z. With W_z, U_z and b_z negated, and zeros
for its biases of U_r and U_z, its states are the same. The layer goes on with the states themselves, so that width and
features are one number.

Parts are the weights: ``matrix_*`` U ``[N, M, M]``, ``encoder_*`` W ``[N, M, F]``, ``bias_*`` b and ``bias_recalled`` c
``[N, M]``, for ``reset``, ``update`` and ``candidate``.

Letters: see memsweep.models.deep.unit; G = 3 M, the three of them in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.models import spectrum
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.no_encoder.first_layer import reads_inputs
from memsweep.models.deep.unit import OnlineUnit, Parts, mapped
from memsweep.models.initialization import lecun_normal
from memsweep.recurrence.gated.gru import Gates, gru_states
from memsweep.recurrence.layer import affine
from memsweep.registry import register_unit

_GATES = ("reset", "update", "candidate")
_MATRICES, _ENCODERS, _BIASES = ([f"{kind}_{gate}" for gate in _GATES] for kind in ("matrix", "encoder", "bias"))
_RECALLED = "bias_recalled"


@register_unit("gru")
class GRUUnit(OnlineUnit):
    """Gated recurrent unit: every state decides how much of it is renewed, and from how much of the past."""

    answers_with_states = True
    part_names = frozenset({*_MATRICES, *_ENCODERS, *_BIASES, _RECALLED})
    forgetting = frozenset({*_MATRICES, _RECALLED})

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Gates that decide how much of a state is renewed; width and features are one number."""

    @classmethod
    def refusal(cls, config: Config, width: int, features: int) -> str | None:
        if width == features:
            return None
        return (
            f"the unit gru answers with its states, so that width and features are one number, but width is {width} "
            f"and features is {features}: give both the same value"
        )

    def roles(self) -> Mapping[str, Role]:
        recurrent, into = Group.RECURRENT, Group.INPUT
        roles = {name: Role(Part.RECURRENT, ("width", "width"), group=recurrent) for name in _MATRICES}
        roles |= {name: Role(Part.ENCODER, ("width", "feature"), group=into) for name in _ENCODERS}
        roles |= {name: Role(Part.BIAS, ("width",), group=into) for name in _BIASES}
        return roles | {_RECALLED: Role(Part.BIAS, ("width",), group=recurrent)}

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """As published, flax's defaults for dense layers: no matrix orthogonal, all biases zero."""
        del horizon  # gates are drawn alike for all lengths
        weights = {name: lecun_normal(self.width, self.width, rng) for name in _MATRICES}
        weights |= {name: lecun_normal(self.width, self.features, rng) for name in _ENCODERS}
        return weights | {name: np.zeros(self.width) for name in (*_BIASES, _RECALLED)}

    def parts(self, weights: Weights) -> dict[str, Tensor]:
        return {name: weights[name] for name in (*_MATRICES, *_ENCODERS, *_BIASES, _RECALLED)}

    def states(self, parts: Parts, x_NBTF: Tensor) -> Tensor:
        encoder, bias, matrix = (_joined(parts, names) for names in (_ENCODERS, _BIASES, _MATRICES))
        return gru_states(x_NBTF, encoder, bias, matrix, parts[_RECALLED])

    def advance(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor, recurrent: bool = True) -> Tensor:
        held = {name: part if recurrent else part.detach() for name, part in parts.items() if name in self.forgetting}
        earlier_NBTM = before_NBTM if recurrent else before_NBTM.detach()
        gates = self._gates({**parts, **held}, x_NBTF, earlier_NBTM)
        return torch.lerp(earlier_NBTM, gates.candidate, gates.update)

    def slope(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor) -> Tensor:
        gates = self._gates(parts, x_NBTF, before_NBTM)
        own = [parts[name].diagonal(dim1=-2, dim2=-1)[:, None, None] for name in _MATRICES]
        # dh_t/dh_{t-1} = (1 - z) I + the gates' slopes times the rows of U; its diagonal needs that of U alone
        through = (slope * matrix for slope, matrix in zip(_of_images(gates, before_NBTM), own, strict=True))
        return 1.0 - gates.update + sum(through)

    def immediate(self, parts: Parts, x_NBF: Tensor, before_NBM: Tensor) -> dict[str, Tensor]:
        earlier_NB1M = before_NBM.unsqueeze(2)
        gates = self._gates(parts, x_NBF.unsqueeze(2), earlier_NB1M)
        driven = [slope.squeeze(2) for slope in gates.slopes(earlier_NB1M)]
        images = [slope.squeeze(2) for slope in _of_images(gates, earlier_NB1M)]
        slopes = dict(zip(_BIASES, driven, strict=True)) | {_RECALLED: images[-1]}
        slopes |= {name: _outer(slope, x_NBF) for name, slope in zip(_ENCODERS, driven, strict=True)}
        return slopes | {name: _outer(slope, before_NBM) for name, slope in zip(_MATRICES, images, strict=True)}

    def answers(self, weights: Weights, states_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        return states_NBTM

    def eigenvalues(self, weights: Weights) -> Tensor:
        """Of dh_t / dh_{t-1} at state and input zero, which is at rest as long as the candidate's biases are zero."""
        still_N11M = torch.zeros_like(weights[_RECALLED])[:, None, None]
        if reads_inputs(self):  # an input of zero, whatever its size, drives no gate
            weights = {**weights, **dict.fromkeys(_ENCODERS, torch.zeros_like(weights[_MATRICES[0]]))}
        gates = self._gates(weights, still_N11M, still_N11M)
        rows = (slope_N11M[:, 0, 0, :, None] for slope_N11M in _of_images(gates, still_N11M))
        jacobian_NMM = torch.diag_embed(1.0 - gates.update[:, 0, 0])
        for row_NM1, name in zip(rows, _MATRICES, strict=True):
            jacobian_NMM = jacobian_NMM + row_NM1 * weights[name]
        return spectrum.eigenvalues(jacobian_NMM)

    def _gates(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor) -> Gates:
        driven = affine(x_NBTF, _joined(parts, _ENCODERS), _joined(parts, _BIASES)).chunk(3, -1)
        images = mapped(_joined(parts, _MATRICES), before_NBTM).chunk(3, -1)
        reset, update = (torch.sigmoid(drive + image) for drive, image in zip(driven[:2], images[:2], strict=True))
        recalled = images[2] + parts[_RECALLED][:, None, None]
        return Gates(reset, update, torch.tanh(driven[2] + reset * recalled), recalled)


def _joined(parts: Parts, names: list[str]) -> Tensor:
    """Parts of the three gates, one below the other."""
    return torch.cat([parts[name] for name in names], 1)


def _of_images(gates: Gates, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives of h_t by U_r h_{t-1}, U_z h_{t-1} and U_n h_{t-1}: the last reaches h_t through the reset gate."""
    of_reset, of_update, of_candidate = gates.slopes(before)
    return of_reset, of_update, of_candidate * gates.reset


def _outer(slope_NBM: Tensor, source_NBK: Tensor) -> Tensor:
    return slope_NBM.unsqueeze(-1) * source_NBK.unsqueeze(2)
