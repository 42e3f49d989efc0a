"""Activations of a recurrence: applied in place, and differentiated from their answer.

A recurrence overwrites its pre-activations, so that the derivative must be a function of the answer y = sigma(z) alone:
tanh' = 1 - y^2, hardtanh' = [|y| < 1], relu' = [y > 0]. At the corners of hardtanh and relu it is 0, as in torch, whose
own fused kernels do the work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.errors import did_you_mean, one_of

_aten = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """An elementwise function of real numbers.

    Attributes:
        name: as in a model's config.
        apply_: overwrites a tensor with its image.
        pull_back_: overwrites a gradient by the answer with the gradient by the pre-activation; arguments: gradient,
            answer.
    """

    name: str
    apply_: Callable[[Tensor], object]
    pull_back_: Callable[[Tensor, Tensor], object]

    @property
    def is_linear(self) -> bool:
        """The function is the identity, and fit for complex numbers."""
        return self.name == "linear"


_ALL = (
    Activation("linear", lambda values: values, lambda grad, answer: grad),
    Activation(
        "hardtanh",
        lambda values: values.clamp_(-1.0, 1.0),
        lambda grad, answer: _aten.hardtanh_backward.grad_input(grad, answer, -1.0, 1.0, grad_input=grad),
    ),
    Activation(
        "tanh",
        torch.tanh_,
        lambda grad, answer: _aten.tanh_backward.grad_input(grad, answer, grad_input=grad),
    ),
    Activation(
        "relu",
        torch.relu_,
        lambda grad, answer: _aten.threshold_backward.grad_input(grad, answer, 0.0, grad_input=grad),
    ),
)

ACTIVATIONS = {activation.name: activation for activation in _ALL}
CODES = {"linear": 0, "hardtanh": 1, "tanh": 2, "relu": 3}
"""The numbers by which fused kernels know the activations."""


def activation_named(name: str) -> Activation:
    """The activation of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in ACTIVATIONS:
        raise ValueError(
            f"unknown activation {name!r}; allowed: {one_of(ACTIVATIONS)}.{did_you_mean(name, ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]
