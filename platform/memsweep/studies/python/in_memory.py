"""Modules in memory: in the place of one that a study names (``in memory:MinGRU``), and the trained model of a study.

The engine makes replicas by calling what a study names. Here a name stands for a module of this process, and each call
gives a copy of it, weights included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memsweep import registry
from memsweep.config.load.foreign import foreign_code
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.errors import ModuleError, listed
from memsweep.models.base import Model, Signature
from memsweep.models.module.factory import Factory, to_dtype
from memsweep.models.module.in_memory import drop, put
from memsweep.models.module.model import Module
from memsweep.report.read.weights import ReplicaWeights
from memsweep.trust.gate import Trust, admit_plan


def copies_of(module: object, verb: str = "measure") -> Callable[[], nn.Module]:
    """Gives a copy of a module at every call; one was made already. ``verb`` is the command for what a file holds.

    Raises:
        ModuleError: it is no ``nn.Module``, or cannot be copied.
    """
    if not isinstance(module, nn.Module):
        run = f" Or run: memsweep {verb} {module}" if isinstance(module, str) and ":" in module else ""
        raise ModuleError(
            f"a torch.nn.Module is expected, got {type(module).__name__}. Give the module, such as Net(width=16), or "
            f"its class.{run}"
        )
    own: nn.Module = module.module if isinstance(module, Module) else module
    name = name_of(own)
    if problem := _unfit(own, verb):
        raise ModuleError(f"{name} {problem}")

    def copied() -> nn.Module:
        with foreign_code(
            lambda error: (
                f"{name} cannot be copied (copy.deepcopy): {error}. Its tensors must be parameters "
                "and buffers, not results of a computation with gradients."
            )
        ):
            return copy.deepcopy(own)

    copied()
    return copied


def built(
    make: Callable[..., nn.Module], signature: Signature, width: int | None, arguments: Mapping[str, Any] | None = None
) -> nn.Module:
    """A module of a class or function, of seed 0.

    Raises:
        ModuleError: see ``Factory.build``.
    """
    name = str(getattr(make, "__name__", type(make).__name__))
    return Factory(name, make, str(getattr(make, "__module__", "")), None, own=True).build(signature, width, arguments)


def _unfit(module: nn.Module, verb: str) -> str:
    """Why a module cannot be audited or measured as it is, as the end of sentences; empty where it can."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if empty := [name for name, tensor in tensors.items() if tensor.is_meta]:
        return f"has no numbers in {listed(empty, 3)} (device meta). Build it on the processor, and load its weights."
    if verb != "measure":
        return ""
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return "spreads another module over devices. Give that one: ms.measure(module.module, ...)."
    if lazy := [name for name, tensor in tensors.items() if is_lazy(tensor)]:
        return f"has no size yet in {listed(lazy, 3)} (lazy). Call it once on inputs, so that torch makes its weights."
    return ""


def name_of(module: nn.Module) -> str:
    """The name of its class."""
    return type(module.module if isinstance(module, Module) else module).__name__


@contextmanager
def named(module: nn.Module) -> Iterator[str]:
    """A name under which the engine finds the module while the context lasts.

    Raises:
        ModuleError: as of ``copies_of``.
    """
    copies, name = [copies_of(module)], name_of(module)

    def make() -> nn.Module:
        made = copies[0]()
        to_dtype(made, torch.get_default_dtype(), "cpu")  # as a script makes it; a file has the weights in full
        return made

    target = put(name, make)
    try:
        yield target
    finally:
        copies.clear()  # what is remembered of the module (its roles) does not keep its weights
        drop(target)


def trained_module(found: ReplicaWeights, study: str, where: str, workspace: Path, trust: Trust) -> nn.Module:
    """The module of a trained replica, with its weights, in eval mode and in the precision of training.

    Args:
        found: the weights, with the trial's config.
        study: its name.
        where: its folder.
        workspace: folder that holds tasks/ and the files of modules.
        trust: the person's word for code that the trial names.

    Raises:
        TrustError: it names code that this user has neither planned nor trusted.
        ModuleError: the user's module cannot be made.
    """
    registry.discover(workspace)
    admit_plan([found.config["model"]], study, where, trust)
    trial = trial_from_dict(found.config)
    task = registry.get(registry.TASK, trial.task.name)(trial.task)
    signature = Signature(task.inputs, task.outputs, task.horizon)
    model: Model = registry.get(registry.MODEL, trial.model.name)(trial.model, signature)
    module = model.module if isinstance(model, Module) else model
    to_dtype(module, getattr(torch, trial.training.dtype))
    module.load_state_dict(dict(found.tensors))
    return module.eval()
