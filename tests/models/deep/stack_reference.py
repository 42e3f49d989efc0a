"""A residual stack of torch's own modules and a loop over time: what the engine's must equal.

Letters: B batch, T time, F features, M width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

ACTIVATION = nn.GELU(approximate="tanh")


class BatchNorm(nn.BatchNorm1d):
    """Over batch and time: torch's reads ``[B, F, T]``."""

    def forward(self, x_BTF: Tensor) -> Tensor:
        return super().forward(x_BTF.mT).mT


class Reference(nn.Module):
    """One replica, from its weights by the engine's names; units are LRUs."""

    def __init__(self, config: Any, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.readout = (_linear(weights, name) for name in ("encoder", "readout"))
        self.hidden = _linear(weights, "hidden") if config.readout_width else None
        self.layers = nn.ModuleList(ReferenceLayer(config, weights, f"_l{layer}") for layer in range(config.layers))

    def forward(self, inputs_BTI: Tensor) -> Tensor:
        x_BTF = self.encoder(inputs_BTI)
        for layer in self.layers:
            x_BTF = layer(x_BTF)
        if self.config.pooling != "none":
            means = torch.stack([x_BTF[:, : step + 1].mean(1) for step in range(x_BTF.shape[1])], 1)
            true = self.config.pooling == "mean" or not self.training
            x_BTF = means if true else x_BTF + (means - x_BTF).detach()
        if self.hidden is not None:
            x_BTF = nn.functional.relu(self.hidden(x_BTF))
        return self.readout(x_BTF)

    def by_names(self) -> dict[str, Tensor]:
        """The weights and running statistics as they are, by the engine's names."""
        found = {}
        for name, value in (*self.named_parameters(), *self.named_buffers()):
            *place, module, kind = name.split(".")
            if kind == "num_batches_tracked":
                continue
            kind = {"running_mean": "mean", "running_var": "variance"}.get(kind, kind)
            end = f"_l{place[1]}" if place else ""
            found[f"{kind}{end}" if module == "unit" else f"{module}_{kind}{end}"] = value
        return found


class ReferenceLayer(nn.Module):
    """One layer; dropout takes the masks in ``masks``, one for each place, ``[B, 1, F]``."""

    def __init__(self, config: Any, weights: Mapping[str, Tensor], end: str) -> None:
        super().__init__()
        self.config = config
        own = {name.removesuffix(end): value for name, value in weights.items() if name.endswith(end)}
        self.mix, self.gate = (_linear(own, name) for name in ("mix", "gate"))
        self.norm = _norm(config, own)
        names = [name for name in own if name.split("_")[0] not in ("mix", "gate", "norm")]
        self.unit = nn.ParameterDict({name: nn.Parameter(own[name].clone()) for name in names})
        self.masks: list[Tensor] = [torch.ones(()).double(), torch.ones(()).double()]

    def forward(self, x_BTF: Tensor) -> Tensor:
        read = self.norm(x_BTF) if self.config.prenorm else x_BTF
        found = self.mixed(self.answers(read)) + (x_BTF if self.config.residual else 0.0)
        return found if self.config.prenorm else self.norm(found)

    def answers(self, x_BTF: Tensor) -> Tensor:
        own = self.unit
        eigenvalue = torch.exp(torch.complex(-torch.exp(own["nu"]), torch.exp(own["theta"])))
        encoder = torch.exp(own["gamma_log"])[:, None] * torch.complex(own["encoder_re"], own["encoder_im"])
        readout = torch.complex(own["readout_re"], own["readout_im"])
        state, found = torch.zeros(()).to(encoder), []
        for step_BF in x_BTF.unbind(1):
            state = eigenvalue * state + step_BF.to(encoder) @ encoder.T
            found.append((state @ readout.T).real + own["skip"] * step_BF)
        return torch.stack(found, 1)

    def mixed(self, a_BTF: Tensor) -> Tensor:
        kind, first, second = self.config.mixing, *self.masks
        if kind == "none":
            return a_BTF
        bent = first * ACTIVATION(a_BTF)
        if kind == "gelu":
            return bent
        let_through = {"full_glu": self.mix, "half_glu1": nn.Identity(), "half_glu2": lambda _: a_BTF}[kind]
        return second * let_through(bent) * self.gate(bent).sigmoid()


def _linear(weights: Mapping[str, Tensor], name: str) -> nn.Linear | None:
    weight = weights.get(f"{name}_weight")
    if weight is None:
        return None
    found = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    found.load_state_dict({"weight": weight, "bias": weights[f"{name}_bias"]})
    return found


def _norm(config: Any, own: Mapping[str, Tensor]) -> nn.Module:
    if config.norm == "none":
        return nn.Identity()
    state = {"weight": own["norm_weight"], "bias": own["norm_bias"]}
    if config.norm == "layer":
        found: nn.Module = nn.LayerNorm(config.features, eps=1e-6)
    else:
        found = BatchNorm(config.features)
        state |= {"running_mean": own["norm_mean"], "running_var": own["norm_variance"]}
        state |= {"num_batches_tracked": torch.zeros((), dtype=torch.long)}
    found.double().load_state_dict(state)
    return found
