"""The declarations of a module about itself, all optional: its decay and its step form.

The ecosystem has a custom for the step form: torch's cells take ``(input, state)``, ``S4.step(u, state)`` gives
``(y, state)``, torch's layers give their last state, with which they go on, and the layers of flash-linear-attention
have a ``mode``. It has none for decay: every library
computes one under another name (``g``, ``gk``, ``A_log``, ``dt``). A method ``decay`` is the smallest thing to add.

Letters: B batch, T time (length), M channels (modes) of all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from memsweep.checks.subject import PREFIX, Subject, first
from memsweep.models.base import Model, as_linear
from memsweep.models.contracts import default_dtype
from memsweep.models.module.steps import first_state, method_of, positional, step_of

_MODE, _PARALLEL_MODES, _RECURRENT_MODE = "mode", ("chunk", "fused_chunk", "parallel"), "fused_recurrent"


def has_decay(module: nn.Module) -> bool:
    """Whether a module declares how fast it forgets."""
    return method_of(module, "decay") is not None or linear(module) is not None


def reads_input(module: nn.Module) -> bool:
    """Whether the declared decay depends on the input: ``decay`` takes one."""
    method = method_of(module, "decay")
    return method is not None and len(positional(method)) > 0


def decay_of(subject: Subject, inputs: Tensor) -> Tensor | None:
    """The declared factors by which channels shrink from a step to the next: ``[B, T, M]`` in float64, at least 0.

    ``decay(x)`` gives ``[B, T, ...]``; ``decay()`` and the eigenvalues of a registered linear model hold at every step.

    Args:
        subject: the module.
        inputs: ``[B, T, I]`` or ``[B, T]``.

    Raises:
        ValueError: it gives another shape.
    """
    dtype = subject.reference
    module = subject.at(dtype)
    method = method_of(module, "decay")
    batch, length = inputs.shape[:2]
    with torch.no_grad(), default_dtype(dtype):
        if method is not None and positional(method):
            declared = torch.as_tensor(method(subject.cast(inputs, dtype)))
            if tuple(declared.shape[:2]) != (batch, length):
                raise ValueError(
                    f"decay(x) gives {tuple(declared.shape)} for inputs of {batch} sequences and {length} steps; it "
                    f"must give ({batch}, {length}, channels)"
                )
            return declared.detach().abs().to("cpu", torch.float64).reshape(batch, length, -1)
        constant: Any = None
        if method is not None:
            constant = torch.as_tensor(method())
        elif (known := linear(module)) is not None:
            constant = known.eigenvalues({name: weight.unsqueeze(0) for name, weight in module.named_parameters()})
    if constant is None:
        return None
    return constant.detach().abs().to("cpu", torch.float64).reshape(1, 1, -1).expand(batch, length, -1)


@dataclass(frozen=True)
class StepForm:
    """A form of a module that goes step by step.

    Attributes:
        name: how the module gives it.
        run: ``[B, T, ...] -> [B, T, O]``.
        advance: ``(x_t, state) -> (y_t, state)``; None where the states stay inside.
    """

    name: str
    run: Callable[[Tensor], Tensor]
    advance: Callable[[Tensor, Any], tuple[Tensor, Any]] | None


def step_form(subject: Subject, dtype: torch.dtype) -> StepForm | None:
    """The step form of a module in a precision; None: it has none.

    In this order: a method ``step(x_t, state) -> (y_t, state)``; submodules with a ``mode`` of flash-linear-attention's
    names, which is set to ``fused_recurrent``; a ``forward(x, state) -> (y, state)``, called with one step at a time.
    The first state is that of ``initial_state(batch)`` or ``default_state(batch)``, else None.
    """
    module = subject.at(dtype)
    step = step_of(module)
    if step is not None:
        return StepForm("step", lambda inputs: _stepped(module, step, inputs), step)
    switched = [part for part in module.modules() if getattr(part, _MODE, None) in _PARALLEL_MODES]
    if switched:
        return StepForm(f"mode {_RECURRENT_MODE!r}", lambda inputs: _in_mode(module, switched, inputs), None)
    takes = positional(module.forward)
    if len(takes) >= 2 and _gives_state(subject, module, dtype):

        def advance(x: Tensor, state: Any) -> tuple[Tensor, Any]:
            answer, state = module(x.unsqueeze(1), state)
            return answer.squeeze(1), state

        return StepForm(f"forward(x, {takes[1]})", lambda inputs: _stepped(module, advance, inputs), advance)
    return None


def kept_in_states(subject: Subject, constants: Tensor, length: int) -> Tensor | None:
    """As ``Subject.retention``, in the states of the step form: ``[C, length]``; None where they stay inside.

    No readout is between: what a flat one hides is seen here.
    """
    dtype = subject.reference
    form = step_form(subject, dtype)
    if form is None or form.advance is None:
        return None
    inputs = subject.held(constants, length)
    both = subject.cast(torch.cat([inputs, subject.changed(inputs, slice(0, PREFIX))]), dtype)
    state = first_state(subject.at(dtype), len(both))
    kept = []
    with torch.no_grad(), default_dtype(dtype):
        for t in range(both.shape[1]):
            _, state = form.advance(both[:, t], state)
            if t >= PREFIX:
                kept.append(_apart(state, len(constants)))
    return torch.stack(kept, 1)


def _apart(state: Any, count: int) -> Tensor:
    """The norm of the difference between the states of the first and of the last ``count`` sequences."""
    squares = torch.zeros(count, dtype=torch.float64)
    for leaf in tree_leaves(state):
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and 2 * count in leaf.shape:
            rows = leaf.movedim(leaf.shape.index(2 * count), 0).flatten(1)
            squares += (rows[count:] - rows[:count]).abs().to("cpu", torch.float64).square().sum(1)
    return squares.sqrt()


def _in_mode(module: nn.Module, parts: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    before = [getattr(part, _MODE) for part in parts]
    try:
        for part in parts:
            setattr(part, _MODE, _RECURRENT_MODE)
        return first(module(inputs))
    finally:
        for part, mode in zip(parts, before, strict=True):
            setattr(part, _MODE, mode)


def _gives_state(subject: Subject, module: nn.Module, dtype: torch.dtype) -> bool:
    with torch.no_grad(), default_dtype(dtype):
        try:
            answer = module(subject.cast(subject.noise(1, subject.length(2)), dtype))
        except Exception:  # the check of shapes says what it was
            return False
    return isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Tensor)


def _stepped(module: nn.Module, advance: Callable[[Tensor, Any], tuple[Tensor, Any]], inputs: Tensor) -> Tensor:
    state, answers = first_state(module, inputs.shape[0]), []
    for t in range(inputs.shape[1]):
        answer, state = advance(inputs[:, t], state)
        answers.append(answer)
    return torch.stack(answers, 1)


def linear(module: nn.Module) -> Model | None:
    """A registered model that is linear: its eigenvalues hold for all inputs."""
    return as_linear(module) if isinstance(module, Model) else None
