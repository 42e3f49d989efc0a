"""Softmax attention as a unit of deep models (arXiv 1706.03762), causal.

    o_t = sum_{s <= t} p_ts v_s,   p_t = softmax_s(q_t' k_s / sqrt(D) + c_t - c_s),   y_t = C o_t

c is zero, or with ``forgetting`` the sum of log sigmoid(W x + b) over the steps so far, one for each head (arXiv
2503.02130). Its state is the keys and values of all steps so far: 2 M numbers more with each step.

Letters: see memsweep.models.deep.attention.heads; P steps before the first one, S = P + T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.attention.heads import HeadsConfig, HeadsUnit, rotated
from memsweep.models.deep.unit import State, mapped
from memsweep.models.initialization import lecun_normal
from memsweep.registry import register_unit

NOPE, ROPE = "nope", "rope"


@register_unit("attention")
class AttentionUnit(HeadsUnit):
    """Softmax attention over all steps so far: it forgets nothing, and its state grows with every step."""

    @dataclass(frozen=True, kw_only=True)
    class Config(HeadsConfig):
        """How steps are told apart, and whether old ones fade."""

        positions: str = setting(
            ROPE,
            "rope (queries and keys are turned by angles that grow with time, arXiv 2104.09864) or nope (a step knows "
            "the order of those before it from the mask alone)",
            choices=(ROPE, NOPE),
        )
        forgetting: bool = setting(
            False, "add to the exponents what a gate of the input says of every step since (arXiv 2503.02130)"
        )

    @classmethod
    def is_rotary(cls, config: Any) -> bool:
        return bool(config.positions == ROPE)

    def roles(self) -> Mapping[str, Role]:
        if not self.config.forgetting:
            return super().roles()
        return {
            **super().roles(),
            "encoder_decay": Role(Part.RECURRENT, ("head", "feature"), group=Group.RECURRENT),
            "bias_decay": Role(Part.BIAS, ("head",), group=Group.RECURRENT),
        }

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        weights, heads = super().initial(horizon, rng), self.config.heads
        if self.config.forgetting:
            weights |= {"encoder_decay": lecun_normal(heads, self.features, rng), "bias_decay": np.zeros(heads)}
        return weights

    def going_on(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        joined, after = self.convolved(weights, x_NBTF, state)
        query, key, value = (self.by_head(part) for part in joined.chunk(3, -1))
        before = 0 if state is None else state["key"].shape[3]
        if self.is_rotary(self.config):
            query, key = rotated(query, before), rotated(key, before)
        now = {"key": key, "value": value}
        if self.config.forgetting:
            drive = mapped(weights["encoder_decay"], x_NBTF) + weights["bias_decay"][:, None, None]
            now["log_gate"] = functional.logsigmoid(self.by_head(drive))  # [N, B, H, T, 1]
        if state is not None:
            now = {name: torch.cat([state[name], series], 3) for name, series in now.items()}
        mask = self._mask(query, now, before)
        asked, keys, values = (part.flatten(0, 1) for part in (query, now["key"], now["value"]))
        found = functional.scaled_dot_product_attention(asked, keys, values, mask, is_causal=mask is None)
        answers = self.together(found.unflatten(0, query.shape[:2]))
        return mapped(weights["readout"], answers), now | after

    def products(self, horizon: int) -> int:
        return self.width * horizon  # half of the steps are still to come, and each is read twice

    def _mask(self, query_NBHTD: Tensor, now: State, before: int) -> Tensor | None:
        """The term added to the exponents, ``[.., T, S]``; None: no more than the mask of causality."""
        if not before and not self.config.forgetting:
            return None
        steps = query_NBHTD.shape[3]
        later = query_NBHTD.new_ones(steps, before + steps, dtype=torch.bool).triu(before + 1)
        if not self.config.forgetting:
            return torch.zeros_like(later, dtype=query_NBHTD.dtype).masked_fill(later, -torch.inf)
        # the gates between two steps multiply: their logarithms' sum is a difference of running sums
        total = now["log_gate"].flatten(0, 1).cumsum(2)
        return (total[:, :, before:] - total.mT).masked_fill(later, -torch.inf)
