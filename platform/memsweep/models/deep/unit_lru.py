"""The LRU as a unit of deep models (arXiv 2303.06349, 2305.15947): complex modes, each by itself.

    h_t = lambda h_{t-1} + gamma (B x_t),   y_t = Re(C h_t) + D x_t,   lambda = exp(-exp(nu) + i exp(theta))

Parts: ``eigenvalue`` lambda ``[N, M]`` and ``encoder`` B ``[N, M, F]``, complex, and ``gain`` gamma ``[N, M]``, real.
D is one number for each feature, and there is no bias: the layers around have those. ``memsweep.models.modal.lru`` is
the same recurrence as a model of its own, where the ring's initialization and gamma are described.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import OnlineUnit, Parts, mapped
from memsweep.models.modal.lru import EXACT, TRAINED, RingConfig, balanced_modes, eigenvalue, log_gamma, ring_weights
from memsweep.recurrence.scan import linear_scan
from memsweep.registry import register_unit


@register_unit("lru")
class LRUUnit(OnlineUnit):
    """Linear recurrent unit: independent complex modes inside the unit circle."""

    elementwise = True
    part_names = frozenset({"eigenvalue", "gain", "encoder"})
    forgetting = frozenset({"eigenvalue", "gain"})

    @dataclass(frozen=True, kw_only=True)
    class Config(RingConfig):
        """Independent complex modes that decay and turn."""

        normalize: bool = setting(
            True, "scale the input of a mode by gamma, which begins as sqrt(1 - |eigenvalue|^2): unit variance"
        )
        gamma: str = setting(
            TRAINED,
            "with normalize: trained (log gamma is a weight, as published) or exact (gamma follows the eigenvalue)",
            choices=(TRAINED, EXACT),
        )

    @property
    def _trains_gamma(self) -> bool:
        return bool(self.config.normalize and self.config.gamma == TRAINED)

    @classmethod
    def is_linear(cls, config: Config) -> bool:
        return True

    def roles(self) -> Mapping[str, Role]:
        recurrent, into = Group.RECURRENT, Group.INPUT
        roles = {
            "nu": Role(Part.RECURRENT, ("width",), diagonal=True, rate=True, group=recurrent),
            "theta": Role(Part.RECURRENT, ("width",), diagonal=True, group=recurrent),
            "encoder_re": Role(Part.ENCODER, ("width", "feature"), group=into),
            "encoder_im": Role(Part.ENCODER, ("width", "feature"), group=into),
            "readout_re": Role(Part.READOUT, ("feature", "width")),
            "readout_im": Role(Part.READOUT, ("feature", "width")),
            "skip": Role(Part.GAIN, ("feature",)),
        }
        return roles | ({"gamma_log": Role(Part.GAIN, ("width",), group=recurrent)} if self._trains_gamma else {})

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The ring of arXiv 2303.06349, Lemma 3.2; B, C and D as in the code of arXiv 2305.15947."""
        del horizon  # eigenvalues lie on the ring whatever the length
        nu, theta = ring_weights(self.config, self.width, rng)
        near, far = 1.0 / math.sqrt(2.0 * self.features), 1.0 / math.sqrt(self.width)
        into, out = (self.width, self.features), (self.features, self.width)
        weights = {
            "nu": nu,
            "theta": theta,
            "encoder_re": rng.standard_normal(into) * near,
            "encoder_im": rng.standard_normal(into) * near,
            "readout_re": rng.standard_normal(out) * far,
            "readout_im": rng.standard_normal(out) * far,
            "skip": rng.standard_normal(self.features),
        }
        return weights | ({"gamma_log": 0.5 * np.log(-np.expm1(-2.0 * np.exp(nu)))} if self._trains_gamma else {})

    def parts(self, weights: Weights) -> dict[str, Tensor]:
        if self._trains_gamma:
            gain = torch.exp(weights["gamma_log"])
        else:
            gain = torch.exp(log_gamma(weights["nu"])) if self.config.normalize else torch.ones_like(weights["nu"])
        return {
            "eigenvalue": eigenvalue(weights["nu"], weights["theta"]),
            "gain": gain,
            "encoder": torch.complex(weights["encoder_re"], weights["encoder_im"]),
        }

    def states(self, parts: Parts, x_NBTF: Tensor) -> Tensor:
        return linear_scan(parts["eigenvalue"], self._drive(parts, x_NBTF))

    def advance(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor, recurrent: bool = True) -> Tensor:
        kept_NBTM = parts["eigenvalue"][:, None, None] * before_NBTM
        return (kept_NBTM if recurrent else kept_NBTM.detach()) + self._drive(parts, x_NBTF)

    def slope(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor) -> Tensor:
        return parts["eigenvalue"][:, None, None].expand_as(before_NBTM)

    def immediate(self, parts: Parts, x_NBF: Tensor, before_NBM: Tensor) -> dict[str, Tensor]:
        gain_NM = parts["gain"]
        return {
            "eigenvalue": before_NBM,
            "gain": _product(parts["encoder"], x_NBF.unsqueeze(2)).squeeze(2),
            "encoder": (gain_NM[:, None, :, None] * x_NBF.unsqueeze(2)).to(before_NBM.dtype),
        }

    def answers(self, weights: Weights, states_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        # Re(C h) = C_re h_re - C_im h_im: real products of the states as they lie in memory, without an imaginary part
        readout_NFM = torch.stack([weights["readout_re"], -weights["readout_im"]], -1).flatten(-2)
        real_NBTM = torch.view_as_real(states_NBTM).flatten(-2)
        return torch.addcmul(mapped(readout_NFM, real_NBTM), weights["skip"][:, None, None], x_NBTF)

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        return balanced_modes(weights)

    def eigenvalues(self, weights: Weights) -> Tensor:
        return eigenvalue(weights["nu"], weights["theta"])

    def _drive(self, parts: Parts, x_NBTF: Tensor) -> Tensor:
        return _product(parts["gain"].unsqueeze(-1) * parts["encoder"], x_NBTF)


def _product(matrix_NMF: Tensor, x_NBTF: Tensor) -> Tensor:
    """A complex matrix times real vectors, by one real product that leaves the answer as complex numbers lie."""
    real_NMF = torch.view_as_real(matrix_NMF).movedim(-1, 2).flatten(1, 2)  # rows: M times real, imaginary
    return torch.view_as_complex(mapped(real_NMF, x_NBTF).unflatten(-1, (-1, 2)))
