"""The faults of units from outside of memsweep that only running a stack of them shows, before a study.

They are registered by others, and held to what their suites hold them to where a trial needs it; or they run a user's
module (``LayerUnit``), and say themselves why that cannot be.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from memsweep import registry
from memsweep.config.load.foreign import in_one_line
from memsweep.config.schema.trial import asked_of
from memsweep.models.base import Role
from memsweep.models.deep.around_unit import clashes
from memsweep.models.deep.contract.derivatives import inputs_of, weights_of, wrong_derivatives, wrong_steps
from memsweep.models.deep.unit import LayerUnit, OnlineUnit, Unit, kinds_of, still
from memsweep.models.registered import contract_problems, is_own, pattern_problems

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_SIZES = ((4, 3), (4, 4), (8, 8), (16, 16))
"""Widths and features of a unit whose steps are looked at: of the first that it allows; different, where it may be."""


def stack_problems(model: Any, trial: TrialConfig, around: Mapping[str, Role]) -> Iterator[str]:
    """Why a trial of a stack with units from outside cannot run, or would be measured in vain, a sentence each.

    Args:
        model: the class of the stack.
        trial: what is looked at.
        around: the roles of the weights of a layer beside its unit's.
    """
    kinds = kinds_of(trial.model)
    others = {each: kind for each, kind in kinds.items() if not is_own(kind)}
    modules = any(issubclass(kind, LayerUnit) for kind in kinds.values())
    found = [*contract_problems(model, trial, functools.partial(_of_answers, trial.model, others), may_idle=modules)]
    yield from found or _of_steps(trial, others)
    yield from pattern_problems(model, trial)
    yield from _of_modules(trial, kinds, around)


def _of_answers(config: Any, others: Mapping[Any, type[Unit]]) -> Iterator[str]:
    for each, kind in others.items():
        yield from _of_answer(kind, each, config.width, config.features)


@functools.lru_cache(maxsize=256)
def _of_answer(kind: type[Unit], config: Any, width: int, features: int) -> tuple[str, ...]:
    """The fault of answers that are no features; what else a unit raises is told where the whole stack runs."""
    unit = kind(config, width, features)
    x_NBTF, answers = inputs_of(unit), None
    with contextlib.suppress(Exception), torch.no_grad():
        answers = unit.run(weights_of(unit), x_NBTF)
    if not isinstance(answers, torch.Tensor) or (answers.shape, answers.dtype) == (x_NBTF.shape, x_NBTF.dtype):
        return ()
    return (
        f"the unit {config.name} answers {list(answers.shape)} of {_kind(answers)} to inputs {list(x_NBTF.shape)} of "
        f"{_kind(x_NBTF)} (replicas, sequences, steps, features); it must answer with that shape and kind",
    )


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _of_steps(trial: TrialConfig, others: Mapping[Any, type[Unit]]) -> Iterator[str]:
    """The faults of the steps of units, of a trial that takes them one by one."""
    training = trial.training
    forward = bool(training.steps and registry.get(registry.RULE, training.rule).forward)
    rounds = any(
        [*registry.get(registry.MEASURE, asked.name).problems_without_steps(asked, "")]
        for asked in asked_of(trial.perturbation)
    )
    for each, kind in others.items():
        yield from _of_unit(kind, each, forward) if forward or rounds else ()


@functools.lru_cache(maxsize=256)
def _of_unit(kind: type[Unit], config: Any, forward: bool) -> tuple[str, ...]:
    sizes = next((sizes for sizes in _SIZES if kind.refusal(config, *sizes) is None), None)
    if sizes is None:
        return ()
    unit = kind(config, *sizes)
    try:
        found = [*wrong_steps(unit)]
        found = found or [*(wrong_derivatives(unit) if forward and isinstance(unit, OnlineUnit) else ())]
    except Exception as error:  # any fault of foreign code
        found = [f"failed where its steps were compared with its states: {in_one_line(error)}"]
    return tuple(f"the unit {config.name} {words}" for words in found)


def _of_modules(trial: TrialConfig, kinds: Mapping[Any, type[Unit]], around: Mapping[str, Role]) -> Iterator[str]:
    """The faults that units which run a user's module find in it."""
    config: Any = trial.model
    foreign = {each: kind for each, kind in kinds.items() if issubclass(kind, LayerUnit)}
    found = [problem for each, kind in foreign.items() for problem in kind.problems_of_code(each, trial)]
    if found or not foreign:
        yield from found
        return
    parts = set()
    for each, kind in kinds.items():
        roles = kind(each, config.width, config.features).roles()
        yield from clashes(around, each.name, roles) if each in foreign else ()
        parts |= {role.part for role in roles.values()}
    yield from still(trial, parts)
