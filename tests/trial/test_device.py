"""Another device than the processor: nothing is left behind, and a GPU gives the same numbers but for rounding."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine import trial, whole
from memsweep import registry
from memsweep.learning import loop
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.training.learner import Learner
from memsweep.streams import VALIDATION, Stream
from memsweep.trial import RunOptions, _tasks_and_ensembles, run_trial

SOMEWHERE = "lazy:0"
"""A device that torch knows by name and has no code for: tensors that are only shapes may lie there."""


def stack(**fields):
    return registry.get(registry.MODEL, "residual_stack").Config(**{"width": 3, "layers": 2} | fields)


CONFIGS = {activation: trial(model={"activation": activation}) for activation in ("linear", "tanh")} | {
    name: dataclasses.replace(trial(training={"micro_batch": fits}), model=model)
    for name, fits, model in [
        ("stack", 8, stack(dropout=0.5, pooling="running_mean")),
        ("stack with batch norm", 0, stack(dropout=0.5, norm="batch", prenorm=False, mixing="half_glu1")),
    ]  # how many sequences fit is found by running some, which a device without code cannot
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_of_training_leaves_no_tensor_behind(name, monkeypatch):
    """Torch refuses an operation on tensors of two devices, even where they have no numbers."""
    config = CONFIGS[name]
    (task,), groups = _tasks_and_ensembles([config], padded=True)
    shapes, from_numpy = FakeTensorMode(allow_non_fake_inputs=True), torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: shapes.from_tensor(from_numpy(array)))
    for group in groups:
        group.model._parameters.clear()  # of an ensemble they mean nothing
        tensors = {name: shapes.from_tensor(getattr(group, name)) for name in ("initial", "exists", "real")}
        with shapes, torch.device(SOMEWHERE):
            there = dataclasses.replace(group, **tensors).to(SOMEWHERE)
            task_loss = task_loss_for([task], config.has_closed_form, torch.float64)
            learner = Learner.start(there, task_loss, config.training)
            data = whole(task_loss.data(Stream(0, VALIDATION), 0, 8))
            loop._step(learner, task_loss, data, 0, config.training)
            loop._validate([learner], task_loss, data, 1, config.training)
            loop._merge_redundant(learner, task_loss, data, config.training)
            assert str(learner.best_weights.device) == str(learner.loss.device) == SOMEWHERE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(
    "model", ["diagonal_rnn", "dense_rnn", "vanilla_rnn", "ssm", "lru", "stable_ssm", "residual_stack"]
)
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_a_gpu_gives_the_same_numbers_but_for_rounding(model, activation):
    small = registry.get(registry.MODEL, model).Config
    fields = {"width": 3} | ({"activation": activation} if "activation" in small.__dataclass_fields__ else {})
    config = dataclasses.replace(trial(training={"steps": 5}), model=small(**fields))
    here, there = run_trial(config), run_trial(config, RunOptions(device="cuda"))
    for name in ("curves", "replicas"):
        column = "error"
        left, right = here.tables[name][column].to_numpy(), there.tables[name][column].to_numpy()
        assert left == pytest.approx(right, rel=1e-6)
