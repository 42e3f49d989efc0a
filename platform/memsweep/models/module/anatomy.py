"""The parts of a user's module and its faults: found by building it and running it once."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memsweep.config.load.foreign import in_one_line
from memsweep.config.schema.training import GroupConfig, GroupsConfig
from memsweep.errors import ModuleError, counted, listed
from memsweep.models.base import Part, Role, Signature
from memsweep.models.contracts import OVERWRITTEN, TOLERANCES, breaches, difference, unreached
from memsweep.models.module.config import ModuleConfig, asks_groups, wraps
from memsweep.models.module.factory import (
    PROBE_STEPS,
    Factory,
    checked_outputs,
    looked_at,
    outputs_of,
    probe_inputs,
    resolve,
    to_dtype,
)
from memsweep.models.module.in_memory import PLACE
from memsweep.models.module.influence import by_influence, influence_decides
from memsweep.models.module.roles import (
    Described,
    asked_settings,
    carries_settings,
    describe,
    holds_complex,
    in_groups,
    patterns_of,
    unused_patterns,
    with_complex_entries,
    with_settings,
)
from memsweep.models.module.wrapped import build_wrapped, wrapped_roles
from memsweep.models.roles import Group
from memsweep.models.training_mode import (
    SAME_WEIGHTS,
    UNSEEDED,
    in_training,
    same_values,
    same_weights,
    seeded,
    tensors_of,
)

if TYPE_CHECKING:
    from memsweep.config.schema.trial import PerturbationConfig


@dataclass(frozen=True)
class Anatomy:
    """The parts of a module.

    Attributes:
        tensors: its parameters, and the buffers that are weights.
        draws: it draws random numbers in training (dropout).
        kept: what is wrong where it keeps a state from call to call in training (``InTraining.breach``).
    """

    tensors: tuple[Described, ...]
    draws: bool
    kept: str | None

    @property
    def roles(self) -> dict[str, Role]:
        return {each.name: each.role for each in self.tensors}

    @property
    def trained_names(self) -> frozenset[str]:
        """The names of those that an optimizer moves."""
        moved = (each for each in self.tensors if not each.frozen and each.role.part is not Part.STATISTIC)
        return frozenset(each.name for each in moved)

    @property
    def guessed_parts(self) -> dict[str, Part]:
        """Those whose roles are guessed, and what they are taken for."""
        return {each.name: each.role.part for each in self.tensors if each.guessed}


def build_module(config: ModuleConfig, signature: Signature, seed: int) -> nn.Module:
    """The user's module with the sizes of a task, its own initialization seeded.

    Raises:
        ModuleError: see ``Factory.build``.
    """
    if wraps(config):
        return build_wrapped(config, signature, seed)
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
def _anatomy(config: ModuleConfig, signature: Signature, factory: Factory) -> Anatomy:
    target, sizes = config.factory, config.sizes(signature)
    module, other = (build_module(config, signature, seed).eval() for seed in (0, 1))
    if any(hasattr(part, "_orig_mod") for part in module.modules()):  # what torch.compile returns
        raise ModuleError(
            f"{target} gives a module that torch.compile made, which cannot be computed with other weights than its "
            "own. Give the module without torch.compile."
        )
    inputs = probe_inputs(Signature(sizes.inputs, sizes.outputs, min(PROBE_STEPS, sizes.horizon)), config.tokens)
    patterns = patterns_of(config.roles)
    with looked_at(target, factory.file):
        trained = in_training(module, lambda given: checked_outputs(target, module, given, sizes.outputs), inputs)
        _refuse_counters(target, module, trained.changed)
        buffers, drawn = dict(module.named_buffers()), _drawn_buffers(module, other)
        changed = {name for name in trained.changed if buffers[name].is_floating_point() or buffers[name].is_complex()}
        statistics = {name: buffers[name] for name in buffers if name in drawn | changed}
        tensors = describe(module, inputs, patterns, statistics)
        if wraps(config):
            tensors = wrapped_roles(module, inputs, tensors)
        if influence_decides(config, signature, tensors, build_module):
            tensors = by_influence(config, signature, tensors, build_module)
        if holds_complex(module):
            tensors = with_complex_entries(module, tensors)
        if asks_groups(config):
            tensors = in_groups(tensors, {Group.RECURRENT: config.recurrent_group, Group.INPUT: config.input_group})
        if carries_settings(config, module):
            tensors = with_settings(target, module, tensors)
    if not any(True for _ in module.parameters()):
        raise ModuleError(f"{target} has no parameters: there is nothing to train, and nothing to perturb.")
    if asks_groups(config):
        patterns = {**patterns, "recurrent_group": config.recurrent_group, "input_group": config.input_group}
    if unused := unused_patterns([each.name for each in tensors], patterns):
        raise ModuleError(
            f"model.roles has the pattern {unused[0]!r}, which fits no parameter of {target}. Its parameters: "
            f"{', '.join(each.name for each in tensors)}."
        )
    return Anatomy(tuple(tensors), trained.draws, trained.breach)


def _drawn_buffers(module: nn.Module, other: nn.Module) -> set[str]:
    """Names of the buffers that differ between two seeds."""
    own, others = dict(module.named_buffers()), dict(other.named_buffers())
    same = {name for name, value in own.items() if name in others and value.shape == others[name].shape}
    return {name for name in same if not torch.equal(own[name], others[name])}


def _refuse_counters(target: str, module: nn.Module, changed: Collection[str]) -> None:
    """Refuses whole numbers that a call in training changes, but for the count of a normalization with a momentum."""
    buffers = dict(module.named_buffers())
    for name in changed:
        owner = module.get_submodule(name.rpartition(".")[0])
        unused = name.endswith("num_batches_tracked") and getattr(owner, "momentum", None) is not None
        counts = not (buffers[name].is_floating_point() or buffers[name].is_complex())
        if counts and not unused:
            raise ModuleError(
                f"the buffer {name} of {target} counts in training ({buffers[name].dtype}), and replicas cannot each "
                "have a count of their own. Use a normalization with a momentum, or compute without the counter."
            )


def notes(config: ModuleConfig, signature: Signature) -> Iterator[str]:
    """Sentences for the reader of a plan: how roles of a module were found, and its findings."""
    about = anatomy(config, signature)
    measured = [f"{each.name} {each.role.part}" for each in about.tensors if each.role.from_influence]
    if guessed := about.guessed_parts:
        said = f"{config.factory}: {counted(len(guessed), 'guessed role')}"
        if config.factory.startswith(f"{PLACE}:"):  # no command finds it
            yield f"{said}: {listed([f'{name} {part}' for name, part in guessed.items()], 5)}"
        else:
            yield f"{said}; see memsweep describe {config.factory}"
    if measured:
        yield f"{config.factory}: roles by measured influence, where names said another: {listed(measured, 5)}"
    yield from findings(config, signature).notes


@dataclass(frozen=True)
class Findings:
    """Findings about a module before a study trains it, a sentence without a full stop each.

    Attributes:
        refusals: what makes every number of a trial meaningless.
        notes: what a reader of the numbers should know.
    """

    refusals: tuple[str, ...]
    notes: tuple[str, ...]


def findings(config: ModuleConfig, signature: Signature, *, drawn: bool = True) -> Findings:
    """The findings of the checks before a study; remembered until the module's file changes.

    Args:
        config, signature: of the module.
        drawn: training begins with the module's own initial weights, and not with those of a file.

    Raises:
        ModuleError: the module cannot run at the horizon.
    """
    factory = resolve(config.factory)
    found = _findings(config, signature, factory)
    if drawn and not _follows_from_seed(config, signature, factory):
        return replace(found, refusals=(f"{config.factory} {UNSEEDED}", *found.refusals))
    return found


@functools.lru_cache(maxsize=256)
def _follows_from_seed(config: ModuleConfig, signature: Signature, factory: Factory) -> bool:
    """Whether a module has the same parameters and buffers each time it is built from one seed.

    Buffers alone may be uninitialized, as a cache is: two modules have nan for such memory, and the third what it held.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # torch.empty gives nan in it
    try:
        one, two = (build_module(config, signature, 0) for _ in range(2))
    finally:
        torch.set_deterministic_debug_mode(mode)
    three = build_module(config, signature, 0)
    same = same_values(tensors_of(one), tensors_of(two))
    return same and same_values(*(dict(module.named_parameters()) for module in (one, three)))


@functools.lru_cache(maxsize=256)
def _findings(config: ModuleConfig, signature: Signature, factory: Factory) -> Findings:
    target, sizes, about = config.factory, config.sizes(signature), anatomy(config, signature)
    module = build_module(config, signature, 0).eval()
    with looked_at(target, factory.file):
        to_dtype(module, torch.float64)
        inputs = probe_inputs(sizes, config.tokens, dtype=torch.float64)
        outputs = checked_outputs(target, module, inputs.clone(), sizes.outputs)
        trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        broken = list(breaches(lambda given: outputs_of(module(given)), inputs))
        keeps = about.kept and all(breach.name != OVERWRITTEN for breach in broken)
        notes, refusals = list[str](), [f"{target} {about.kept}"] if keeps else []
        if not outputs.isfinite().all():
            when = f"for random inputs of {sizes.horizon} steps, before any training"
            told = f"{target} gives outputs that are not finite, {when}"
            # a root or a logarithm is for inputs above 0, as pixels are
            if not config.tokens and outputs_of(module(inputs.abs().clamp(max=1.0))).isfinite().all():
                notes.append(f"{told}; for inputs from 0 to 1 they are finite")
            else:
                refusals.append(told)
        if trained and not outputs.requires_grad:
            refusals.append(
                f"no gradient reaches any parameter of {target}: it detaches its outputs, so that nothing can be "
                "learned, and no search finds how its weights may move. Leave out detach and no_grad"
            )
        elif idle := unreached(trained, outputs):
            notes.append(
                f"no gradient reaches {listed(idle, 5)} of {target}: they stay as they are, and moving them changes "
                "nothing"
            )
        for breach in broken:
            if breach.name != "leak":
                refusals.append(f"{target} {breach.words}")
            elif config.causal:
                refusals.append(f"{target} {breach.words}, or say that it is meant to be so with model.causal: false")
        if trained and not refusals and _recomputes(config, signature, inputs):
            refusals.append(
                f"{target} computes gradients with other weights than outputs: it calls a part of itself again on the "
                "way back (activation checkpointing), when the weights of a replica have left it. Switch that off"
            )
        module.state_dict()  # the weights come out by it
        if trained and same_weights(module, build_module(config, signature, 1)):
            notes.append(f"{target} {SAME_WEIGHTS}")
        notes += _frozen(about)
        notes += _asked_of_optimizer(about, module)
        notes += _ends_at_the_horizon(target, module, sizes, config.tokens)
    return Findings(tuple(refusals), tuple(notes))


_APART = 0.01
"""The number that is added to weights, so that a module computes other outputs with them."""


def _recomputes(config: ModuleConfig, signature: Signature, inputs: Tensor) -> bool:
    """Whether gradients in training are not those of the weights that the module is called with."""
    own, called = (build_module(config, signature, 0).train() for _ in range(2))
    to_dtype(own, torch.float64)
    to_dtype(called, torch.float64)
    held = {name: weight for name, weight in own.named_parameters() if weight.requires_grad}
    given = {name: (weight.detach() + _APART).requires_grad_() for name, weight in held.items()}
    own.load_state_dict(given, strict=False)
    found = []
    for weights, run in (held, own), (given, lambda x: torch.func.functional_call(called, given, (x,))):
        with seeded(0):
            outputs = outputs_of(run(inputs))
            gradients = torch.autograd.grad(outputs.square().mean(), [*weights.values()], allow_unused=True)
        found.append([each for each in gradients if each is not None])
    return len(found[0]) != len(found[1]) or any(map(_differ, *found))


def _differ(one: Tensor, other: Tensor) -> bool:
    return bool(difference(one, other) > TOLERANCES[torch.float32])


def _frozen(about: Anatomy) -> list[str]:
    """Says what becomes of the frozen parameters."""
    names = [each.name for each in about.tensors if each.frozen]
    if not names:
        return []
    return [
        f"frozen (requires_grad is off): {listed(names, 5)}. Training leaves them as they are, without weight decay or "
        "penalty; a ball moves them by their role, as it moves any weight"
    ]


def _asked_of_optimizer(about: Anatomy, module: nn.Module) -> list[str]:
    """Says what becomes of the settings that parameters ask of their optimizer."""
    trained = [each for each in about.tensors if not each.frozen]
    taken = [f"{each.name} {_words(asked)}" for each in trained if (asked := each.role.optimizer_settings) is not None]
    if taken:
        return [
            f"parameters have settings of the optimizer by their attribute _optim: {listed(taken, 5)}. Where "
            "training.groups has their group, it decides alone"
        ]
    passed = list(asked_settings(module))
    return [f"the attribute _optim of {listed(passed, 5)} is passed over: all are trained alike"] if passed else []


def _words(settings: GroupConfig) -> str:
    """The settings of a parameter, as of a group."""
    ((_, words),) = GroupsConfig(recurrent=settings).settings()
    return words


def _ends_at_the_horizon(target: str, module: nn.Module, sizes: Signature, tokens: bool) -> list[str]:
    longer = Signature(sizes.inputs, sizes.outputs, sizes.horizon + 1)
    try:
        with torch.no_grad():
            module(probe_inputs(longer, tokens, dtype=torch.float64))
    except Exception as error:  # any fault of foreign code
        return [
            f"{target} cannot run a step beyond its horizon of {sizes.horizon} ({in_one_line(error)}): its memory is "
            "measured within the horizon"
        ]
    return []


_PUSHED = (Part.RECURRENT, Part.ENCODER, Part.READOUT)
"""Parts that a search moves before it follows a gradient; without random starts it moves no others."""


def unmoved(config: PerturbationConfig, factory: str, described: Sequence[Described]) -> Iterator[str]:
    """Sentences of the balls that would move no parameter."""
    there = {each.role.part for each in described} - {Part.STATISTIC}
    pushed = config.method == "worst_case" and not config.starts
    for ball, moved, kind in (
        ("recurrent", {Part.RECURRENT}, "recurrent"),
        ("weights", {*Part} - {Part.BIAS}, "anything but a bias"),
        ("all", {*Part}, "anything"),
    ):
        if ball not in config.balls:
            continue
        rest = "or leave that ball out"
        if there & moved and pushed and not there & moved & {*_PUSHED}:
            kind, rest = "recurrent, encoder or readout", "take random starts (perturbation.starts=4), or leave it out"
        elif there & moved:
            continue
        yield (
            f"perturbation.balls has {ball}, which moves no parameter of {factory}: none is taken to be {kind} "
            f'({_listed(described)}). Say which are, such as model.roles.recurrent: ["*gate*"], {rest}'
        )


def _listed(described: Sequence[Described]) -> str:
    """Some parameters with their roles, in words."""
    named = [f"{each.name} {each.role.part}" for each in described[:6]]
    return ", ".join([*named, *([f"and {len(described) - 6} more"] if len(described) > 6 else [])])
