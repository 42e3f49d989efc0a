"""The step form of a plain module, by the custom of the ecosystem: a method ``step(x_t, state) -> (y_t, state)``.

Letters: B batch, I inputs, O outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import Tensor, nn


class Stepping(nn.Module):
    """A module whose ``forward`` is another one's ``step``: torch calls no other method with given weights.

    Args:
        module: with a step form (``step_of``); its tensors have the names ``module.<name>`` here.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x_BI: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step: the outputs ``[B, O]``, and the state after it."""
        step = step_of(self.module)
        assert step is not None, "please report this: a module without a step form was to go step by step"
        answer: tuple[Tensor, Any] = step(x_BI, state)
        return answer


def step_of(module: nn.Module) -> Callable[..., Any] | None:
    """A module's method ``step``, which takes an input and a state; None: it has none."""
    step = method_of(module, "step")
    return step if step is not None and len(positional(step)) >= 2 else None


def with_steps(module: nn.Module) -> nn.Module:
    """The same module; one of torch's recurrent layers (batch first, forward in time) gets a step form."""
    if isinstance(module, nn.RNNBase) and module.batch_first and not module.bidirectional:
        module.step = MethodType(_step_of_torch, module)
    return module


def _step_of_torch(module: nn.RNNBase, x_BI: Tensor, state: Any) -> tuple[Tensor, Any]:
    outputs, state = module(x_BI.unsqueeze(1), state)
    return outputs.squeeze(1), state


def first_state(module: nn.Module, batch: int) -> Any:
    """The state before the first step: of ``initial_state(batch)`` or ``default_state(batch)``, else None."""
    for name in ("initial_state", "default_state"):
        make = method_of(module, name)
        if make is not None:
            return make(batch)
    return None


def method_of(module: nn.Module, name: str) -> Callable[..., Any] | None:
    """A method of a module's class; a submodule or a weight of that name is none."""
    value = getattr(module, name, None)
    return value if inspect.ismethod(value) else None


def positional(call: Callable[..., Any]) -> list[str]:
    """The names of the arguments that a callable takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in inspect.signature(call).parameters.items() if parameter.kind in kinds]
