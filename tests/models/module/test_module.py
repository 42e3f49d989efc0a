"""The model ``module``: a user's plain torch module trains and is measured as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from memsweep import registry
from memsweep.config.core.arguments import Arguments
from memsweep.config.schema.canonical import plain_at, to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.models.base import Part, Signature
from memsweep.models.module.anatomy import build_module
from memsweep.models.module.factory import outputs_of
from memsweep.models.module.model import Module
from memsweep.models.module.torch_layers import compiled_layers
from memsweep.trial import run_trial
from paths import ROOT

NETS = "tests/support/nets"
MIN_GRU = {"factory": f"{NETS}/min_gru.py:MinGRU", "arguments": {"layers": 2}}
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

MODELS: dict[str, dict[str, Any]] = {
    "min_gru": MIN_GRU,
    "selective_ssm": {"factory": f"{NETS}/selective_ssm.py:SelectiveSSM", "width_argument": "d_model"},
    "transformer": {"factory": f"{NETS}/transformer.py:Transformer"},
    "gru": {"factory": f"{NETS}/torch_rnn.py:gru"},
    "lstm": {"factory": f"{NETS}/torch_rnn.py:lstm", "arguments": {"layers": 2, "dropout": 0.2}},
    "states_too": {
        "factory": "torch.nn:LSTM",
        "inputs_argument": "input_size",
        "outputs_argument": "proj_size",
        "width_argument": "hidden_size",
        "arguments": {"batch_first": True},
    },
    "tokens": {"factory": f"{NETS}/torch_rnn.py:TokenGRU", "tokens": True},
}


def trial(model: dict[str, Any], training: dict[str, Any] | None = None, **perturbation: Any) -> TrialConfig:
    """A second of training on a copying task of 14 steps; seeds on which no stronger search measures the usual one."""
    registry.discover(ROOT)
    data = {
        "task": {"name": "copying_memory", "encoding": "one_hot", "delay": 6, "length": 4, "symbols": 3},
        "model": {"name": "module", "width": 6, **model},
        "training": {
            "seeds": 2,
            "first_seed": 1,
            "steps": 6,
            "batch_size": 8,
            "validation_size": 16,
            "validate_every": 3,
        }
        | (training or {}),
        "perturbation": {"radii": {"count": 3}, "starts": 1, "ascent_steps": 2, "test_size": 16, **perturbation},
    }
    return trial_from_dict(data)


@pytest.mark.parametrize("name", [n if n == "min_gru" else pytest.param(n, marks=pytest.mark.more) for n in MODELS])
def test_a_plain_module_is_trained_perturbed_and_measured(name: str) -> None:
    config = trial(MODELS[name])
    assert trial_from_dict(to_dict(config)) == config
    assert not list(Module.problems_of_code(config))
    result = run_trial(config)
    assert result.outcome == "done"
    curves, memory = result.tables["curves"], result.tables["memory"]
    for _, curve in curves.groupby(["ball", "seed"]):
        errors = curve[curve.threshold.isna()].error.to_numpy()  # at 0 and the radii asked for
        assert (errors[1:] >= errors[:-1]).all()
        assert errors[-1] > 1.01 * errors[0]
    assert len(memory) == 2 * 14
    assert (memory.groupby("seed").learned.max() > 0).all()


def ensemble_of(model: dict[str, Any], seeds: int = 2) -> Any:
    config = trial(model).model
    replicas = [Replica(0, config, seed, 0.01) for seed in range(seeds)]
    (ensemble,) = build(Module, replicas, Signature(5, 4, 14), torch.float64, None)
    return ensemble


@pytest.mark.parametrize("name", MODELS)
def test_each_replica_and_copy_gives_the_modules_own_outputs_and_gradients(name: str) -> None:
    ensemble = ensemble_of(MODELS[name])
    ids = torch.randint(5, (3, 14), generator=torch.Generator().manual_seed(1))
    inputs = ids if MODELS[name].get("tokens") else torch.nn.functional.one_hot(ids, 5).double()
    flat = torch.stack([ensemble.initial, 1.1 * ensemble.initial], 1).requires_grad_()
    together = ensemble.model.outputs(ensemble.layout.named(flat), inputs)
    (gradient,) = torch.autograd.grad(together.square().sum(), flat)
    own = build_module(ensemble.model.config, Signature(5, 4, 14), 3).double().eval()
    module = compiled_layers(build_module(ensemble.model.config, Signature(5, 4, 14), 3).double().eval())
    for row in range(2):
        for copy in range(2):
            weights = ensemble.layout.named(flat[row, copy].detach())
            module.load_state_dict(weights)
            module.zero_grad()
            outputs = outputs_of(module(inputs))
            outputs.square().sum().backward()
            assert torch.equal(together[row, copy], outputs)
            own.load_state_dict(weights)
            torch.testing.assert_close(outputs_of(own(inputs)), outputs, rtol=1e-12, atol=1e-12)
            alone = {key: value.grad for key, value in module.named_parameters()}
            assert torch.equal(gradient[row, copy], ensemble.layout.flat(alone))


def test_roles_follow_torchs_names_the_studys_patterns_and_guesses() -> None:
    roles = Module.roles_at(trial(MODELS["gru"]).model, Signature(5, 4, 14))
    assert {name: str(role.part) for name, role in roles.items()} == {
        "rnn.weight_ih_l0": "encoder",
        "rnn.weight_hh_l0": "recurrent",
        "rnn.bias_ih_l0": "bias",
        "rnn.bias_hh_l0": "bias",
        "head.weight": "readout",
        "head.bias": "bias",
    }
    patterns = {"roles": {"recurrent": ["layers.*.candidate.weight"], "gain": ["readout.*"]}}
    roles = Module.roles_at(trial(MIN_GRU | patterns).model, Signature(5, 4, 14))
    assert roles["layers.0.candidate.weight"].part is Part.RECURRENT
    assert roles["layers.0.gate.weight"].part is Part.RECURRENT
    assert roles["readout.weight"].part is Part.GAIN
    decays = Module.roles_at(trial(MODELS["selective_ssm"]).model, Signature(5, 4, 14))["A_log"]
    assert decays.part is Part.RECURRENT
    assert decays.diagonal


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"factory": f"{NETS}/torch_rnn.py:gru", "roles": {"gain": ["rnn.weight_hh*"]}}, "recurrent, which moves no"),
        ({"factory": f"{NETS}/torch_rnn.py:gru", "roles": {"gain": ["nn.*"]}}, "'nn.\\*', which fits no parameter"),
        ({"factory": f"{NETS}/torch_rnn.py:grue"}, "Did you mean 'gru'"),
        (MIN_GRU | {"arguments": {"layer": 1}}, "Did you mean 'layers'"),
        ({"factory": "torch.nn:Identity", "width_argument": None}, "not \\[2, 14, 4\\]"),
    ],
)
def test_a_module_that_cannot_be_measured_is_refused_before_it_is_trained(model: dict[str, Any], message: str) -> None:
    (problem,) = Module.problems_of_code(trial(model))
    assert re.search(message, problem), problem


@pytest.mark.parametrize(
    ("perturbation", "still"),
    [
        ({"balls": ["all"], "starts": 0}, ["all"]),
        ({"balls": ["weights", "all"], "starts": 0}, ["weights", "all"]),
        ({"balls": ["weights", "all"]}, ["weights"]),  # a random start moves a bias
        ({"balls": ["all"], "starts": 0, "method": "random"}, []),
        ({"balls": []}, []),
    ],
)
def test_a_ball_that_moves_no_parameter_is_refused(perturbation: dict[str, Any], still: list[str]) -> None:
    biases = [f"{each}_l0" for each in ("rnn.weight_ih", "rnn.weight_hh")] + ["head.weight"]
    model = {"factory": f"{NETS}/torch_rnn.py:gru", "roles": {"bias": biases}}
    told = [
        problem
        for problem in Module.problems_of_code(trial(model, **perturbation))
        if "which moves no parameter" in problem
    ]
    assert [problem.split()[2].rstrip(",") for problem in told] == still


def test_arguments_are_plain_values_that_never_change() -> None:
    model = trial(MIN_GRU | {"arguments": {"layers": 2, "deep": {"sizes": [1, 2]}}}).model
    assert model.arguments == Arguments({"deep": {"sizes": (1, 2)}, "layers": 2})
    assert hash(model.arguments) == hash(Arguments({"deep": {"sizes": [1, 2]}, "layers": 2}))
    assert model.arguments.plain() == {"layers": 2, "deep": {"sizes": [1, 2]}}
    assert plain_at(model, "arguments.deep.sizes") == [1, 2]
    with pytest.raises(ConfigError, match=r"arguments.layers\[0\]: must be a finite number"):
        trial(MIN_GRU | {"arguments": {"layers": [float("nan")]}})


def test_dropout_draws_for_each_seed_and_step_and_not_in_evaluation() -> None:
    ensemble = ensemble_of(MODELS["lstm"], seeds=1)
    inputs = torch.randn(3, 14, 5, dtype=torch.float64)
    weights = ensemble.layout.named(ensemble.initial)
    model = ensemble.model

    def outputs(seed: int, step: int) -> torch.Tensor:
        model.train()
        model.start_step([seed], step)
        return model.outputs(weights, inputs)

    first = outputs(0, 1)
    assert torch.equal(first, outputs(0, 1))
    assert not torch.equal(first, outputs(1, 1))
    assert not torch.equal(first, outputs(0, 2))
    model.eval()
    assert torch.equal(model.outputs(weights, inputs), model.outputs(weights, inputs))


@pytest.mark.more
def test_a_measurement_that_fails_is_named_and_the_trained_trial_stays(tmp_path: Path) -> None:
    """The module refuses inputs of more than 1, which only the memory function gives it."""
    (tmp_path / "nets_of_small_inputs.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, inputs, outputs, width):\n"
        "        super().__init__()\n"
        "        self.rnn, self.head = nn.RNN(inputs, width, batch_first=True), nn.Linear(width, outputs)\n"
        "    def forward(self, x):\n"
        "        if not self.training and len(x) > 8 and float(x.abs().max()) > 1:\n"
        "            raise ValueError('too large')\n"
        "        return self.head(self.rnn(x)[0])\n"
    )
    config = trial({"factory": f"{tmp_path}/nets_of_small_inputs.py:Net"})
    assert not list(Module.problems_of_code(config))
    result = run_trial(config)
    assert result.outcome == "done"
    assert result.summary["not_measured"] == "memory function: ValueError (nets_of_small_inputs.py, line 8): too large"
    assert result.tables["memory"].learned.isna().all()
    assert result.tables["curves"].error.notna().all()
