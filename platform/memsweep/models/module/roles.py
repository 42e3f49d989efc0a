"""The roles of a module's parameters and buffers: from the study's patterns, torch's conventions, or guessed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from memsweep.config.schema.training import GroupConfig
from memsweep.errors import ModuleError
from memsweep.models.base import Part, Role
from memsweep.models.module.config import ModuleConfig, RolesConfig
from memsweep.models.module.factory import outputs_of
from memsweep.models.roles import Group

_NORMS = re.compile(r"(Layer|RMS|Group|Instance|Batch|Sync)_?Norm", re.IGNORECASE)
_DECAY = re.compile(r"(^|_)(a_?log|log_?a|lambda|decay|nu_?log|theta_?log|log_?lambda|forget)($|_)", re.IGNORECASE)
_TIME = re.compile(r"(^|_)(log_?(dt|step|delta)|inv_dt|a_param|recurrent_param)$", re.IGNORECASE)
_SCALE = re.compile(r"(^|_)(gamma_?log|log_?gamma)$", re.IGNORECASE)
_LETTERS = {"B": Part.ENCODER, "C": Part.READOUT, "D": Part.READOUT}
"""Names of the matrices of a linear state space, x' = Ax + Bu, y = Cx + Du."""
_GATE = re.compile(r"(gate|forget|decay|update|reset|delta|dt|lambda)", re.IGNORECASE)
_ASKED = {"lr": "learning_rate", "weight_decay": "weight_decay"}
"""Keys of the attribute ``_optim`` -> fields of ``GroupConfig``."""
_TORCH = (("weight_hh", Part.RECURRENT), ("weight_hr", Part.RECURRENT), ("weight_ih", Part.ENCODER))


@dataclass(frozen=True)
class Described:
    """A parameter, or a buffer that is part of a replica's state.

    Attributes:
        name: as the module calls it.
        shape: its own.
        role: what it does.
        reason: why it is taken to do this.
        guessed: the reason is neither a pattern of the study nor a convention of torch.
        frozen: its ``requires_grad`` is off, so training leaves it as it is.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    reason: str
    guessed: bool
    frozen: bool = False


def describe(
    module: nn.Module, inputs: Tensor, patterns: Mapping[str, tuple[str, ...]], statistics: Mapping[str, Tensor]
) -> list[Described]:
    """The parameters of a module in its order, then the buffers in ``statistics``.

    Args:
        module: in evaluation mode; it is run once.
        inputs: to run it on.
        patterns: by role (a ``Part``), patterns of names.
        statistics: buffers that training changes, or that differ between seeds.
    """
    first, last = _ends(module, inputs)
    owners = dict(module.named_modules())
    ends = [{name for name in names if _is_one_map(owners[name])} for names in (first, last)]
    result = []
    parameters: dict[str, Tensor] = dict(module.named_parameters())
    for name, tensor in parameters.items():
        above, _, own = name.rpartition(".")
        given = next((part for part, globs in patterns.items() if any(fnmatchcase(name, glob) for glob in globs)), None)
        if given is not None:
            part, reason, guessed = Part(given), "pattern of the study", False
        else:
            part, reason, guessed = _part(own, above, tensor, owners[above], *(above in names for names in ends))
        result.append(
            Described(name, tuple(tensor.shape), _role(part, own, tensor), reason, guessed, not tensor.requires_grad)
        )
    for name, tensor in statistics.items():
        role = Role(Part.STATISTIC, _axes(tensor))
        result.append(Described(name, tuple(tensor.shape), role, "buffer that training changes", False))
    return result


def with_part(each: Described, part: Part, reason: str) -> Described:
    """The same parameter with the role that its influence says."""
    by_entry = part is Part.RECURRENT and len(each.shape) < 2
    role = Role(part, each.role.axes, diagonal=by_entry, from_influence=True)
    return replace(each, role=role, reason=reason, guessed=False)


def holds_complex(module: nn.Module) -> bool:
    """Whether a parameter is complex."""
    return any(weight.is_complex() for weight in module.parameters())


def with_complex_entries(module: nn.Module, described: list[Described]) -> list[Described]:
    """The same parameters, with a mark in the roles of complex ones, which are stored as pairs (``stored``)."""
    named = {name for name, weight in module.named_parameters() if weight.is_complex()}
    return [
        replace(each, role=replace(each.role, complex_entries=True)) if each.name in named else each
        for each in described
    ]


def in_groups(described: list[Described], groups: Mapping[Group, tuple[str, ...]]) -> list[Described]:
    """The same parameters, in the groups of the optimizer whose patterns fit their names."""
    return [replace(each, role=replace(each.role, group=_group_of(each.name, groups))) for each in described]


def _group_of(name: str, groups: Mapping[Group, tuple[str, ...]]) -> Group:
    fitting = (group for group, globs in groups.items() if any(fnmatchcase(name, glob) for glob in globs))
    return next(fitting, Group.REST)


def carries_settings(config: ModuleConfig, module: nn.Module) -> bool:
    """Whether a parameter asks for settings of the optimizer by its attribute ``_optim``, and the study takes them."""
    return config.optim_attribute and any(getattr(weight, "_optim", None) for weight in module.parameters())


def asked_settings(module: nn.Module) -> dict[str, Any]:
    """The settings that parameters ask of their optimizer, by name: their attribute ``_optim``, where it has some."""
    return {name: asked for name, weight in module.named_parameters() if (asked := getattr(weight, "_optim", None))}


def with_settings(target: str, module: nn.Module, described: list[Described]) -> list[Described]:
    """The same parameters, with the settings of the optimizer that each asks for.

    Raises:
        ModuleError: a parameter asks for something else than a learning rate and a weight decay.
    """
    asked = asked_settings(module)
    if odd := [f"{name} has {each!r}" for name, each in asked.items() if not _is_known(each)]:
        raise ModuleError(
            f"{target} has parameters that ask for settings of the optimizer which are not known: {'; '.join(odd)}. "
            "Known in _optim are lr and weight_decay, numbers from 0. Correct them, or write model.optim_attribute: "
            "false, which passes over _optim."
        )
    return [
        replace(each, role=replace(each.role, optimizer_settings=_settings(asked[each.name])))
        if each.name in asked
        else each
        for each in described
    ]


def _is_known(asked: Any) -> bool:
    return isinstance(asked, Mapping) and all(
        key in _ASKED and (value is None or (isinstance(value, Real) and 0.0 <= float(value) < math.inf))
        for key, value in asked.items()
    )


def _settings(asked: Mapping[str, float | None]) -> GroupConfig | None:
    """The settings of a group of one parameter; None where it asks for nothing."""
    given: dict[str, float] = {_ASKED[key]: float(value) for key, value in asked.items() if value is not None}
    if given.get("learning_rate") == 0.0:
        given["factor"] = given.pop("learning_rate")
    return GroupConfig(**given) if given else None


def unused_patterns(names: list[str], patterns: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The patterns that fit no name."""
    return [glob for globs in patterns.values() for glob in globs if not any(fnmatchcase(name, glob) for name in names)]


def _part(
    own: str, above: str, tensor: Tensor, owner: nn.Module, is_first: bool, is_last: bool
) -> tuple[Part, str, bool]:
    """Role, reason, and whether it is a guess."""
    for start, part in _TORCH:
        if own.startswith(start):
            return part, f"{start}* of torch's recurrent layers", False
    if own.startswith("bias") or own.endswith("bias"):
        return Part.BIAS, "bias by its name", False
    if _NORMS.search(type(owner).__name__):
        return Part.GAIN, f"scale of {type(owner).__name__}", False
    if _DECAY.search(own):
        return Part.RECURRENT, "name of a decay", True
    if _TIME.search(own):
        return Part.RECURRENT, "name of a time scale", True
    if _SCALE.search(own):
        return Part.GAIN, "name of a scale", True
    if own == "D" and tensor.ndim < 2:
        return Part.GAIN, "D of a linear state space, number by number", True
    if own in _LETTERS:
        return _LETTERS[own], f"{own} of a linear state space", True
    if isinstance(owner, nn.Embedding | nn.EmbeddingBag):
        return Part.ENCODER, f"{type(owner).__name__}", False
    if tensor.ndim < 2:
        return Part.BIAS, f"{tensor.ndim}-dimensional", True
    if is_last:
        return Part.READOUT, "gives the outputs", False
    if _GATE.search(above.rpartition(".")[2]) or _GATE.search(own):
        return Part.RECURRENT, "name of a gate", True
    if is_first:
        return Part.ENCODER, "reads the inputs", True
    return Part.RECURRENT, "between encoder and readout", True


def _is_one_map(part: nn.Module) -> bool:
    """Whether what a part reads and gives says what its matrices do: it has one, or is torch's (``weight_norm``)."""
    return type(part).__module__.startswith("torch.nn.") or sum(each.ndim > 1 for each in part.parameters()) == 1


def _ends(module: nn.Module, inputs: Tensor) -> tuple[set[str], set[str]]:
    """Names of the parts that read the module's inputs themselves, and of those whose output is the module's: at once,
    with time and features in turn, or step by step.
    """
    read: dict[str, list[Tensor]] = {}
    given: dict[str, list[Tensor]] = {}
    hooks = []

    def watch(name: str) -> None:
        def hook(_: nn.Module, args: tuple[object, ...], output: object) -> None:
            found = [each for each in tree_leaves(args) if isinstance(each, Tensor)]
            read.setdefault(name, []).extend(found if len(found) == 1 else ())  # a cell reads a state, too
            given.setdefault(name, []).extend([output] if isinstance(output, Tensor) else [])

        hooks.append(owners[name].register_forward_hook(hook))

    leaves = {name: part for name, part in module.named_modules() if name and not list(part.children())}
    owners = {name: part for name, part in leaves.items() if list(part.parameters())}
    for name in owners:
        watch(name)
    try:
        with torch.no_grad():
            result = outputs_of(module(inputs))
    finally:
        for hook in hooks:
            hook.remove()
    first, last = _with_whole(read, inputs), _with_whole(given, result)
    return first, {name for name in last if len(given[name]) == 1 or not _is_fed_back(module, owners[name], inputs)}


def _with_whole(calls: Mapping[str, list[Tensor]], sequence: Tensor) -> set[str]:
    """Names of the parts whose calls have a sequence: in its own memory, else numbers that are equal to it.

    A branch that starts at zero leaves what it is added to as it is, and zeros are like any others.
    """
    own = sequence.untyped_storage().data_ptr()
    found = {name for name, each in calls.items() if _is_whole(each, sequence)}
    here = {name for name in found if any(call.untyped_storage().data_ptr() == own for call in calls[name])}
    return here or (found if sequence.unique().numel() > 1 else set())


def _is_whole(calls: list[Tensor], sequence: Tensor) -> bool:
    """Whether the tensors of some calls are a sequence ``[B, T, ...]``: one of them, also with time first or last or
    without an axis of its own, or one step after another.
    """
    forms = [sequence, sequence.transpose(0, 1), sequence.flatten(0, 1)]
    forms += [sequence.transpose(1, 2)] if sequence.ndim == 3 else []
    whole = any(_is_same(call, each) for call in calls for each in forms)
    return whole or (len(calls) == sequence.shape[1] and all(map(_is_same, calls, sequence.unbind(1))))


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def _is_fed_back(module: nn.Module, part: nn.Module, inputs: Tensor) -> bool:
    """Whether a later call of a part reads something else where its first answer is another one."""

    def later_reads(push: float) -> list[Tensor]:
        reads: list[list[Tensor]] = []

        def hook(_: nn.Module, args: tuple[object, ...], output: Tensor) -> Tensor:
            reads.append([arg.clone() for arg in args if isinstance(arg, Tensor)])
            return output + push if len(reads) == 1 else output

        handle = part.register_forward_hook(hook)
        try:
            with torch.no_grad():
                module(inputs)
        finally:
            handle.remove()
        return [arg for read in reads[1:] for arg in read]

    return not all(map(_is_same, later_reads(0.0), later_reads(1.0)))


def _role(part: Part, own: str, tensor: Tensor) -> Role:
    """A vector, or a table of independent decays, acts entry by entry: its norm is that of a diagonal matrix."""
    by_entry = part is Part.RECURRENT and (tensor.ndim < 2 or bool(_DECAY.search(own) or _TIME.search(own)))
    return Role(part, _axes(tensor), diagonal=by_entry)


def _axes(tensor: Tensor) -> tuple[str, ...]:
    """A name per dimension as weights are stored: a number has one, a complex tensor one more (``stored``)."""
    return tuple(f"axis {index}" for index in range(stored(tensor.detach()).ndim))


def stored(tensor: Tensor) -> Tensor:
    """A tensor as it stands among the weights: real, and of at least one dimension."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.reshape(1) if real.ndim == 0 else real


def patterns_of(roles: RolesConfig) -> dict[str, tuple[str, ...]]:
    """The patterns by role, of roles that have some."""
    return {name: globs for name, globs in asdict(roles).items() if globs}


def table(described: list[Described]) -> Iterator[str]:
    """The lines of a table of parameters and their roles, with a mark at what is guessed."""
    rows = [("parameter", "shape", "role", "why")]
    rows += [
        (
            each.name,
            " x ".join(map(str, each.shape)) or "1",
            str(each.role.part),
            f"{'guessed: ' if each.guessed else ''}{each.reason}{', frozen' if each.frozen else ''}",
        )
        for each in described
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for *cells, reason in rows:
        yield "  ".join([*(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), reason])
