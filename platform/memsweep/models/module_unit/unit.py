"""The unit ``module``: a user's torch layer in a residual stack, as it is.

Its weights are the layer's parameters, and the buffers that are weights, as of the model ``module``. A frozen parameter
is a statistic here: nothing moves it.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from memsweep import registry
from memsweep.config.schema.trial import asked_of
from memsweep.errors import ModuleError
from memsweep.models.base import Part, Role, Signature, Weights
from memsweep.models.contracts import default_dtype
from memsweep.models.deep.unit import LayerUnit, State
from memsweep.models.module.anatomy import anatomy, findings
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.model import Module, vmap_refusal
from memsweep.models.module.steps import Stepping, first_state, step_of
from memsweep.models.module_unit.config import ModuleUnitConfig, as_module
from memsweep.models.roles import signature_of
from memsweep.models.training_mode import SAME_WEIGHTS
from memsweep.registry import register_unit

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_USUAL_HORIZON = 8
"""Steps of the layer that is built where no task says how many."""
_OTHER_LAYER = 1 << 32
"""Between the seeds of the random numbers of two layers."""


@register_unit("module")
class ModuleUnit(LayerUnit):
    """A torch layer of your own, by its import path: any nn.Module, [batch, time, features] -> the same shape.

    It may answer (y, state), as torch's layers do; a method step(x_t, state) lets its states be rounded.
    """

    Config = ModuleUnitConfig

    def __init__(self, config: Any, width: int, features: int) -> None:
        super().__init__(config, width, features)
        self._layer, self._horizon, self._training = 0, _USUAL_HORIZON, False
        self._seeds: list[int] = []
        self._step = 0
        self._made: dict[tuple[torch.dtype, torch.device], _Layer] = {}
        self._last: _Layer | None = None
        self._states: TreeSpec | None = None

    @cached_property
    def module(self) -> ModuleConfig:
        """The Config of the layer as a module."""
        with _named_as_unit():
            return as_module(self.config, self.width)

    def signature(self, horizon: int) -> Signature:
        """The sizes that the factory gets."""
        return Signature(self.features, self.features, horizon)

    @classmethod
    def problems_of_code(cls, config: Any, trial: TrialConfig) -> Iterator[str]:
        task: Signature | None = signature_of(trial)
        model: Any = trial.model
        if task is None:
            return
        unit = cls(config, model.width, model.features)
        sizes = unit.signature(task.horizon)
        try:
            refusals = findings(unit.module, sizes, drawn=not trial.training.weights).refusals
            vmap = vmap_refusal(unit.module, sizes) if config.replicas == "vmap" else None
            steps = step_of(Module(unit.module, sizes).module)
        except ModuleError as error:
            yield of_unit(str(error)).rstrip(".")
            return
        yield from map(of_unit, refusals)
        if vmap is not None:
            yield f"model.unit.replicas is vmap, but torch cannot: {vmap}. Use auto, or sequential"
        for asked in () if steps is not None else asked_of(trial.perturbation):
            yield from registry.get(registry.MEASURE, asked.name).problems_without_steps(asked, config.factory)

    @classmethod
    def notes_of_code(cls, config: Any, trial: TrialConfig) -> Iterator[str]:
        task: Signature | None = signature_of(trial)
        model: Any = trial.model
        if task is not None:
            unit = cls(config, model.width, model.features)
            notes = findings(unit.module, unit.signature(task.horizon)).notes
            yield from (of_unit(note) for note in notes if SAME_WEIGHTS not in note)  # the stack draws weights, too

    @classmethod
    def guessed_roles(cls, config: Any, trial: TrialConfig) -> Mapping[str, Part]:
        task = signature_of(trial)
        model: Any = trial.model
        if task is None:
            return {}
        unit = cls(config, model.width, model.features)
        described = anatomy(unit.module, unit.signature(task.horizon)).tensors
        return {each.name: each.role.part for each in described if each.guessed and not each.frozen}

    @classmethod
    def code(cls, config: Any) -> set[tuple[str, str]]:
        return Module.code(config)

    def of_layer(self, layer: int, horizon: int) -> None:
        self._layer, self._horizon = layer, horizon

    def in_mode(self, training: bool) -> None:
        self._training = training

    def begin_step(self, seeds: Sequence[int], step: int) -> None:
        self._seeds, self._step = [seed + self._layer * _OTHER_LAYER for seed in seeds], step

    def statistics_after(self) -> Mapping[str, Tensor]:
        after = {} if self._last is None else self._last.updated_statistics({})
        return {_outside(name): value for name, value in after.items()}

    def roles(self) -> Mapping[str, Role]:
        with _named_as_unit():
            described = anatomy(self.module, self.signature(_USUAL_HORIZON)).tensors
        return {_outside(each.name): _role(each.name, each.role, each.frozen) for each in described}

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The layer's own initialization, with torch seeded by the generator."""
        with _named_as_unit():
            drawn = Module.initial(self.module, self.signature(horizon), rng)
        return {_outside(name): value for name, value in drawn.items()}

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        self._last = layer = self._layer_like(x_NBTF)
        layer.train(self._training)
        layer.start_step(self._seeds, self._step)
        return layer.answers(_inside(weights, layer), x_NBTF)

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        """By the layer's own step form; without one, over all inputs so far, which are then its state."""
        layer = self._layer_like(x_NBF).eval()
        if step_of(layer.module) is None:
            now = x_NBF.unsqueeze(2)
            now = now if state is None else torch.cat([state["inputs"], now], 2)
            return layer.answers(_inside(weights, layer), now)[:, :, -1], {"inputs": now}
        found = []
        for row, x_BF in enumerate(x_NBF):
            own = {name: value[row] for name, value in _inside(weights, layer).items()}
            found.append(layer.one_step(own, x_BF, self._state_of(row, state)))
        flat = [tree_flatten(after) for _, after in found]
        self._states = flat[0][1]
        leaves = zip(*(values for values, _ in flat), strict=True)
        after = {str(place): torch.stack([torch.as_tensor(leaf) for leaf in each]) for place, each in enumerate(leaves)}
        return torch.stack([answer for answer, _ in found]), after

    def _state_of(self, row: int, state: State | None) -> Any:
        """A replica's state as its layer gave it; None before the first step."""
        if state is None or self._states is None:
            return None
        return tree_unflatten([state[str(place)][row] for place in range(len(state))], self._states)

    def _layer_like(self, like: Tensor) -> _Layer:
        """The layer in a tensor's precision and place; its buffers are rounded once, from double precision."""
        kind = like.dtype, like.device
        if kind not in self._made:
            self._made[kind] = _Layer(self.module, self.signature(self._horizon)).to(like.device, like.dtype)
        return self._made[kind]


class _Layer(Module):
    """A user's module that runs on inputs of each replica's own."""

    def answers(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        """Answers ``[N, B, T, F]`` of the replicas; in training each draws its own random numbers."""
        if self._together(x_NBTF.device):
            answers_NBTF: Tensor = torch.func.vmap(self._outputs_of_one, randomness="error")(dict(weights), x_NBTF)
            return answers_NBTF
        seeds, answers, after = self._seeds, list[Tensor](), list[Mapping[str, list[Tensor]]]()
        for row, x_BTF in enumerate(x_NBTF):
            self._seeds = seeds[row : row + 1]
            answers += self._one_by_one({name: value[row : row + 1] for name, value in weights.items()}, x_BTF, (1,))
            after.append(self._after)
        self._seeds = seeds
        self._after = {name: [value for each in after for value in each[name]] for name in after[0]}
        return torch.stack(answers)

    def one_step(self, weights: Weights, x_BF: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The answer of one replica to one step, ``[B, F]``, and the state after it; None: before the first step."""
        own = self._buffers_and_parameters
        given = {f"module.{name}": _like(value, own[name]) for name, value in weights.items()}
        with default_dtype(x_BF.dtype):
            before = first_state(self.module, len(x_BF)) if state is None else state
            answer: tuple[Tensor, Any] = torch.func.functional_call(Stepping(self.module), given, (x_BF, before))
        return answer


def _outside(name: str) -> str:
    """A weight's name in a stack, where torch allows no dots."""
    return name.replace(".", "/")


def _inside(weights: Weights, layer: Module) -> dict[str, Tensor]:
    """The weights of a layer of a stack under the layer's own names."""
    return {each.name: weights[_outside(each.name)] for each in layer.anatomy.tensors}


def _like(weight: Tensor, own: Tensor) -> Tensor:
    """A weight as the module has it: the inverse of ``memsweep.models.module.roles.stored``, differentiable."""
    return (torch.view_as_complex(weight.contiguous()) if own.is_complex() else weight).reshape(own.shape)


def _role(name: str, role: Role, frozen: bool) -> Role:
    """The role of a weight in a stack. What is frozen is a statistic there: neither training nor a ball moves it."""
    axes = tuple(f"{name} {axis}" for axis in role.axes)
    return Role(Part.STATISTIC, axes) if frozen else replace(role, axes=axes)


_OF_MODULE = {
    r", such as model\.inputs_argument: \S+\.": ": model.unit.features_argument or model.unit.width_argument.",
    r"The last dimension must be the outputs of the task \((\d+)\).*": r"A layer must answer as many features as it "
    r"reads, here \1.",
    r", not at the last one alone: the task reads the steps that it needs": ", not at the last one alone",
    r"A module must (read|give) \[batch, time, (?:in|out)puts\](?:, or [^.]*model\.tokens: true)?": r"A layer must "
    r"\1 [batch, time, features]",
    r"\(\[batch, time, outputs\]\)": "([batch, time, features])",
    r"\bmodel\.(?:in|out)puts_argument\b": "model.unit.features_argument",
    r"\bmodel\.(arguments|width_argument|roles|replicas|causal|optim_attribute)\b": r"model.unit.\1",
}
"""Words about a module -> words about a layer."""


def of_unit(text: str) -> str:
    """A sentence about a module, of a layer: its fields stand below model.unit."""
    for module, layer in _OF_MODULE.items():
        text = re.sub(module, layer, text)
    return text


@contextmanager
def _named_as_unit() -> Iterator[None]:
    """Refusals of a module that is made inside are told as those of a layer."""
    try:
        yield
    except ModuleError as error:
        raise ModuleError(of_unit(str(error))) from error
