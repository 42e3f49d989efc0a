"""The model ``module``: a user's torch module, as it is.

Its weights are the module's parameters under the module's own names, dots included. Buffers that training changes
(running statistics), or that an initialization draws, are weights, too, of the role ``statistic``: each replica has its
own.

Letters: see memsweep.models.base; P = replicas times copies.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from memsweep import registry
from memsweep.config.load.foreign import in_one_line
from memsweep.config.schema.trial import asked_of
from memsweep.errors import ModuleError
from memsweep.models.base import Model, Part, Role, Signature, Traits, Weights, flattened
from memsweep.models.copies import (
    Copies,
    have_equal_numbers,
    seeds_where_small,
    takes_copies,
    takes_seeds,
    together_where_small,
)
from memsweep.models.module.anatomy import anatomy, build_module, findings, notes, unmoved
from memsweep.models.module.config import ModuleConfig, way_by_vmap, way_one_by_one
from memsweep.models.module.factory import (
    PROBE_STEPS,
    Factory,
    looked_at,
    outputs_of,
    probe_inputs,
    resolve,
    to_dtype,
)
from memsweep.models.module.roles import stored
from memsweep.models.module.steps import step_of
from memsweep.models.module.torch_layers import compiled_layers, holds_torch_layers
from memsweep.models.registered import pattern_problems
from memsweep.models.roles import signature_of
from memsweep.models.steps_once import StepsOnce
from memsweep.models.training_mode import seeded, tensors_of
from memsweep.registry import register_model
from memsweep.streams import Stream

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_NEAR = 1e-6
"""The number that is added to weights, near which it is tried whether a module takes steps one by one."""
_WORTH = 2**15
"""Numbers ``[B, T, M]`` from which steps are taken at once: looking for them costs a smaller pass up to a fifth."""


@register_model("module")
class Module(Model):
    """A torch module of your own, by its import path: any nn.Module, [batch, time, inputs] -> [batch, time, outputs].

    It is trained and measured as it is. ``memsweep describe my_nets:MinGRU --width 16`` shows its parameters, and what
    each is taken to do.
    """

    Config = ModuleConfig

    def __init__(self, config: ModuleConfig, signature: Signature, rng: np.random.Generator | None = None) -> None:
        nn.Module.__init__(self)
        self.config, self.signature = config, signature
        self.anatomy = anatomy(config, signature)
        self.module = build_module(config, signature, _seed(rng or np.random.default_rng(0)))
        if holds_torch_layers(config, build_module):
            self.module = compiled_layers(self.module)
        self.to(torch.float64)
        self._seeds: list[int] = []
        self._after: dict[str, list[Tensor]] = {}
        self._step = 0
        self._takes_steps: dict[bool, bool] = {}
        self.configure([config])

    @classmethod
    def roles(cls, config: ModuleConfig) -> Mapping[str, Role]:
        """As of a module for a small task, which is enough where the task decides no names of parameters."""
        return cls.roles_at(config, Signature(inputs=2, outputs=2, horizon=8))

    @classmethod
    def roles_at(cls, config: ModuleConfig, signature: Signature) -> Mapping[str, Role]:
        return anatomy(config, signature).roles

    @classmethod
    def traits(cls, config: ModuleConfig) -> Traits:
        """A training batch comes at once, as in a loop of one's own: dropout and batch norm are of all of it."""
        return Traits(whole_batch=True, reads_ids=config.tokens, runs_longer=False, trains_plainly=True)

    @functools.cached_property
    def frozen_weights(self) -> frozenset[str]:
        """The names of the weights that training leaves as they are."""
        return frozenset(each.name for each in self.anatomy.tensors if each.frozen)

    @classmethod
    def count_parameters(cls, config: ModuleConfig, task: Any) -> int:
        made = registry.get(registry.TASK, task.name)(task)
        signature = Signature(made.inputs, made.outputs, made.horizon)
        trained = anatomy(config, signature).trained_names
        initial = cls.initial(config, signature, np.random.default_rng(0))
        return sum(weight.size for name, weight in initial.items() if name in trained)

    @classmethod
    def initial(cls, config: ModuleConfig, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The module's own initialization, with torch seeded by the generator."""
        module = build_module(config, signature, _seed(rng))
        tensors = tensors_of(module)
        return {
            name: stored(tensors[name].detach()).to(torch.float64).numpy() for name in cls.roles_at(config, signature)
        }

    @classmethod
    def code(cls, config: ModuleConfig) -> set[tuple[str, str]]:
        factory = resolve(config.factory)
        return {(factory.module, config.factory.partition(":")[2].partition(".")[0])}

    @classmethod
    def problems_of_states(cls, trial: TrialConfig) -> Iterator[str]:
        """None without its code: ``problems_of_code`` looks for the step form."""
        yield from ()

    @classmethod
    def problems_of_code(cls, trial: TrialConfig) -> Iterator[str]:
        config: Any = trial.model
        signature = signature_of(trial)
        if signature is None:
            return
        try:
            described = anatomy(config, signature).tensors
            refusals = findings(config, signature, drawn=not trial.training.weights).refusals
            vmap = vmap_refusal(config, signature) if config.replicas == "vmap" else None
            steps = step_of(build_module(config, signature, 0))
        except ModuleError as error:
            yield str(error).rstrip(".")
            return
        yield from refusals
        yield from pattern_problems(cls, trial)
        if trial.training.steps and not anatomy(config, signature).trained_names:
            yield (
                f"training.steps is {trial.training.steps}, but every parameter of {config.factory} is frozen "
                "(requires_grad is off): use training.steps=0, which measures it as it is, or let one be trained"
            )
        for asked in () if steps is not None else asked_of(trial.perturbation):
            yield from registry.get(registry.MEASURE, asked.name).problems_without_steps(asked, config.factory)
        if vmap is not None:
            yield f"model.replicas is vmap, but torch cannot: {vmap}. Use auto, or sequential"
        yield from unmoved(trial.perturbation, config.factory, described)

    @classmethod
    def notes_of_code(cls, trial: TrialConfig, device: str) -> Iterator[str]:
        config: Any = trial.model
        signature = signature_of(trial)
        if signature is None:
            return
        if config.replicas == "vmap" or (config.replicas == "auto" and device == "cuda"):
            way = way_by_vmap(vmap_refusal(config, signature))
        else:
            way = way_one_by_one(config, computes_seeds(config, signature), computes_copies(config, signature))
        yield f"{config.factory}: {way}"
        yield from notes(config, signature)

    @classmethod
    def guessed_roles(cls, trial: TrialConfig) -> Mapping[str, Part]:
        config: Any = trial.model
        signature = signature_of(trial)
        return {} if signature is None else anatomy(config, signature).guessed_parts

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = outputs_of(self.module(inputs))
        return outputs

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """See ``Model.outputs``; replicas and copies are computed one after the other, or together by vmap."""
        leading, flat = flattened(self, weights)
        if takes_copies(self, leading):
            together = together_where_small(self, flat, inputs)
            if together is not None:
                self._check(together, inputs)
                return together.unflatten(0, leading)
        if takes_seeds(self, leading):
            trained = seeds_where_small(self, flat, inputs)
            if trained is not None:
                self._check(trained, inputs)
                return trained
        if self._together(next(iter(flat.values())).device):
            result = torch.func.vmap(lambda own: self._outputs_of_one(own, inputs), randomness="error")(flat)
        else:
            result = torch.stack(list(self._one_by_one(flat, inputs, leading)))
        self._check(result, inputs)
        return result.unflatten(0, leading)

    @functools.cached_property
    def own_copies(self) -> Copies | None:
        """Computes copies in a measurement; None where torch cannot compute them together, or the study says how."""
        return Copies(self._outputs_of_one) if computes_copies(self.config, self.signature) else None

    @functools.cached_property
    def own_seeds(self) -> Copies | None:
        """Computes the seeds of a training; None as of ``own_copies``."""
        return Copies(self._outputs_of_one) if computes_seeds(self.config, self.signature) else None

    def start_step(self, seeds: Sequence[int], step: int) -> None:
        self._seeds, self._step = list(seeds), step

    def updated_statistics(self, weights: Weights) -> Mapping[str, Tensor]:
        return {name: torch.stack(values) for name, values in self._after.items() if values}

    def _together(self, device: torch.device) -> bool:
        if self.config.replicas == "auto":
            return device.type == "cuda" and self._vmap_refusal is None
        return bool(self.config.replicas == "vmap")

    @functools.cached_property
    def _vmap_refusal(self) -> str | None:
        return vmap_refusal(self.config, self.signature)

    def _one_by_one(self, flat: Mapping[str, Tensor], inputs: Tensor, leading: tuple[int, ...]) -> Iterator[Tensor]:
        """Outputs ``[B, T, O]`` of each replica and copy; in training, its random numbers are its own."""
        count = next(iter(flat.values())).shape[0]
        draws = self.training and self.anatomy.draws
        if self.training:
            self._after = {name: [] for name in self._statistics}
        for row in range(count):
            own = {name: value[row] for name, value in flat.items()}
            # the module changes its running statistics in place: it gets a copy
            own |= {name: own[name].detach().clone() for name in self._statistics} if self.training else {}
            if draws:
                seed = _seed(Stream(self._seeds[row], "dropout").generator(self._step))
                with seeded(seed):
                    yield self._outputs_of_one(own, inputs)
            else:
                yield self._outputs_at_once(own, inputs)
            if self.training:
                for name in self._statistics:
                    self._after[name].append(own[name].detach())

    def _outputs_at_once(self, own: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs ``[B, T, O]``; what follows a gradient by weights takes a sequence's steps at once."""
        if self._takes_at_once(own, inputs):
            try:
                with StepsOnce():
                    return self._outputs_of_one(own, inputs)
            except RuntimeError:  # these weights lead to a branch that changes a step in place
                self._takes_steps[self.training] = False
        return self._outputs_of_one(own, inputs)

    def _takes_at_once(self, own: Mapping[str, Tensor], inputs: Tensor) -> bool:
        """Whether steps are taken at once. Not where bytes are counted: slices of copies are as large as without it."""
        climbs = any(value.requires_grad for value in own.values()) and torch.is_grad_enabled()
        if not climbs or inputs.requires_grad or is_in_torch_dispatch_mode() or (self.training and self._statistics):
            return False
        if inputs.shape[0] * inputs.shape[1] * self.config.width < _WORTH:
            return False
        if self.training not in self._takes_steps:
            self._takes_steps[self.training] = self._has_equal_bits(own, inputs)
        return self._takes_steps[self.training]

    @functools.cached_property
    def _statistics(self) -> list[str]:
        """The names of the running statistics, which a pass in training changes."""
        return [each.name for each in self.anatomy.tensors if each.role.part == Part.STATISTIC]

    def _has_equal_bits(self, own: Mapping[str, Tensor], inputs: Tensor) -> bool:
        """Whether the module takes steps one by one, and has the same outputs and gradients where it gets all at once.

        It is tried near its weights: a branch that is multiplied by zero has a gradient of zero in both ways.
        """
        at_once, found = StepsOnce(watched=True), list[list[Tensor]]()
        for how in (at_once, nullcontext()):
            weights = {name: (value.detach() + _NEAR).requires_grad_() for name, value in own.items()}
            try:
                with how:
                    outputs = self._outputs_of_one(weights, inputs)
                if not at_once.count or at_once.is_mixed:
                    return False
                gradients = torch.autograd.grad(
                    outputs.square().sum(), list(weights.values()), allow_unused=True, materialize_grads=True
                )
            except Exception:  # a module may change a step in place, which torch refuses in many ways
                return False
            found.append([outputs.detach(), *gradients])
        return all(map(torch.equal, *found))

    def _outputs_of_one(self, own: dict[str, Tensor], inputs: Tensor) -> Tensor:
        fixed = {*self._statistics, *(self.frozen_weights if self.training else ())}
        own = {name: value.detach() if name in fixed else value for name, value in own.items()}
        given = {name: _used(own[name], self._buffers_and_parameters[name]) for name in own}
        outputs: Tensor = outputs_of(torch.func.functional_call(self.module, given, (inputs,)))
        return outputs

    @functools.cached_property
    def _buffers_and_parameters(self) -> dict[str, Tensor]:
        return tensors_of(self.module)

    def _check(self, result: Tensor, inputs: Tensor) -> None:
        wanted = (*inputs.shape[:2], self.signature.outputs)
        if tuple(result.shape[1:]) != wanted:
            raise ModuleError(
                f"{self.config.factory} gave outputs of shape {list(result.shape[1:])} for inputs of shape "
                f"{list(inputs.shape)}, not {list(wanted)}."
            )

    def state_of(self, weights: Weights) -> dict[str, Tensor]:
        """The module's state dict: the weights, a tensor under each of its names, and the buffers that are none."""
        own = self._buffers_and_parameters
        values = {name: _used(value, own[name]) for name, value in weights.items()}
        primary = {id(tensor): name for name, tensor in own.items()}
        whole = self.module.state_dict(keep_vars=True)
        state = {name: values.get(primary.get(id(tensor), name), tensor) for name, tensor in whole.items()}
        return {name: tensor.detach().cpu().clone() for name, tensor in {**values, **state}.items()}

    def weights_from(self, state: Weights) -> dict[str, Tensor]:
        own, whole = self._buffers_and_parameters, self.module.state_dict(keep_vars=True)
        state = under_names(whole, state)
        names = {each.name for each in self.anatomy.tensors}
        for name, tensor in whole.items():
            is_weight = name in names or any(tensor is own[other] for other in names)
            counts = name.endswith("num_batches_tracked")
            if name in state and not is_weight and not counts and not _alike(tensor, state[name]):
                raise ValueError(
                    f"the buffer {name} is {str(state[name].dtype).removeprefix('torch.')} {list(state[name].shape)} "
                    f"and differs from the one that {self.config.factory} makes, which memsweep takes as it is: "
                    "give the factory the arguments of the stored module"
                )
        return {name: stored(value) for name, value in state.items() if name in names or name not in whole}

    # The module's tensors keep their own names, although they lie in a module within a module.

    def named_parameters(self, *args: Any, **options: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return self.module.named_parameters(*args, **options)

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return self.module.state_dict(*args, **options)

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        return self.module.load_state_dict(*args, **options)

    def to(self, *args: Any, **options: Any) -> Self:
        """``nn.Module.to``, but complex tensors stay complex."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **options)
        to_dtype(self.module, dtype, device)
        return self


def vmap_refusal(config: ModuleConfig, signature: Signature) -> str | None:
    """Why torch.func.vmap cannot compute replicas of a module, in words; None where it can, with equal numbers."""
    return _vmap_refusal(config, signature, resolve(config.factory))


@functools.lru_cache(maxsize=256)
def _vmap_refusal(config: ModuleConfig, signature: Signature, factory: Factory) -> str | None:
    about = anatomy(config, signature)
    if about.draws:
        return "it draws random numbers in training"
    if any(each.role.part is Part.STATISTIC for each in about.tensors):
        return "it keeps running statistics"
    short = Signature(signature.inputs, signature.outputs, min(PROBE_STEPS, signature.horizon))
    sizes = config.sizes(short)
    inputs = probe_inputs(sizes, config.tokens, dtype=torch.float64)
    results: dict[str, list[Tensor]] = {"sequential": [], "vmap": []}
    for how, mode in itertools.product(results, (True, False)):  # a measurement runs the module in evaluation
        model = Module(dataclasses.replace(config, replicas=how), signature).train(mode)
        initial = [Module.initial(config, signature, np.random.default_rng(seed)) for seed in (0, 1)]
        weights = {
            name: torch.stack([torch.from_numpy(each[name]) for each in initial]).requires_grad_()
            for name in initial[0]
        }
        try:
            outputs = model.outputs(weights, inputs)
            gradients = torch.autograd.grad(
                outputs.square().sum(), list(weights.values()), allow_unused=True, materialize_grads=True
            )
        except Exception as error:  # torch refuses in many ways
            if how == "sequential":
                with looked_at(config.factory, factory.file):
                    raise
            return in_one_line(error)
        results[how] += [outputs.detach(), *gradients]
    equal = all(torch.allclose(one, other, rtol=1e-8, atol=1e-10) for one, other in zip(*results.values(), strict=True))
    return None if equal else "its numbers differ from those of one seed alone"


def computes_seeds(config: ModuleConfig, signature: Signature) -> bool:
    """Whether a training on a processor computes the seeds of a module together: torch can, with equal numbers."""
    return computes_copies(config, signature) and vmap_refusal(config, signature) is None


def computes_copies(config: ModuleConfig, signature: Signature) -> bool:
    """Whether a measurement on a processor computes copies of a module together: torch can, with equal numbers."""
    return _computes_copies(config, signature, resolve(config.factory))


@functools.lru_cache(maxsize=256)
def _computes_copies(config: ModuleConfig, signature: Signature, factory: Factory) -> bool:
    if config.replicas != "auto" or holds_torch_layers(config, build_module):
        return False
    sizes = config.sizes(Signature(signature.inputs, signature.outputs, min(PROBE_STEPS, signature.horizon)))
    model, initial = Module(config, signature).eval(), Module.initial(config, signature, np.random.default_rng(0))
    own = {name: torch.from_numpy(np.stack([value, value + _NEAR])) for name, value in initial.items()}
    return have_equal_numbers(model._outputs_of_one, own, probe_inputs(sizes, config.tokens, dtype=torch.float64))


def under_names(own: Collection[str], state: Weights) -> dict[str, Tensor]:
    """A state under a module's own names, without whose common beginning it may come: where a child ``net`` holds all
    of a module, the reader of files took ``net.`` for a wrapper's.
    """
    words = next(iter(own), "").split(".")[:-1]
    beginnings = [".".join(words[: count + 1]) + "." for count in range(len(words))]
    for start in beginnings:
        if all(name.startswith(start) for name in own) and not any(name in own for name in state):
            whole = {start + name: tensor for name, tensor in state.items()}
            if any(name in own for name in whole):
                return whole
    return dict(state)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal but for the rounding of a precision."""
    if one.shape != other.shape:
        return False
    return torch.allclose(one.double().cpu(), other.double().cpu(), rtol=1e-3, atol=1e-6, equal_nan=True)


def _used(weight: Tensor, like: Tensor) -> Tensor:
    """A stored weight as the module has it: complex, a whole number, or a number without dimensions."""
    if like.is_complex():
        weight = torch.view_as_complex(weight.contiguous())
    elif not like.is_floating_point():
        weight = weight.round().to(like.dtype)
    return weight.reshape(like.shape) if weight.shape != like.shape else weight


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
