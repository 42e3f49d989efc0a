"""A trained model of a study as a module."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from memsweep import registry
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.models.base import Model, Signature
from memsweep.models.module.factory import to_dtype
from memsweep.models.module.model import Module
from memsweep.report.read.weights import ReplicaWeights
from memsweep.trust.gate import Trust, admit_plan


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
