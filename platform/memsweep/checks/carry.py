"""The ways in which modules carry a state from one piece of a sequence to the next.

There is no interface, and there are customs:

- ``step(x_t, state) -> (y_t, state)``, with ``x_t`` of ``[B, I]`` (S4, torch's cells), or of ``[B, 1, I]`` (xLSTM,
  Mamba). The first state is that of ``initial_state``, ``default_state`` or ``allocate_inference_cache``, else None.
  S4 wants ``setup_step()`` before. Several states are several arguments (Mamba), or named ones (the layers of xLSTM).
- ``forward(x, state) -> (y, state)``, as of torch's layers, for pieces of any length.
- ``forward(x, cache=None, use_cache=None)``, as of transformers, under several names; the answer holds the cache under
  the same name. minGRU and GateLoop have an argument ``return_...`` instead, and give ``(y, state)``.
- an attribute ``mode``, as of the layers of flash-linear-attention, whose states stay inside.

Letters: B batch, S steps of a piece, T time (length), I inputs, O outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from memsweep.checks.subject import Subject, first
from memsweep.models.contracts import default_dtype
from memsweep.models.module.steps import first_state, method_of, positional, step_of

_MODE, _PARALLEL_MODES, _RECURRENT_MODE = "mode", ("chunk", "fused_chunk", "parallel"), "fused_recurrent"
_CACHES = ("cache", "cache_params", "past_key_values", "past_key_value", "prev_hidden", "state", "states", "hidden")


@dataclass(frozen=True)
class StepForm:
    """A form of a module that goes piece by piece.

    Attributes:
        name: how the module gives it.
        run: ``[B, T, ...] -> [B, T, O]``, step by step.
        start: the state before the first step, of so many sequences; None where the states stay inside.
        read: ``([B, S, ...], state) -> ([B, S, O], state)``; None where the states stay inside.
        any_length: a piece may have more than one step, and ``read`` takes further arguments of ``forward``.
    """

    name: str
    run: Callable[[Tensor], Tensor]
    start: Callable[[int], Any] | None = None
    read: Callable[..., tuple[Tensor, Any]] | None = None
    any_length: bool = False

    def in_pieces(self, inputs: Tensor, sizes: Sequence[int]) -> Tensor:
        """Outputs of a sequence that is read in pieces; the sizes begin again where they end."""
        assert self.read is not None, "please report this: no states to hand on"
        assert self.start is not None, "please report this: no first state"
        state, at = self.start(len(inputs)), 0
        answers: list[Tensor] = []
        while at < inputs.shape[1]:
            size = sizes[len(answers) % len(sizes)]
            answer, state = self.read(inputs[:, at : at + size], state)
            answers.append(answer)
            at += size
        return torch.cat(answers, 1)


def step_form(subject: Subject, dtype: torch.dtype) -> StepForm | None:
    """The step form of a module in a precision; None: it has none.

    In this order: a method ``step``; submodules with a ``mode``; a ``forward`` that takes and gives a state.
    """
    module = subject.at(dtype)
    if any(method_of(part, "setup_step") for part in module.modules()):  # it may change what forward reads
        module = subject.fresh(dtype)
    return _of_step(subject, module, dtype) or _of_modes(module) or _of_forward(subject, module, dtype)


def _carried(name: str, start: Callable[[int], Any], read: Any, any_length: bool) -> StepForm:
    def run(inputs: Tensor) -> Tensor:
        return form.in_pieces(inputs, (1,))

    form = StepForm(name, run, start, read, any_length)
    return form


def _of_step(subject: Subject, module: nn.Module, dtype: torch.dtype) -> StepForm | None:
    step = step_of(module)
    if step is None:
        return None
    _set_up(module, dtype)
    probe = subject.cast(subject.noise(2, 1), dtype)
    refused: Exception | None = None
    for with_time in (False, True):

        def read(x: Tensor, state: Any, with_time: bool = with_time) -> tuple[Tensor, Any]:
            answer, state = _stepped(step, x if with_time else x[:, 0], state)
            return (answer if with_time else answer.unsqueeze(1)), state

        try:
            with torch.no_grad(), default_dtype(dtype):
                answer, _ = read(probe, _first_state(module, 2))
        except Exception as error:  # it wants the other shape, or is no step form
            refused = refused or error
            continue
        if answer.ndim <= 3 and answer.shape[:2] == (2, 1):
            return _carried("step", lambda batch: _first_state(module, batch), read, False)
    if refused is not None:
        raise refused
    return None


def _set_up(module: nn.Module, dtype: torch.dtype) -> None:
    """Calls what S4 wants before its first step."""
    for part in module.modules():
        set_up = method_of(part, "setup_step")
        if set_up is not None and _optional(set_up):
            with torch.no_grad(), default_dtype(dtype):
                set_up()


def _stepped(step: Callable[..., Any], x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """One call of a step, whose states are one argument, several, or named ones; the answer, and its state."""
    takes = positional(step)[1:]
    if isinstance(state, dict) and set(state) <= set(takes):
        answer, *states = step(x, **state)
    elif len(takes) > 1 and isinstance(state, tuple) and len(state) == len(takes):
        answer, *states = step(x, *state)
    elif state is None and _optional(step, 1):
        answer, *states = step(x)
    else:
        answer, *states = step(x, state)
    return answer, states[0] if len(states) == 1 else tuple(states)


def _optional(call: Callable[..., Any], given: int = 0) -> bool:
    """Whether a callable needs no argument behind the given ones."""
    parameters = [*inspect.signature(call).parameters.values()][given:]
    return all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters
    )


def _first_state(module: nn.Module, batch: int) -> Any:
    allocate = method_of(module, "allocate_inference_cache")
    return allocate(batch, 1) if allocate is not None else first_state(module, batch)


def _of_modes(module: nn.Module) -> StepForm | None:
    switched = [part for part in module.modules() if getattr(part, _MODE, None) in _PARALLEL_MODES]
    if not switched:
        return None
    return StepForm(f"mode {_RECURRENT_MODE!r}", lambda inputs: _in_mode(module, switched, inputs))


def _in_mode(module: nn.Module, parts: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    before = [getattr(part, _MODE) for part in parts]
    try:
        for part in parts:
            setattr(part, _MODE, _RECURRENT_MODE)
        return first(module(inputs))
    finally:
        for part, mode in zip(parts, before, strict=True):
            setattr(part, _MODE, mode)


def _of_forward(subject: Subject, module: nn.Module, dtype: torch.dtype) -> StepForm | None:
    """A ``forward`` that takes a state by an argument that is called one, or by its second argument."""
    takes = list(inspect.signature(module.forward).parameters)
    flags = {name: True for name in takes if name == "use_cache" or (name.startswith("return_") and _is_state(name))}
    names = [name for name in takes[1:] if name in _CACHES] or positional(module.forward)[1:2]
    for name in names:
        read = _reader(module, name, flags)
        with torch.no_grad(), default_dtype(dtype):
            try:
                _, state = read(subject.cast(subject.noise(2, subject.length(2)), dtype), None)
            except Exception:  # the check of shapes says what it was
                continue
        if state is not None:
            return _carried(f"forward(x, {name})", lambda batch: first_state(module, batch), read, True)
    return None


def _is_state(name: str) -> bool:
    return any(word in name for word in ("hidden", "cache", "state")) and not name.endswith("hidden_states")


def _reader(module: nn.Module, name: str, flags: dict[str, bool]) -> Callable[..., tuple[Tensor, Any]]:
    def read(x: Tensor, state: Any, **given: Any) -> tuple[Tensor, Any]:
        answer = module(x, **flags, **given, **({} if state is None else {name: state}))
        by_name = getattr(answer, name, None)
        if by_name is None and isinstance(answer, tuple) and len(answer) == 2:
            by_name = answer[1]
        return first(answer), by_name

    return read
