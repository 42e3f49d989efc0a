"""What a user's module consists of, and what is wrong with it: found by building it and running it once."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from memsweep.errors import ModuleError, listed
from memsweep.models.base import Role, Signature
from memsweep.models.contracts import breaches, unreached
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.factory import checked_outputs, described, outputs_of, probe_inputs, resolve, seeded
from memsweep.models.module.roles import Described, describe, patterns_of, unused_patterns

PROBE_STEPS = 64
"""Steps of the sequences on which a module is tried: roles and statistics do not depend on more."""


@dataclass(frozen=True)
class Anatomy:
    """What a module consists of.

    Attributes:
        tensors: its parameters, and the buffers that are weights.
        draws: it draws random numbers in training (dropout).
    """

    tensors: tuple[Described, ...]
    draws: bool

    @property
    def roles(self) -> dict[str, Role]:
        return {each.name: each.role for each in self.tensors}


def build_module(config: ModuleConfig, signature: Signature, seed: int) -> nn.Module:
    """The user's module with the sizes of a task, its own initialization seeded.

    Raises:
        ModuleError: see ``Factory.build``.
    """
    factory = resolve(config.factory)
    width = None if config.width_argument is None else config.width
    return factory.build(config.sizes(signature), width, config.arguments.plain(), config.names, seed)


def anatomy(config: ModuleConfig, signature: Signature) -> Anatomy:
    """Builds and runs a module to see what it consists of; remembered until its file changes.

    Raises:
        ModuleError: the module cannot be built or run, or has something that no replica can have of its own.
    """
    return _anatomy(config, signature, resolve(config.factory))


@functools.lru_cache(maxsize=256)
def _anatomy(config: ModuleConfig, signature: Signature, factory: object) -> Anatomy:
    del factory  # a new object where the file has changed
    module, other = (build_module(config, signature, seed) for seed in (0, 1))
    if any(hasattr(part, "_orig_mod") for part in module.modules()):  # what torch.compile returns
        raise ModuleError(
            f"{config.factory} gives a module that torch.compile made, which cannot be computed with other weights "
            "than its own. Give the module without torch.compile."
        )
    sizes = config.sizes(signature)
    inputs = probe_inputs(Signature(sizes.inputs, sizes.outputs, min(PROBE_STEPS, sizes.horizon)), config.tokens)
    with seeded(0), torch.no_grad():
        checked_outputs(config.factory, module.eval(), inputs, signature.outputs)
        drawn = _drawn_buffers(module, other)
        changed, draws = _changed_in_training(config.factory, module, inputs)
    buffers = dict(module.named_buffers())
    statistics = {name: buffers[name] for name in buffers if name in {*drawn, *changed}}
    patterns = patterns_of(config.roles)
    tensors = describe(module.eval(), inputs, patterns, statistics)
    if not any(True for _ in module.parameters()):
        raise ModuleError(f"{config.factory} has no parameters: there is nothing to train, and nothing to perturb.")
    if unused := unused_patterns([each.name for each in tensors], patterns):
        raise ModuleError(
            f"model.roles has the pattern {unused[0]!r}, which fits no parameter of {config.factory}. Its parameters: "
            f"{', '.join(each.name for each in tensors)}."
        )
    return Anatomy(tuple(tensors), draws)


def _drawn_buffers(module: nn.Module, other: nn.Module) -> set[str]:
    """Names of the buffers that differ between two seeds."""
    own, others = dict(module.named_buffers()), dict(other.named_buffers())
    same = {name for name, value in own.items() if name in others and value.shape == others[name].shape}
    return {name for name in same if not torch.equal(own[name], others[name])}


def _changed_in_training(target: str, module: nn.Module, inputs: Tensor) -> tuple[set[str], bool]:
    """Names of the buffers that a pass in training changes, and whether it draws random numbers."""
    before = {name: value.clone() for name, value in module.state_dict(keep_vars=False).items()}
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    module.train()
    outputs = []
    for seed in (0, 1):
        module.load_state_dict(before)
        with seeded(seed):
            outputs.append(outputs_of(module(inputs)))
    after = dict(module.named_buffers())
    changed = {
        name
        for name, value in buffers.items()
        if name in after and after[name].shape == value.shape and not torch.equal(after[name], value)
    }
    module.load_state_dict(before)
    for name in list(changed):
        if not after[name].is_floating_point():
            changed.remove(name)
            owner = module.get_submodule(name.rpartition(".")[0])
            if not name.endswith("num_batches_tracked") or getattr(owner, "momentum", None) is None:
                raise ModuleError(
                    f"the buffer {name} of {target} counts in training ({after[name].dtype}), and replicas cannot each "
                    "have a count of their own. Use a normalization with a momentum, or compute without the counter."
                )
    return changed, not torch.equal(*outputs)


@dataclass(frozen=True)
class Findings:
    """What a study finds out about a module before it trains, a sentence without a full stop each.

    Attributes:
        refusals: what makes every number of a trial meaningless.
        notes: what a reader of the numbers should know.
    """

    refusals: tuple[str, ...]
    notes: tuple[str, ...]


def findings(config: ModuleConfig, signature: Signature) -> Findings:
    """What the checks before a study found; remembered until the module's file changes.

    Raises:
        ModuleError: the module cannot run at the horizon.
    """
    return _findings(config, signature, resolve(config.factory))


@functools.lru_cache(maxsize=256)
def _findings(config: ModuleConfig, signature: Signature, factory: object) -> Findings:
    del factory
    target, sizes = config.factory, config.sizes(signature)
    module = build_module(config, signature, 0).eval()
    to_dtype(module, torch.float64)
    inputs = probe_inputs(sizes, config.tokens, dtype=torch.float64)
    outputs = checked_outputs(target, module, inputs, sizes.outputs)
    notes, refusals = [], []
    if not outputs.requires_grad:
        notes.append(
            f"no gradient reaches any parameter of {target}: it detaches its outputs, and nothing would be learned"
        )
    elif idle := unreached(dict(module.named_parameters()), outputs):
        notes.append(
            f"no gradient reaches {listed(idle, 5)} of {target}: they stay as they are, and moving them changes nothing"
        )
    for breach in breaches(lambda given: outputs_of(module(given)), inputs):
        if breach.name != "leak":
            refusals.append(f"{target} {breach.words}")
        elif config.causal:
            refusals.append(f"{target} {breach.words}, or say that it is meant to be so with model.causal: false")
    notes += _ends_at_the_horizon(target, module, sizes, config.tokens)
    return Findings(tuple(refusals), tuple(notes))


def _ends_at_the_horizon(target: str, module: nn.Module, sizes: Signature, tokens: bool) -> list[str]:
    longer = Signature(sizes.inputs, sizes.outputs, sizes.horizon + 1)
    try:
        with torch.no_grad():
            module(probe_inputs(longer, tokens, dtype=torch.float64))
    except Exception as error:  # any fault of foreign code
        return [
            f"{target} cannot run a step beyond its horizon of {sizes.horizon} ({described(error)}): its memory is "
            "measured within the horizon"
        ]
    return []


def to_dtype(module: nn.Module, dtype: torch.dtype | None, device: torch.device | str | None = None) -> None:
    """``nn.Module.to`` in place, but complex tensors stay complex."""
    for owner in module.modules():
        for tensor in (*owner.parameters(recurse=False), *owner.buffers(recurse=False)):
            kind = dtype.to_complex() if dtype is not None and tensor.is_complex() else dtype
            moves = tensor.is_floating_point() or tensor.is_complex()
            tensor.data = tensor.data.to(device, kind if moves else None)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
