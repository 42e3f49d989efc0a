"""A layer or a language model of others as a whole model: with an encoder and a readout where it lacks them.

Letters: B batch, T time, I inputs, F features of the layer, A numbers of its answer, O outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from memsweep.config.load.foreign import foreign_code
from memsweep.errors import ModuleError
from memsweep.models.base import Part, Role, Signature
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.factory import USUAL, Factory, outputs_of, resolve
from memsweep.models.module.hugging_face import LanguageModel
from memsweep.models.module.layer_arguments import Sizes, by_name, filled, vocabulary_of
from memsweep.models.module.roles import Described, describe
from memsweep.models.module.steps import first_state, method_of, step_of, with_steps
from memsweep.models.training_mode import seeded

_TRIED = 12
"""Steps of the sequences on which a layer is tried."""
_EQUAL = 1e-4
"""Relative difference between a layer's answers and those of its step form, in single precision."""


class Wrapped(nn.Module):
    """Inputs ``[B, T, I]`` (or ids ``[B, T]``) to outputs ``[B, T, O]``; what the layer does itself is an identity."""

    def __init__(self, encoder: nn.Module, layer: nn.Module, readout: nn.Module) -> None:
        super().__init__()
        self.encoder, self.layer, self.readout = encoder, layer, readout

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.readout(_tensor_of(self.layer(self.encoder(inputs))))
        return outputs


class SteppingWrapped(Wrapped):
    """The same of a layer with a step form, which reads ``[B, F]``, or ``[B, 1, F]`` where ``with_time`` says so."""

    def __init__(self, encoder: nn.Module, layer: nn.Module, readout: nn.Module, with_time: bool) -> None:
        super().__init__(encoder, layer, readout)
        self.with_time = with_time

    def step(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step: the outputs ``[B, O]``, and the state of the layer after it."""
        answer, state = _stepped(self.layer, self.encoder(inputs), state, self.with_time)
        return self.readout(answer), state

    def initial_state(self, batch: int) -> Any:
        """The state before the first step, as the layer gives it."""
        return first_state(self.layer, batch)


class First(nn.Module):
    """The first numbers of each answer: the scores of a task's own symbols among those of all ids."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, answer: Tensor) -> Tensor:
        """``[..., A]`` to ``[..., O]``."""
        return answer[..., : self.count]


@dataclass(frozen=True)
class Lack:
    """The parts that a layer lacks.

    Attributes:
        encoder: it reads features, and not the inputs of the task.
        readout: it answers something else than the outputs of the task.
        speaks: it is a language model, which reads ids.
    """

    encoder: bool
    readout: bool
    speaks: bool


@dataclass(frozen=True)
class Tried:
    """The numbers of a layer's answer, and the shape that its step form reads, if it has one."""

    numbers: int
    steps: bool
    with_time: bool


def build_wrapped(config: ModuleConfig, signature: Signature, seed: int) -> nn.Module:
    """A layer with what it lacks. Encoder, layer and readout are drawn in this order, from one seed.

    Raises:
        ModuleError: the layer cannot be built or run, or answers something else.
    """
    factory = resolve(config.factory)
    tried = _try(config, signature, factory)
    return _call(config, signature, factory, seed, lambda make: _whole(config, signature, factory, make, tried))


def wrapped_roles(module: nn.Module, inputs: Tensor, described: Iterable[Described]) -> list[Described]:
    """The roles where they follow from what ``wrap`` added; a pattern of the study stays."""
    if not isinstance(module, Wrapped):
        return [*described]
    bare = Wrapped(nn.Identity(), module.layer, nn.Identity())  # without the slice, which hides what gives the logits
    inner = describe(bare, inputs, {}, {}) if isinstance(module.readout, First) else []
    known = {"encoder.weight": (Part.ENCODER, "encoder that wrap adds")}
    known |= {"readout.weight": (Part.READOUT, "readout that wrap adds")}
    known |= {each.name: (Part.READOUT, "gives the logits") for each in inner if each.role.part is Part.READOUT}
    return [_with_role(each, *known[each.name]) if each.name in known else each for each in described]


def _with_role(each: Described, part: Part, reason: str) -> Described:
    if each.reason == "pattern of the study":
        return each
    return replace(each, role=Role(part, each.role.axes), reason=reason, guessed=False)


def _whole(
    config: ModuleConfig, signature: Signature, factory: Factory, make: Callable[[], nn.Module], tried: Tried
) -> nn.Module:
    lack, sizes = _lack(config, factory), config.sizes(signature)
    encoder: nn.Module = nn.Identity()
    if lack.encoder:
        encoder = (nn.Embedding if config.tokens else nn.Linear)(sizes.inputs, config.width)
    layer = make()
    readout: nn.Module = nn.Identity()
    if lack.readout:
        scores = lack.speaks and _scores(layer)
        readout = First(sizes.outputs) if scores else nn.Linear(tried.numbers, sizes.outputs)
    if tried.steps:
        return SteppingWrapped(encoder, layer, readout, tried.with_time)
    return Wrapped(encoder, layer, readout)


@functools.lru_cache(maxsize=256)
def _try(config: ModuleConfig, signature: Signature, factory: Factory) -> Tried:
    """Builds a layer and runs it once."""
    lack, sizes = _lack(config, factory), config.sizes(signature)
    layer = _call(config, signature, factory, 0, lambda make: make()).eval()
    length = min(_TRIED, sizes.horizon)
    features = config.width if lack.encoder else sizes.inputs
    with seeded(0):
        if config.tokens and not lack.encoder:
            given = torch.randint(sizes.inputs, (2, length))
        else:
            given = torch.randn(2, length, features)
    said = f"{config.factory}, given {'ids' if given.ndim == 2 else 'numbers'} of shape {list(given.shape)},"
    reads = (
        f"A layer must read [batch, time, features], here {features} features (model.width), and answer [batch, time, "
        "numbers], alone or first in a tuple"
        if lack.encoder
        else "It takes the inputs of the task itself, so model.wrap adds no encoder"
    )
    with foreign_code(lambda error: f"{said} failed: {error}. {reads}."), torch.no_grad():
        answer = _tensor_of(layer(given))
    if not isinstance(answer, Tensor) or answer.shape[:2] != given.shape[:2] or answer.ndim != 3 or answer.is_complex():
        what = f"{answer.dtype} {list(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
        raise ModuleError(
            f"{said} gave {what.removeprefix('torch.')}, of which model.wrap can read no outputs. {reads}."
        )
    if lack.speaks and lack.readout and _scores(layer) and answer.shape[2] < sizes.outputs:
        raise ModuleError(
            f"{said} gave {answer.shape[2]} scores, and the task needs {sizes.outputs}: leave its number of ids to "
            "model.wrap, or give it more of them under model.arguments."
        )
    shapes = [each for each in (False, True) if _steps_alike(layer, given, answer, each)]
    return Tried(answer.shape[2], bool(shapes), shapes == [True])


def _scores(layer: nn.Module) -> bool:
    """Whether a model that reads ids answers scores: a bare one of transformers gives its last hidden states."""
    given = method_of(layer.model, "get_output_embeddings") if isinstance(layer, LanguageModel) else None
    return given is None or given() is not None


def _steps_alike(layer: nn.Module, given: Tensor, answer: Tensor, with_time: bool) -> bool:
    """Whether a layer's own steps give what it gives for the whole sequence."""
    if step_of(layer) is None:
        return False
    try:
        with torch.no_grad():
            state, answers = first_state(layer, len(given)), []
            for x in given.unbind(1):
                step, state = _stepped(layer, x, state, with_time)
                answers.append(step)
            found = torch.stack(answers, 1)
    except Exception:  # it reads another shape, or wants to be set up first
        return False
    return found.shape == answer.shape and bool((found - answer).norm() <= _EQUAL * answer.norm())


def _stepped(layer: nn.Module, x: Tensor, state: Any, with_time: bool) -> tuple[Tensor, Any]:
    step = step_of(layer)
    assert step is not None, "please report this: a layer without a step form was to go step by step"
    answer, state = step(x.unsqueeze(1) if with_time else x, state)
    return (answer.squeeze(1) if with_time else answer), state


def _lack(config: ModuleConfig, factory: Factory) -> Lack:
    """The parts that a layer lacks, by the arguments of its factory.

    Raises:
        ModuleError: it is a language model, and the study gives it no ids.
    """
    known = by_name(factory.make)
    reads, answers = (
        name is not None and (name != getattr(USUAL, size) or name in known)
        for size, name in (("inputs", config.inputs_argument), ("outputs", config.outputs_argument))
    )
    vocabulary = vocabulary_of(factory.make)
    speaks = config.tokens and vocabulary is not None
    if vocabulary in known and not config.tokens:
        raise ModuleError(
            f"{config.factory} is a language model, which reads ids (it has the argument {vocabulary}). Say "
            "model.tokens: true, with a task of symbols."
        )
    return Lack(not (reads or speaks), not answers, speaks)


def _call(
    config: ModuleConfig,
    signature: Signature,
    factory: Factory,
    seed: int,
    around: Callable[[Callable[[], nn.Module]], nn.Module],
) -> nn.Module:
    """Calls a factory with the sizes under the names that it has for them; ``around`` makes the module with it."""
    sizes, names, known = config.sizes(signature), config.names, by_name(factory.make)
    if names.width == USUAL.width and names.width not in known:
        names = replace(names, width=None)
    vocabulary = max(sizes.inputs, sizes.outputs) if config.tokens else config.width

    @functools.wraps(factory.make, updated=())
    def make(**given: Any) -> nn.Module:
        return around(lambda: _made(config.factory, factory.make(**given)))

    taken = [name for name in (names.inputs, names.outputs, names.horizon, names.width) if name is not None]
    sized = Sizes(config.width, vocabulary, sizes.horizon)
    with foreign_code(lambda error: f"the arguments of {config.factory} cannot be made: {error}.", factory.file):
        given = filled(factory.make, config.arguments.plain(), taken, sized)
    return replace(factory, make=make).build(sizes, config.width, given, names, seed)


def _made(target: str, layer: Any) -> nn.Module:
    if not isinstance(layer, nn.Module):
        raise ModuleError(
            f"{target} gave a value of type {type(layer).__name__}, not a torch.nn.Module. The name behind the colon "
            "must be a class of modules, or a function that returns a module."
        )
    return LanguageModel(layer) if method_of(layer, "get_input_embeddings") is not None else with_steps(layer)


def _tensor_of(answer: Any) -> Any:
    """The tensor of an answer: the scores of a language model, the first of several, or the answer itself."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := getattr(answer, name, None), Tensor):
            return found
    return outputs_of(answer)
