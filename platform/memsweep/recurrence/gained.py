"""Recurrences whose steps have gains of their own, and activations with a threshold: see ``gained_scan``."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Cell:
    """What a step does with its pre-activation a_t = x_t + V h_{t-1}.

    h_t = rho_t sigma(a_t), or with ``exponential`` h_t = (1 - exp(-rho_t a_t)) sigma(a_t).

    Attributes:
        activation: sigma: linear, hardtanh, tanh, relu or modrelu, sign(a) relu(|a| + b).
        threshold: b of modrelu, ``[N, M]``; None for the others.
        gains: rho, ``[N, T]``; None: all are 1.
        exponential: the gains are rates of an exponential instead of factors.
    """

    activation: str
    threshold: Tensor | None = None
    gains: Tensor | None = None
    exponential: bool = False
