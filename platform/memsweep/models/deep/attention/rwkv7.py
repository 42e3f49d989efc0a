"""RWKV-7 as a unit of deep models (arXiv 2503.14456, section 4): a delta rule whose rate is a vector of the input's.

    S_t = S_{t-1} (diag(w_t) - r_t (a_t * r_t)') + v_t (k_t * (1 + (a_t - 1) * alpha))',   r = k * xi of length 1,
    y_t = C (g_t * (norm(S_t q_t) + (q_t' diag(rho) k_t) v_t))

of each head, with k in the last product as it is written into S, and

    log w = -e^(-1/2) sigmoid(b_w + W_2 tanh(W_1 x)),   a = sigmoid(b_a + A_2 A_1 x),   g = G_2 sigmoid(G_1 x)

so that a decay is at least 0.545. q (the receptance), k, v, w, a and g each read x_t + mu * (x_{t-1} - x_t), with a mu
of their own. The norm takes mean and deviation from each head's answers. Left out: the values of the first layer, which
later ones mix in, and the channel mixing, whose place the layers' own takes.

Letters: see memsweep.models.deep.attention.heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.attention.heads import NAMES, HeadsUnit
from memsweep.models.deep.unit import State, mapped
from memsweep.recurrence.layer import affine
from memsweep.recurrence.matrix.states import generalised_delta
from memsweep.registry import register_unit

DECAY, RATE, GATE = "decay", "rate", "gate"
_FASTEST = math.exp(-0.5)  # minus the least log w
_EPSILON = 64e-5  # of the norm
_POWERS = {"query": 0.2, "decay": 0.9, "key": 0.7, "value": 0.7, "rate": 0.9, "gate": 0.2}
"""mu_i = 1 - (i / F)^power at the start."""
_SIZES = {"query": 0.5, "key": 0.05, "value": 0.5}
"""Of the initial maps, uniform within this / sqrt(F)."""


@register_unit("rwkv7")
class RWKV7Unit(HeadsUnit):
    """RWKV-7: the delta rule with a rate of each key; keys fade by themselves, and what is erased is not what is read.

    A layer knows the step before, too (token shift).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Heads, and the size of the maps of decay, rate and gate."""

        heads: int = setting(2, "number of heads, each with width / heads channels", at_least=1, at_most=1_000_000)
        rank: int = setting(
            8, "rank of the maps of decay, rate and gate (32 or more as published)", at_least=1, at_most=1_000_000
        )

    def roles(self) -> Mapping[str, Role]:
        forgets, into = Group.RECURRENT, Group.INPUT
        roles = {f"mix_{name}": Role(Part.GAIN, ("feature",), group=into) for name in _POWERS}
        roles |= {f"encoder_{name}": Role(Part.ENCODER, ("width", "feature"), group=into) for name in NAMES}
        for name in (DECAY, RATE):
            roles[f"encoder_{name}"] = Role(Part.RECURRENT, ("rank", "feature"), group=forgets)
            roles[f"raise_{name}"] = Role(Part.RECURRENT, ("width", "rank"), group=forgets)
            roles[f"bias_{name}"] = Role(Part.BIAS, ("width",), group=forgets)
        roles |= {
            "encoder_gate": Role(Part.READOUT, ("rank", "feature")),
            "raise_gate": Role(Part.READOUT, ("width", "rank")),
            "key_scale": Role(Part.GAIN, ("width",), group=forgets),
            "key_rate": Role(Part.GAIN, ("width",), group=forgets),
        }
        roles |= {name: Role(Part.GAIN, ("width",)) for name in ("bonus", "answer_gain")}
        return roles | {"answer_bias": Role(Part.BIAS, ("width",)), "readout": Role(Part.READOUT, ("feature", "width"))}

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """As the authors' code begins its first layer (RWKV-LM, RWKV-v7/train_temp/src/model.py); the readout is zero.

        A layer is silent at first. Biases of decays grow along the channels, with a zigzag within each head.
        """
        del horizon  # decays are spread alike for all lengths
        width, features, rank = self.width, self.features, self.config.rank
        each, place = width // self.config.heads, np.arange(width) / max(width - 1, 1)
        zigzag = 2.0 * (np.arange(width) % each) / max(each - 1, 1) - 1.0 if each > 1 else np.zeros(width)
        zigzag = zigzag * np.abs(zigzag)
        weights = {f"mix_{name}": 1.0 - (np.arange(features) / features) ** power for name, power in _POWERS.items()}
        for name, size in _SIZES.items():
            weights[f"encoder_{name}"] = rng.uniform(-size, size, (width, features)) / math.sqrt(features)
        for name in (DECAY, RATE, GATE):
            weights[f"encoder_{name}"] = np.zeros((rank, features))
            weights[f"raise_{name}"] = _orthogonal(width, rank, rng)
        return weights | {
            "bias_decay": -5.5 + 6.0 * place + 2.5 * zigzag,
            "bias_rate": -0.19 + 0.3 * zigzag + 0.4 * (place - 0.5),
            "key_scale": 0.71 - 0.1 * (place - 0.5),
            "key_rate": np.full(width, 1.02),
            "bonus": np.full(width, -0.04),
            "answer_gain": np.ones(width),
            "answer_bias": np.zeros(width),
            "readout": np.zeros((features, width)),
        }

    def going_on(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        before = torch.zeros_like(x_NBTF[:, :, :1]) if state is None else state["before"]
        # each map reads its own mix of this step's features and those of the step before
        change = torch.cat([before, x_NBTF[:, :, :-1]], 2) - x_NBTF
        mixed = {name: x_NBTF + weights[f"mix_{name}"][:, None, None] * change for name in _POWERS}
        query, key, value = (self.by_head(mapped(weights[f"encoder_{name}"], mixed[name])) for name in NAMES)
        rate = self.by_head(torch.sigmoid(self._raised(weights, RATE, mapped(weights["encoder_rate"], mixed[RATE]))))
        reads = functional.normalize(key * self._of_heads(weights["key_scale"]), dim=-1)
        key = key * (1.0 + (rate - 1.0) * self._of_heads(weights["key_rate"]))
        # S (diag(w) - k (a k)') with a normalized k: of what a key reads, the share a is erased along it
        found, left = generalised_delta(
            query.flatten(0, 2),
            key.flatten(0, 2),
            value.flatten(0, 2),
            self._log_decay(weights, mixed[DECAY]).flatten(0, 2),
            reads.flatten(0, 2),
            (rate * reads).flatten(0, 2),
            None if state is None else state["matrix"].flatten(0, 2),
        )
        answers = functional.layer_norm(found.unflatten(0, query.shape[:3]), query.shape[-1:], eps=_EPSILON)
        answers = answers * self._of_heads(weights["answer_gain"]) + self._of_heads(weights["answer_bias"])
        # this step's own value passes beside the state, weighted by a trained bonus
        now = (query * self._of_heads(weights["bonus"]) * key).sum(-1, keepdim=True) * value
        gate = mapped(weights["raise_gate"], torch.sigmoid(mapped(weights["encoder_gate"], mixed[GATE])))
        after = {"before": x_NBTF[:, :, -1:], "matrix": left.unflatten(0, query.shape[:3])}
        return mapped(weights["readout"], gate * self.together(answers + now)), after

    def products(self, horizon: int) -> int:
        return 5 * self.width**2 // self.config.heads

    def eigenvalues(self, weights: Weights) -> Tensor:
        """w at input zero, ``[N, M]``, one for each key: there keys are zero, and nothing is erased."""
        readout = weights["readout"]
        return self._log_decay(weights, readout.new_zeros(len(readout), 1, 1, self.features)).exp().flatten(1)

    def _log_decay(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        """log w, ``[N, B, H, T, D]``."""
        raised = self._raised(weights, DECAY, torch.tanh(mapped(weights["encoder_decay"], x_NBTF)))
        return self.by_head(-_FASTEST * torch.sigmoid(raised))

    @staticmethod
    def _raised(weights: Weights, name: str, low_NBTR: Tensor) -> Tensor:
        """Of the size of the width, from that of the rank."""
        return affine(low_NBTR, weights[f"raise_{name}"], weights[f"bias_{name}"])

    def _of_heads(self, weight_NM: Tensor) -> Tensor:
        """``[N, 1, H, 1, D]``."""
        return weight_NM.unflatten(1, (self.config.heads, -1))[:, None, :, None]


def _orthogonal(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """A tenth of a matrix with orthonormal columns, or rows where these are fewer, times sqrt(columns / rows) if > 1.

    The authors' matrices stand the other way round.
    """
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return 0.1 * max(1.0, math.sqrt(columns / rows)) * (q if rows >= columns else q.T)
