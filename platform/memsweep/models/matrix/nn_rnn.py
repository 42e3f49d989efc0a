"""The non-normal RNN: eigenvalues on circles of trained size, and a triangle that feeds modes forward.

h_t = rho_t sigma(U e(x_t) + b + V h_{t-1}),   V = P Theta P',   Theta = blockdiag(gamma_i R(theta_i)) + T

with a rotation P as ``exp_rnn`` has it, the 2x2 rotations R(theta) = [[cos, -sin], [sin, cos]], and a matrix T that is
strictly upper and zero in the blocks (arXiv 1905.12080; see memsweep.models.matrix.base). The eigenvalues are
gamma exp(+-i theta) whatever T is: T changes the states on the way, but not how long they last. The penalty
delta sum_i (gamma_i - 1)^2 keeps gamma near 1, and weight decay keeps T small (``training.groups.triangle``).

The published code differs in two ways. Its T starts right above the diagonal, so that it covers one entry of every
block, whose eigenvalues then are no longer gamma exp(+-i theta). And it applies the transpose, Theta' in the place of
Theta, which is the same set of matrices with the modes in the opposite order. Its penalty has the same form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.matrix.base import MatrixRNN
from memsweep.models.matrix.exp_rnn import GENERATOR, RotationConfig, rotation_of
from memsweep.models.matrix.initial import generator
from memsweep.models.spectrum import spectral_norm
from memsweep.registry import register_model

_EIGENVALUES = Role(Part.RECURRENT, ("pair",), diagonal=True)


@register_model("nn_rnn")
class NonNormalRNN(MatrixRNN):
    """Recurrent network with a non-normal matrix; linear with the activation ``linear`` and no stair."""

    @dataclass(frozen=True, kw_only=True)
    class Config(RotationConfig):
        """A recurrence whose matrix is a triangle of pairs of modes in a trained orthogonal basis."""

        delta: float = setting(
            0.0, "weight of sum (gamma_i - 1)^2 in the objective, which keeps the eigenvalues near size 1", at_least=0.0
        )

        def problems(self) -> Iterable[str]:
            if self.width % 2:
                yield f"width is {self.width}, but the modes of nn_rnn come in pairs: use an even width"

    @classmethod
    def recurrent_roles(cls, config: RotationConfig) -> dict[str, Role]:
        triangle = Role(Part.RECURRENT, ("width", "width"), group=Group.TRIANGLE)
        return {"generator": GENERATOR, "moduli": _EIGENVALUES, "angles": _EIGENVALUES, "triangle": triangle}

    @classmethod
    def recurrent_initial(cls, config: RotationConfig, rng: np.random.Generator) -> dict[str, np.ndarray]:
        width, pairs = config.width, config.width // 2
        return {
            "generator": generator(config.initialization, width, rng, config.map),
            "moduli": np.ones(pairs),
            "angles": rng.uniform(0.0, 2.0 * math.pi, pairs),
            "triangle": np.zeros((width, width)),
        }

    def matrix(self, weights: Weights) -> Tensor:
        basis = self.basis(weights)
        return basis @ self.pairs(weights) @ basis.mT

    def basis(self, weights: Weights) -> Tensor:
        """P, ``[N..., M, M]``."""
        return rotation_of(weights, self.config)

    def pairs(self, weights: Weights) -> Tensor:
        """Theta, the matrix in its own basis: ``[N..., M, M]``."""
        raw = weights["triangle"]
        pair_M = torch.arange(raw.shape[-1], device=raw.device) // 2
        # ``where``, not a product with a mask: entries outside of T have no effect, even if they are not finite
        theta = torch.where(pair_M > pair_M.unsqueeze(-1), raw, 0.0)
        first = torch.arange(0, raw.shape[-1], 2, device=raw.device)
        even = weights["moduli"] * weights["angles"].cos()
        odd = weights["moduli"] * weights["angles"].sin()
        theta[..., first, first] = even
        theta[..., first + 1, first + 1] = even
        theta[..., first, first + 1] = -odd
        theta[..., first + 1, first] = odd
        return theta

    def norm(self, weights: Weights) -> Tensor:
        return spectral_norm(self.pairs(weights))  # no rotation changes it

    def eigenvalues(self, weights: Weights) -> Tensor | None:
        """gamma exp(+-i theta), complex; None where V is not the recurrence of small states."""
        if not self.is_matrix_recurrence(self.config):
            return None
        upper = torch.polar(weights["moduli"].abs(), weights["angles"])  # polar takes no negative modulus
        upper = torch.where(weights["moduli"] < 0, -upper, upper)
        return torch.cat([upper, upper.conj()], -1)

    def penalty(self, weights: Weights) -> Tensor | None:
        if not self.config.delta:
            return None
        total: Tensor = self.config.delta * (weights["moduli"] - 1.0).square().sum(-1)
        return total
