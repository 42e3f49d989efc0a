"""Another device than the processor: nothing is left behind, and a GPU gives the same numbers but for rounding."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from elsewhere import SOMEWHERE, Watch

from engine import trial
from memsweep import registry
from memsweep.config.schema.trial import RadiiConfig
from memsweep.learning.training import learner
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.stability.perturbation import ascent
from memsweep.trial import RunOptions, run_trial


def stack(**fields):
    return registry.get(registry.MODEL, "residual_stack").Config(**{"width": 3, "layers": 2} | fields)


CONFIGS = {activation: trial(model={"activation": activation}) for activation in ("linear", "tanh")} | {
    name: dataclasses.replace(trial(training={"micro_batch": fits}), model=model)
    for name, fits, model in [
        ("stack", 8, stack(dropout=0.5, pooling="running_mean")),
        ("stack with batch norm", 0, stack(dropout=0.5, norm="batch", prenorm=False, mixing="half_glu1")),
    ]
}
SHORT = {"radii": RadiiConfig(from_=0.1, to=1.0, count=2), "starts": 1, "ascent_steps": 1, "test_size": 8}
SHORTEST = SHORT | {"balls": ("recurrent",), "starts": 0, "stronger_every": 0}
FEW = {"seeds": 1, "steps": 2, "batch_size": 4, "validation_size": 4, "validate_every": 1}


@pytest.mark.parametrize(
    ("name", "few"),
    [
        pytest.param("tanh", SHORTEST, id="tanh, one ball"),
        *(pytest.param(name, SHORT, marks=pytest.mark.more, id=name) for name in CONFIGS),
    ],
)
def test_a_trial_on_another_device_leaves_nothing_behind(name, few, monkeypatch):
    """The device refuses an operation with a tensor of the processor; it has the processor's numbers."""
    monkeypatch.setenv(KERNELS, "plain")
    for budgets in (ascent.BUDGETS, learner.BUDGETS):
        monkeypatch.setitem(budgets, torch.device(SOMEWHERE).type, budgets["cpu"])
    config = CONFIGS[name]
    parts = {"task": {"horizon": 4}, "training": FEW, "perturbation": few}
    small = {part: dataclasses.replace(getattr(config, part), **fields) for part, fields in parts.items()}
    config = dataclasses.replace(config, **small)
    here = run_trial(config)
    with Watch():
        there = run_trial(config, RunOptions(device=SOMEWHERE))
    for table in ("curves", "replicas"):
        assert there.tables[table]["error"].to_numpy() == pytest.approx(
            here.tables[table]["error"].to_numpy(), rel=1e-9
        )


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
