"""A stack without an encoder: torch's layer with a readout, where there is one layer; refusals, steps, identity."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import Tensor, nn
from torch.nn.functional import gelu

from engine import noise, task_config, usual_unit
from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.errors import ConfigError
from memsweep.models.base import Part, Signature
from memsweep.models.deep.no_encoder.first_layer import first_unit
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.stability.states import run_of
from memsweep.sweep.planning.fingerprint import GRAPH, _Cut, code_closure
from memsweep.sweep.planning.identity import identifying
from memsweep.testing import ModelSuite, UnitSuite
from memsweep.trial import run_trial
from sweeping import FAST, ready, sweep

SIGNATURE, WIDTH = Signature(inputs=3, outputs=2, horizon=9), 5
TORCHS: dict[str, type[nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}
# torch's order of the gates, and the sign of each: its GRU calls the share of a state that stays what ours calls new
GATES = {
    "gru": {"reset": 1, "update": -1, "candidate": 1},
    "lstm": {"input": 1, "forget": 1, "candidate": 1, "output": 1},
}
KINDS = {"encoder": "weight_ih_l0", "matrix": "weight_hh_l0", "bias": "bias_ih_l0"}


def config(unit: str, **fields: Any) -> Any:
    sizes = {"width": WIDTH, "features": WIDTH, "encoder__": "none"}
    return ResidualStack.Config(**sizes | fields, unit=usual_unit(unit))


def built(chosen: Any, replicas: int = 2, signature: Signature = SIGNATURE) -> tuple[ResidualStack, dict[str, Tensor]]:
    """A model and weights of some replicas, no bias zero, each a leaf."""
    rng = np.random.default_rng(5)
    model = ResidualStack(chosen, signature, rng).eval()
    shapes = {name: value.detach() for name, value in model.named_parameters()}
    drawn = {
        name: value + 0.2 * torch.from_numpy(rng.standard_normal((replicas, *value.shape)))
        for name, value in shapes.items()
    }
    return model, {name: value.requires_grad_() for name, value in drawn.items()}


def torchs(unit: str, inputs: int, own: dict[str, Tensor], layer: int) -> nn.RNNBase:
    """torch's layer with our weights of a layer; its second bias is zero but where our GRU has it, too."""
    width = len(own[f"bias_candidate_l{layer}"])
    found = TORCHS[unit](inputs, width, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for kind, place in KINDS.items():
            parts = [sign * own[f"{kind}_{gate}_l{layer}"] for gate, sign in GATES[unit].items()]
            getattr(found, place).copy_(torch.cat(parts))
        found.bias_hh_l0.zero_()
        if unit == "gru":
            found.bias_hh_l0[2 * width :] = own[f"bias_recalled_l{layer}"]
    return found


class Torchs(nn.Module):
    """One replica by torch's layers and a readout, from its weights by the engine's names."""

    def __init__(self, chosen: Any, own: dict[str, Tensor], inputs: int) -> None:
        super().__init__()
        self.config, self.own = chosen, own
        sizes = [inputs, *[chosen.features] * (chosen.layers - 1)]
        units = (torchs(chosen.unit.name, size, own, layer) for layer, size in enumerate(sizes))
        self.units = nn.ModuleList(units)

    def forward(self, x: Tensor) -> Tensor:
        for layer, unit in enumerate(self.units):
            read = self.norm(layer, x) if layer and self.config.prenorm else x
            answer = self.mixed(layer, unit(read)[0])
            x = x + answer if layer and self.config.residual else answer
            x = x if self.config.prenorm else self.norm(layer, x)
        return nn.functional.linear(x, self.own["readout_weight"], self.own["readout_bias"])

    def norm(self, layer: int, x: Tensor) -> Tensor:
        if self.config.norm == "none":
            return x
        gain, bias = (self.own[f"norm_{name}_l{layer}"] for name in ("weight", "bias"))
        return nn.functional.layer_norm(x, x.shape[-1:], gain, bias, eps=1e-6)

    def mixed(self, layer: int, answer: Tensor) -> Tensor:
        kind, bent = self.config.mixing, gelu(answer, approximate="tanh")
        if kind in ("none", "gelu"):
            return answer if kind == "none" else bent
        mix, gate = (
            nn.functional.linear(bent, self.own[f"{name}_weight_l{layer}"], self.own[f"{name}_bias_l{layer}"])
            if f"{name}_weight_l{layer}" in self.own
            else Tensor()
            for name in ("mix", "gate")
        )
        return {"full_glu": mix, "half_glu1": bent, "half_glu2": answer}[kind] * gate.sigmoid()


DEEP: list[dict[str, Any]] = [
    {},
    *({"mixing": mixing} for mixing in ("half_glu1", "half_glu2", "gelu", "none")),
    {"prenorm": False},
    {"residual": False},
    {"norm": "none"},
]
CASES = [(unit, {"mixing": "none"}) for unit in TORCHS] + [
    (unit, {"layers": 3, **fields}) for unit in TORCHS for fields in DEEP
]


@pytest.mark.parametrize("way", ["compiled", "plain"])
@pytest.mark.parametrize(("unit", "fields"), CASES, ids=str)
def test_it_is_torchs_layers_and_a_readout(
    unit: str, fields: dict[str, Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs of each replica, and gradients by what both have under one name."""
    monkeypatch.setenv(KERNELS, way)
    model, weights = built(config(unit, **fields))
    inputs, outer = noise(4, 9, 3), noise(4, 9, 2, seed=8)
    outputs = model.outputs(weights, inputs)
    found = dict(zip(weights, torch.autograd.grad((outputs * outer).sum(), list(weights.values())), strict=True))
    for row, output in enumerate(outputs):
        own = {name: value[row].detach().requires_grad_() for name, value in weights.items()}
        theirs = Torchs(model.config, own, 3)
        expected = theirs(inputs)
        torch.testing.assert_close(output, expected, rtol=0.0, atol=1e-12)
        (expected * outer).sum().backward()
        around = {name: value.grad for name, value in own.items() if value.grad is not None}
        assert around.keys() == {name for name in own if name.startswith(("readout", "norm", "mix", "gate"))}
        for name, gradient in around.items():
            torch.testing.assert_close(found[name][row], gradient, rtol=1e-11, atol=1e-12)
        for layer, each in enumerate(theirs.units):
            for kind, place in KINDS.items():
                ours = [sign * found[f"{kind}_{gate}_l{layer}"][row] for gate, sign in GATES[unit].items()]
                torch.testing.assert_close(torch.cat(ours), getattr(each, place).grad, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("unit", "second"), [("gru", 2), ("lstm", 4)])
def test_it_has_the_weights_of_torchs_layer_without_the_biases_that_add_nothing(unit: str, second: int) -> None:
    """torch has two biases for each gate; their sum is one, but for the candidate of a GRU."""
    width = 128
    chosen = config(unit, width=width, features=width, mixing="none")
    model = ResidualStack(chosen, Signature(1, 1, 10))
    theirs = nn.Sequential(TORCHS[unit](1, width), nn.Linear(width, 1))
    expected = sum(each.numel() for each in theirs.parameters())
    ours = sum(each.numel() for each in model.parameters())
    assert ours == expected - second * width
    assert ours == ResidualStack.count_parameters(chosen, task_config())
    assert (unit, ours, expected) in {("lstm", 66_689, 67_201), ("gru", 50_177, 50_433)}
    encoded = dataclasses.replace(chosen, encoder__="linear")
    assert sum(each.numel() for each in ResidualStack(encoded, Signature(1, 1, 10)).parameters()) > 1.9 * ours


def test_a_norm_over_a_batch_hidden_readout_and_pooling_are_as_with_an_encoder() -> None:
    """The same as of an encoder that changes nothing, without norm and residual around the first layer."""
    fields = {"layers": 1, "readout_width": 4, "pooling": "mean", "mixing": "half_glu1"}
    signature = Signature(WIDTH, 2, 9)
    model, weights = built(config("lstm", **fields), signature=signature)
    encoded = ResidualStack(config("lstm", **fields, encoder__="linear", norm="none", residual=False), signature)
    unchanged = {"encoder_weight": torch.eye(WIDTH).double().expand(2, -1, -1), "encoder_bias": torch.zeros(2, WIDTH)}
    inputs = noise(4, 9, WIDTH)
    expected = encoded.outputs({**{name: value.double() for name, value in unchanged.items()}, **weights}, inputs)
    torch.testing.assert_close(model.outputs(weights, inputs), expected, rtol=0.0, atol=1e-12)
    roles = ResidualStack.roles(config("gru", layers=2, norm="batch"))
    assert {name for name in roles if name.startswith("norm")} == {
        f"norm_{name}_l1" for name in ("weight", "bias", "mean", "variance")
    }
    assert "norm_mean_l0" in ResidualStack.roles(config("gru", layers=2, norm="batch", prenorm=False))


@pytest.mark.parametrize("unit", ["gru", "lstm", "slstm"])
def test_its_steps_are_its_outputs_and_its_eigenvalues_those_of_all_layers(unit: str) -> None:
    """For what is rounded after each step; and the Jacobian at rest does not know the inputs."""
    model, weights = built(config(unit, width=6, features=6, layers=2))
    inputs = noise(4, 9, 3)
    outputs = run_of(model, weights, inputs)(lambda _, states: states, 1)
    torch.testing.assert_close(outputs[:, 0], model.outputs(weights, inputs), rtol=1e-12, atol=1e-12)
    found = model.eigenvalues(weights)
    if unit == "slstm":
        assert found is None
        return
    assert found is not None
    own = {name.removesuffix("_l0"): value for name, value in weights.items() if name.endswith("_l0")}
    encoded = {
        name: torch.ones(2, 6, 6).double() if name.startswith("encoder") else value for name, value in own.items()
    }
    usual = registry.get(registry.UNIT, unit)(model.config.unit, 6, 6)
    expected = usual.eigenvalues(encoded)
    assert torch.equal(found[:, : expected.shape[1]], expected)


# ---- what every unit and model must do


@pytest.mark.parametrize("unit", ["gru", "lstm", "slstm", "rnn", "lru"])
def test_units_that_answer_with_their_states_say_so(unit: str) -> None:
    kind = registry.get(registry.UNIT, unit)
    assert kind.answers_with_states == (kind.refusal(usual_unit(unit), 4, 6) is not None)


class OfInputs(UnitSuite):
    """The suite of units, of one that reads fewer numbers than it has states."""

    def build(self) -> Any:
        return first_unit(ResidualStack.Config(width=4, features=4, unit=usual_unit(self.unit)), 3)


class TestStack(ModelSuite):
    model = "residual_stack"
    config = config("lstm", layers=2)


class TestFusedStack(ModelSuite):
    model = "residual_stack"
    config = config("gru", layers=2, prenorm=False)


del ModelSuite, UnitSuite  # pytest would collect the bare suites too


@pytest.mark.parametrize("unit", ["gru", "lstm", "slstm"])
@pytest.mark.parametrize(
    "check",
    [
        "test_every_weight_has_a_role_and_its_shape",
        "test_gradients_are_finite_and_reach_every_weight",
        "test_replicas_and_sequences_do_not_mix",
        "test_causality",
    ],
)
def test_a_unit_that_reads_inputs_keeps_the_contract(unit: str, check: str) -> None:
    suite = OfInputs()
    suite.unit = unit
    getattr(suite, check)()


# ---- refusals, trials, identity


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "but the unit lru reads as many numbers as it answers: .*gru, lstm, slstm.*or leave encoder out"),
        ({"unit": "rnn"}, "but the unit rnn reads as many"),
        ({"units": ["attention", "gru"], "layers": 2}, "but the unit attention reads as many"),
        ({"unit": {"factory": "torch.nn:GRU"}}, "but the unit module reads as many"),
        ({"unit": "lstm", "features": 4}, "width is 8 and features is 4: give both the same value"),
        ({"encoder": "one_hot"}, "encoder"),
    ],
    ids=str,
)
def test_what_cannot_read_inputs_is_refused(fields: dict[str, Any], said: str) -> None:
    given = {"task": "linear_functional", "model": {"name": "residual_stack", "encoder": "none"} | fields}
    with pytest.raises(ConfigError, match=said):
        config_from(TrialConfig, given, "a trial")


def test_a_linear_unit_needs_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.get(registry.UNIT, "gru"), "is_linear", classmethod(lambda cls, config: True))
    (problem,) = config("gru").problems()
    assert problem == "encoder is none, but the unit gru is linear, as it is set here: leave encoder out"


def test_only_the_first_of_several_units_reads_the_inputs() -> None:
    given = {"width": 4, "features": 4, "layers": 2, "encoder": "none", "units": ["lstm", "lru"], "mixing": "none"}
    chosen = config_from(ResidualStack.Config, given, "a test")
    model, weights = built(chosen)
    shapes = {name: tuple(value.shape[1:]) for name, value in weights.items()}
    assert shapes["encoder_input_l0"] == (4, 3)
    assert shapes["encoder_re_l1"] == (4, 4)
    assert not model.traits(chosen).linear
    assert torch.isfinite(model.outputs(weights, noise(2, 9, 3))).all()


def trial_of(**fields: Any) -> TrialConfig:
    unit = fields.pop("unit", "gru")
    return TrialConfig(
        task=task_config(horizon=5),
        model=config(unit, **{"width": 3, "features": 3} | fields),
        training=TrainingConfig(seeds=2, steps=4, batch_size=8, validation_size=8, validate_every=2),
        perturbation=PerturbationConfig(
            radii=RadiiConfig(from_=0.1, to=1.0, count=2), balls=("all",), starts=0, ascent_steps=2, test_size=4
        ),
    )


@pytest.mark.parametrize("rule", ["bptt", "online_full", "online_snap1"])
def test_a_trial_trains_and_measures_it_by_every_kind_of_rule(rule: str) -> None:
    trial = trial_of()
    training = dataclasses.replace(trial.training, rule=rule)
    tables = run_trial(dataclasses.replace(trial, training=training)).tables
    curves = tables["curves"]
    for _, curve in curves[curves["threshold"].isna()].groupby("seed"):
        errors = curve.sort_values("radius")["change"].to_numpy()
        assert np.isfinite(errors[0])
        assert errors[0] < errors[1] < errors[2]


@pytest.mark.parametrize("unit", ["gru", "lstm", "slstm"])
def test_a_seed_has_the_bits_beside_others_that_it_has_alone(unit: str) -> None:
    """In a training that is one compiled call (gru), with a compiled layer (lstm), and by torch's loop (slstm)."""
    trial = trial_of(unit=unit, width=4, features=4, layers=2)
    together = run_trial(dataclasses.replace(trial, training=dataclasses.replace(trial.training, seeds=3))).tables
    alone = dataclasses.replace(trial.training, seeds=1, first_seed=1)
    found = run_trial(dataclasses.replace(trial, training=alone)).tables
    for name in ("curves", "history", "replicas"):
        expected = together[name][together[name]["seed"] == 1].reset_index(drop=True)
        assert len(expected)
        assert_frame_equal(found[name].reset_index(drop=True), expected, check_exact=True)


def test_roles_say_what_the_first_unit_reads() -> None:
    roles = ResidualStack.roles(config("lstm", layers=2))
    assert roles["encoder_input_l0"].axes == ("width", "input")
    assert roles["encoder_input_l0"].part is Part.ENCODER
    assert roles["encoder_input_l1"].axes == ("width", "feature")
    assert roles["gate_weight_l0"].axes == ("feature", "feature")


def test_the_encoder_that_was_always_there_is_in_no_identity() -> None:
    linear, none = trial_of(encoder__="linear"), trial_of()
    assert "encoder" not in identifying(linear)["model"]
    assert identifying(none)["model"]["encoder"] == "none"
    assert to_dict(linear)["model"]["encoder"] == "linear"
    assert trial_from_dict(to_dict(none)) == none
    room = "memsweep.models.deep.no_encoder"
    for trial, holds in ((linear, False), (none, True)):
        closure = code_closure(trial)
        assert any(module.startswith(room) for module, _ in closure) == holds
        lines = GRAPH.lines(closure, _Cut.of(trial, "cpu", training=False))
        kernels = {line for line in lines if "stack_of" in line and ".cpp" in line}
        assert any("stack_of_inputs.cpp" in line for line in kernels) == holds
        assert any("stack_of_few_inputs.cpp" in line for line in kernels) == holds


STUDY = f"""
task: {{name: linear_functional, kernel: exponential, horizon: 8}}
model: {{name: residual_stack, unit: lstm, width: 3, features: 3, mixing: none}}
{FAST}
grid: {{model.encoder: [linear, none]}}
"""


def test_a_study_sweeps_over_stacks_with_and_without_an_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, results = tmp_path / "encoders.yaml", ready(tmp_path / "results")
    study.write_text(STUDY)
    assert sweep(study, results, "--inline") == 0
    out = capsys.readouterr().out
    assert all(f"exponential, encoder {name} (recurrent)" in out for name in ("linear", "none"))
    records = [json.loads(file.read_text()) for file in (results / "encoders" / "records").glob("*.json")]
    assert sorted(record["config"]["model"]["encoder"] for record in records) == ["linear", "none"]
    assert sweep(study, results, "--inline", "model.unit=lru", "grid.model.encoder=[none]") == 2
    assert "the unit lru reads as many numbers as it answers" in capsys.readouterr().err
