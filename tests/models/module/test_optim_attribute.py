"""Settings of the optimizer that a parameter asks for by its attribute ``_optim``, as those of S4, and patterns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from test_plain_loop import loss_of_a_plain_loop

from memsweep import registry
from memsweep.cli import main
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.config.schema.training import GroupConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError, ModuleError
from memsweep.models.base import Signature
from memsweep.models.module.anatomy import anatomy
from memsweep.models.module.config import ModuleConfig
from memsweep.sweep.planning.fingerprint import CONDITIONAL, code_closure
from memsweep.sweep.planning.identity import identifying
from memsweep.trial import run_trial
from paths import ROOT

RATES = """
import torch
from torch import nn


class Net(nn.Module):
    asked = {"lr": 0.001, "weight_decay": 0.0}

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.encoder = nn.Linear(inputs, width, bias=False)
        self.log_step = nn.Parameter(torch.rand(width) * 3 - 4)
        self.gain = nn.Parameter(torch.ones(width))
        if self.asked is not None:
            self.log_step._optim = self.asked
            self.gain._optim = {"weight_decay": 0.2}
        self.readout = nn.Linear(width, outputs, bias=False)

    def forward(self, x):
        decay, h, states = torch.exp(-self.log_step.exp()), 0, []
        for t in range(x.shape[1]):
            h = decay * h + self.encoder(x[:, t])
            states.append(self.gain * h)
        return self.readout(torch.stack(states, 1))


class Plain(Net):
    asked = None


class Still(Net):
    asked = {"lr": 0.0}

    def __init__(self, d_model):
        super().__init__(d_model, d_model, d_model)


class Betas(Net):
    asked = {"lr": 0.001, "betas": (0.9, 0.99)}


class Negative(Net):
    asked = {"lr": -1.0}


class Words(Net):
    asked = "slow"
"""
SIZES = Signature(2, 2, 32)


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asks_rates.py").write_text(RATES)
    monkeypatch.chdir(tmp_path)
    registry.discover(ROOT)
    registry.discover(tmp_path)


def trial(model: dict[str, Any], **training: Any) -> TrialConfig:
    return trial_from_dict(
        {
            "task": {"name": "copying_memory", "encoding": "one_hot", "delay": 1, "length": 1, "symbols": 3},
            "model": {"width": 6, **model},
            "training": {"seeds": 3, "steps": 10, "batch_size": 8, "validate_every": 10, "validation_size": 16}
            | training,
            "perturbation": {"balls": [], "test_size": 16},
        }
    )


NET = {"name": "module", "factory": "asks_rates:Net"}
DECAYING = {"learning_rate": 0.02, "weight_decay": 0.05}


BY_ATTRIBUTE = (NET | {"input_group": ["encoder.*"]}, {"groups": {"input": {"factor": 0.5, "weight_decay": 0.3}}})
BY_PATTERN = (
    NET | {"factory": "asks_rates:Plain"},
    {
        "parameter_groups": [
            {"parameters": ["encoder.*"], "factor": 0.5, "weight_decay": 0.3},
            {"parameters": ["log_*"], "learning_rate": 0.001, "weight_decay": 0.0},
            {"parameters": ["gain", "log_*"], "weight_decay": 0.2},
        ]
    },
)


@pytest.mark.parametrize(("model", "training"), [BY_ATTRIBUTE, BY_PATTERN], ids=["attribute", "pattern"])
def test_each_seed_of_a_pack_trains_as_a_loop_with_the_same_groups_of_torch_optim(
    model: dict[str, Any], training: dict[str, Any]
) -> None:
    config = trial(model, **training, **DECAYING)

    def optimizer_of(weights: Any) -> torch.optim.Optimizer:
        encoder, log_step, gain, readout = ({"params": [each]} for each in sorted_by_role([*weights]))
        encoder |= {"lr": 0.01, "weight_decay": 0.3}
        log_step |= {"lr": 0.001, "weight_decay": 0.0}
        gain |= {"weight_decay": 0.2}
        return torch.optim.AdamW([encoder, log_step, gain, readout], lr=0.02, weight_decay=0.05)

    together = run_trial(config)
    for seed in range(3):
        _, module = loss_of_a_plain_loop(config, seed, optimizer_of)
        one = dataclasses.replace(config, training=dataclasses.replace(config.training, seeds=1, first_seed=seed))
        (alone,) = run_trial(one).weights.values()
        for name, weight in module.named_parameters():
            assert torch.allclose(together.weights[seed][name], weight, rtol=1e-12, atol=1e-14), name
            assert torch.allclose(together.weights[seed][name], alone[name], rtol=1e-12, atol=1e-14), name


def sorted_by_role(weights: list[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """Encoder, step, gain, readout of ``Net``, whose own parameters come before those of its children."""
    log_step, gain, encoder, readout = weights
    return [encoder, log_step, gain, readout]


def test_a_study_may_pass_over_the_attribute() -> None:
    asked, passed, plain = (
        run_trial(trial(model, steps=5, validate_every=5, **DECAYING)).weights[0]
        for model in (NET, NET | {"optim_attribute": False}, NET | {"factory": "asks_rates:Plain"})
    )
    assert all(torch.equal(passed[name], plain[name]) for name in plain)
    assert not torch.equal(asked["log_step"], plain["log_step"])


def test_a_layer_of_a_stack_has_its_settings_in_every_layer() -> None:
    unit = {"name": "module", "factory": "asks_rates:Still"}
    stack = {"name": "residual_stack", "layers": 2, "features": 6, "unit": unit}
    with_steps, at_first = (
        run_trial(trial(stack, steps=steps, validate_every=max(steps, 1), select="loss")).weights[0] for steps in (5, 0)
    )
    for layer in range(2):
        assert torch.equal(with_steps[f"log_step_l{layer}"], at_first[f"log_step_l{layer}"])
        assert not torch.equal(with_steps[f"encoder/weight_l{layer}"], at_first[f"encoder/weight_l{layer}"])


@pytest.mark.parametrize(("name", "got"), [("Betas", "betas"), ("Negative", "-1.0"), ("Words", "'slow'")])
def test_what_is_not_understood_is_refused_by_name(name: str, got: str) -> None:
    config = ModuleConfig(factory=f"asks_rates:{name}", width=4)
    with pytest.raises(ModuleError, match=f"log_step has .*{got}.*model.optim_attribute: false"):
        anatomy(config, SIZES)
    taken = anatomy(dataclasses.replace(config, optim_attribute=False), SIZES)
    assert {each.role.optimizer_settings for each in taken.tensors} == {None}


def test_describe_says_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "asks_rates:Net", "--width", "4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "_optim: log_step learning_rate 0.001 and weight_decay 0, gain weight_decay 0.2" in said


def test_modules_without_the_attribute_keep_their_identity() -> None:
    settings = {each.role.optimizer_settings for each in anatomy(ModuleConfig(**only_fields(NET)), SIZES).tensors}
    assert settings == {None, GroupConfig(learning_rate=0.001, weight_decay=0.0), GroupConfig(weight_decay=0.2)}
    asks = CONDITIONAL["memsweep.models.roles.asks_settings"]
    stack = {"name": "residual_stack", "features": 6, "unit": {"name": "module", "factory": "asks_rates:Still"}}
    kinds = [NET, stack, NET | {"optim_attribute": False}, NET | {"factory": "asks_rates:Plain"}, {"name": "lru"}]
    assert [asks(trial(model), "") for model in kinds] == [True, True, False, False, False]
    taken = ("memsweep.models.module.roles", "with_settings")
    closures = [code_closure(trial(model), training=True) for model in (kinds[0], kinds[1], kinds[3])]
    assert [taken in each for each in closures] == [True, True, False]


def test_groups_by_pattern_come_behind_those_of_the_model_and_before_the_attribute() -> None:
    patterns = [{"parameters": ["*"], "factor": 0.0, "weight_decay": 0.0}]
    moving = {"input": {"factor": 1.0}}
    config = trial(
        NET | {"input_group": ["encoder.*"]}, steps=5, validate_every=5, groups=moving, parameter_groups=patterns
    )
    (at_first,) = run_trial(trial(NET, seeds=1, steps=0, validate_every=1)).weights.values()
    trained = run_trial(config).weights[0]
    moved = {name for name, weight in trained.items() if not torch.equal(weight, at_first[name])}
    assert moved == {"encoder.weight"}


def test_a_pattern_that_fits_no_weight_is_refused_by_name_and_settings_that_set_nothing() -> None:
    config = trial(NET, parameter_groups=[{"parameters": ["log_steps"], "factor": 0.1}])
    (said,) = registry.get(registry.MODEL, "module").problems_of_code(config)
    assert "pattern 'log_steps', which fits no weight of the model module. Its weights: log_step, gain" in said
    with pytest.raises(ConfigError, match="it sets nothing"):
        trial(NET, parameter_groups=[{"parameters": ["log_step"]}])


def test_trials_without_groups_by_pattern_keep_their_identity() -> None:
    reached = ("memsweep.learning.training.optimizer", "_with_patterns")
    plain, grouped = (
        trial({"name": "lru"}),
        trial({"name": "lru"}, parameter_groups=[{"parameters": ["*"], "factor": 0.5}]),
    )
    assert [reached in code_closure(each) for each in (plain, grouped)] == [False, True]
    words = {name for _, name in code_closure(plain)}
    assert not {each for each in words if "parameter_groups" in each or "from_influence" in each}
    assert "parameter_groups" not in identifying(plain)["training"]
    assert "parameter_groups" in identifying(grouped)["training"]


def only_fields(model: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name != "name"}
