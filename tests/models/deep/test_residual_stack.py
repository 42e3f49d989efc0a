"""The deep residual stack: equal to torch's own modules, its dropout, its gradients, its measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from stack_reference import Reference
from torch import Tensor

from engine import noise, task_config, usual_unit
from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.errors import ConfigError
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.learning.loss.carried import task_loss_for
from memsweep.models.base import Part, Role, Signature, Traits
from memsweep.models.deep.around_unit import Dropout
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.spectrum import eigenvalues
from memsweep.rules.base import online_units
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.testing import ModelSuite
from memsweep.trial import program, run_trial

SIGNATURE = Signature(inputs=2, outputs=3, horizon=7)
MIXINGS = ("full_glu", "half_glu1", "half_glu2", "gelu", "none")


def config(unit: str = "lru", **fields: Any) -> ResidualStack.Config:
    sizes = {"width": 4, "features": 4 if unit == "gru" else 3, "layers": 2}
    return ResidualStack.Config(**sizes | fields, unit=registry.get(registry.UNIT, unit).Config())


def built(chosen: ResidualStack.Config, replicas: int = 2) -> tuple[ResidualStack, dict[str, Tensor]]:
    """A model and weights of some replicas none of which is special: no bias is zero, no norm is without effect."""
    rng = np.random.default_rng(5)
    model = ResidualStack(chosen, SIGNATURE, rng).eval()
    weights = {
        name: value.detach() + 0.2 * torch.from_numpy(rng.standard_normal((replicas, *value.shape)))
        for name, value in model.named_parameters()
    }
    return model, {name: value.abs() if "variance" in name else value for name, value in weights.items()}


def gradients(outputs: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    found = torch.autograd.grad(outputs.square().sum(), list(weights.values()), allow_unused=True)
    return {name: value for name, value in zip(weights, found, strict=True) if value is not None}


# ---- the same as torch's modules


SHAPES: list[dict[str, Any]] = [
    *({"mixing": mixing, "prenorm": prenorm} for mixing in MIXINGS for prenorm in (True, False)),
    {"norm": "none"},
    {"norm": "batch"},
    {"norm": "batch", "prenorm": False, "mixing": "half_glu2"},
    {"residual": False},
    {"readout_width": 5},
    {"pooling": "mean"},
    {"pooling": "running_mean", "readout_width": 5},
]
KNOWS_TRAINING = [fields for fields in SHAPES if "batch" in fields.values() or "running_mean" in fields.values()]
CASES = [(fields, False) for fields in SHAPES] + [(fields, True) for fields in KNOWS_TRAINING]


@pytest.mark.parametrize(("fields", "training"), CASES, ids=str)
def test_equals_torchs_modules(fields: dict[str, Any], training: bool) -> None:
    """Outputs and gradients of every replica."""
    model, weights = built(config(**fields))
    leaves, inputs = {name: value.clone().requires_grad_() for name, value in weights.items()}, noise(4, 7, 2)
    outputs = model.train(training).outputs(leaves, inputs)
    ours = gradients(outputs, leaves)
    for row, output in enumerate(outputs):
        reference = Reference(model.config, {name: value[row] for name, value in weights.items()}).train(training)
        expected = reference(inputs)
        torch.testing.assert_close(output, expected, rtol=1e-11, atol=1e-12)
        expected.square().sum().backward()
        theirs = {name: value.grad for name, value in reference.by_names().items() if value.grad is not None}
        assert theirs.keys() == ours.keys()
        for name, gradient in theirs.items():
            torch.testing.assert_close(ours[name][row], gradient, rtol=1e-9, atol=1e-10)


# ---- dropout


def in_training(seeds: list[int], step: int = 0, **fields: Any) -> tuple[ResidualStack, dict[str, Tensor]]:
    """A model in training, and one and the same weights for every seed."""
    model, weights = built(config(**{"dropout": 0.5} | fields), replicas=1)
    model.train().start_step(seeds, step)
    return model, {name: value.expand(len(seeds), *value.shape[1:]) for name, value in weights.items()}


def masks_of(seeds: list[int], step: int, rows: int, features: int = 3, layers: int = 2) -> list[Tensor]:
    """The masks of two layers with two places each: ``[R, B, 1, F]`` each."""
    dropout = Dropout(0.5, 2 * layers, features)
    dropout.start_step(seeds, step)
    ones = torch.ones(len(seeds), rows, 1, features).double()
    return [dropout.apply(ones, place, 0) for place in range(2 * layers)]


@pytest.mark.parametrize("mixing", MIXINGS[:4])
def test_dropout_acts_behind_the_gelu_and_behind_the_gate(mixing: str) -> None:
    model, weights = in_training([7, 8], mixing=mixing)
    outputs = model.outputs(weights, noise(6, 7, 2))
    masks = masks_of([7, 8], 0, 6)
    assert {0.0, 2.0} == set(torch.stack(masks).flatten().tolist())
    for row in range(2):
        reference = Reference(model.config, {name: value[row] for name, value in weights.items()})
        for layer, module in enumerate(reference.layers):
            module.masks = [masks[2 * layer + place][row] for place in (0, 1)]
        torch.testing.assert_close(outputs[row], reference(noise(6, 7, 2)), rtol=1e-11, atol=1e-12)
    assert not torch.allclose(outputs[0], outputs[1])


def test_dropout_keeps_the_mean_and_its_share() -> None:
    dropout = Dropout(0.25, 3, 50)
    dropout.start_step([3], 1)
    share = torch.stack([dropout.apply(torch.ones(1, 200, 2, 50), place, 0) for place in range(3)])
    assert set(share.flatten().mul(3.0).round(decimals=5).tolist()) == {0.0, 4.0}
    assert float(share.mean()) == pytest.approx(1.0, abs=0.02)
    assert torch.equal(share[..., 0, :], share[..., 1, :])  # all steps of a sequence alike
    for axis in (0, 2, 4):  # places, sequences and features each by themselves
        assert float((share.mean(axis) > 0).double().mean()) > 0.9


def test_masks_depend_neither_on_pieces_nor_on_length() -> None:
    """A batch in pieces in any order, step by step, and twice: the answers of the batch as a whole."""
    model, weights = in_training([1, 2], pooling="none")
    inputs = noise(6, 7, 2)
    whole = model.outputs(weights, inputs)
    assert torch.equal(model.outputs(weights, inputs), whole)
    short = model.outputs(weights, inputs[:, :3])
    torch.testing.assert_close(short, whole[:, :, :3], rtol=1e-12, atol=1e-13)
    model.start_step([1, 2], 0)
    for start in (4, 0, 2):
        model.first_row = start
        part = model.outputs(weights, inputs[start : start + 2])
        torch.testing.assert_close(part, whole[:, start : start + 2], rtol=1e-12, atol=1e-13)
    model.first_row = 0
    assert not torch.allclose(model.outputs(weights, inputs[2:4]), whole[:, 2:4])


# ---- what is measured on a stack


@pytest.mark.parametrize("unit", online_units())
def test_eigenvalues_are_those_of_all_layers(unit: str) -> None:
    model, weights = built(config(unit, mixing="none", norm="none"), replicas=2)
    found = model.eigenvalues(weights)
    assert found is not None
    copies = {name: torch.stack([value, 2.0 * value], 1) for name, value in weights.items()}
    together = model.eigenvalues(copies)
    assert together is not None
    assert together.shape == (2, 2, 8)
    assert torch.equal(together[:, 0], found)
    if unit == "lru":
        expected = torch.exp(torch.complex(-weights["nu_l1"].exp(), weights["theta_l1"].exp()))
        torch.testing.assert_close(found[:, 4:], expected, rtol=1e-13, atol=1e-14)
    if unit == "rnn":
        expected = eigenvalues(weights["matrix_l1"])
        torch.testing.assert_close(found[:, 4:], expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("chosen", "balls"),
    [
        pytest.param(config(), ("recurrent", "all"), marks=pytest.mark.more),
        (config("gru", norm="batch", mixing="gelu", layers=1, dropout=0.2), ("weights",)),
    ],
    ids=["lru", "gru"],
)
def test_a_trial_measures_a_stack(chosen: ResidualStack.Config, balls: tuple[str, ...]) -> None:
    radii = RadiiConfig(from_=0.1, to=1.0, count=2)
    trial = TrialConfig(
        task=task_config(horizon=5),
        model=chosen,
        training=TrainingConfig(seeds=2, steps=4, batch_size=8, validation_size=8, validate_every=2),
        perturbation=PerturbationConfig(radii=radii, balls=balls, starts=0, ascent_steps=2, test_size=4),
    )
    tables = run_trial(trial).tables
    curves = tables["curves"]
    for ball in balls:
        for _, curve in curves[curves["ball"] == ball].groupby("seed"):
            grid = curve[curve["threshold"].isna()].sort_values("radius")
            errors = grid["change"].to_numpy()
            assert np.isfinite(errors[0])
            assert errors[0] < errors[1] < errors[2]
    assert np.isfinite(tables["memory"]["learned"]).all()
    assert (tables["memory"]["learned"] > 0).any()
    assert np.isfinite(tables["replicas"]["margin"]).all()


# ---- what every model must do, of stacks that are not the default one


class TestBatchNorm(ModelSuite):
    model = "residual_stack"
    config = config(norm="batch")


class TestPostnorm(ModelSuite):
    model = "residual_stack"
    config = config(prenorm=False, mixing="half_glu1", layers=3)


class TestPooling(ModelSuite):
    model = "residual_stack"
    config = config(pooling="mean", readout_width=5, mixing="half_glu2")


class TestRunningMean(ModelSuite):
    model = "residual_stack"
    config = config("rnn", pooling="running_mean", mixing="gelu", norm="none")


class TestGRU(ModelSuite):
    model = "residual_stack"
    config = config("gru", residual=False)


LINEAR = config(mixing="none", norm="none")


class TestLinear(ModelSuite):
    model = "residual_stack"
    config = LINEAR


class TestLinearRNN(ModelSuite):
    model = "residual_stack"
    config = config("rnn", mixing="none", norm="none", layers=1, residual=False)
    forgets = False  # a few random numbers may make a matrix that grows


del ModelSuite  # pytest would collect the bare suite too


@pytest.mark.more
def test_errors_of_a_linear_stack_are_exact_whatever_trained_it() -> None:
    """A rule goes through the very sequences whose statistics are all that backpropagation needs."""
    begun = []
    for rule in ("bptt", "online_full"):
        training = TrainingConfig(seeds=2, steps=40, batch_size=256, validation_size=4096, rule=rule, dtype="float64")
        perturbation = PerturbationConfig(radii=RadiiConfig(from_=0.1, to=0.2, count=2), balls=("all",), starts=0)
        found = run_trial(TrialConfig(task=task_config(), model=LINEAR, training=training, perturbation=perturbation))
        curves, replicas, history = (found.tables[name] for name in ("curves", "replicas", "history"))
        assert curves["exact"].all()
        np.testing.assert_allclose(curves[curves["radius"] == 0.0]["error"], replicas["error"], rtol=1e-12)
        # the validation loss is a mean over sequences, near the expectation
        np.testing.assert_allclose(replicas["validation_loss"], replicas["error"], rtol=0.1)
        begun.append(history[history["step"] == 0]["validation_loss"])
    np.testing.assert_allclose(begun[0], begun[1], rtol=1e-10)


def test_trials_of_a_rule_that_goes_through_sequences_share_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the statistics of a batch serve two tasks at once; a deep model that packs must not learn another's task."""
    packing = Traits(linear=True, pack_fields=frozenset({"width"}))
    monkeypatch.setattr(ResidualStack, "traits", classmethod(lambda cls, config: packing))

    def programs(rule: str) -> set[str]:
        tasks = [task_config(rate=rate) for rate in (0.5, 1.0)]
        return {program(TrialConfig(task=task, model=LINEAR, training=TrainingConfig(rule=rule))) for task in tasks}

    assert len(programs("bptt")) == 1
    assert len(programs("online_full")) == 2


@pytest.mark.more
def test_the_default_search_finds_the_worst_push_through_layers() -> None:
    """A push of all rates is not the worst one; a search of many times the effort finds nothing worse."""
    task = registry.get(registry.TASK, "linear_functional")(task_config(horizon=16))
    replicas = [Replica(0, LINEAR, seed, 0.01) for seed in (0, 1)]
    (ensemble,) = build(ResidualStack, replicas, Signature(1, 1, 16), torch.float64, None)
    task_loss = task_loss_for([task], True, torch.float64)
    data, targets = task_loss.population(), torch.stack([task_loss.target(0)] * 2)

    def worst(starts: int, steps: int) -> Tensor:
        radii = RadiiConfig(from_=0.1, to=0.2, count=2)
        how = PerturbationConfig(radii=radii, starts=starts, ascent_steps=steps, reading="error")
        return perturbation_error(ensemble, task_loss, data, ensemble.initial, targets, "recurrent", how).errors[:, -1]

    usual = PerturbationConfig()
    found = worst(usual.starts, usual.ascent_steps)
    assert (found > 1.01 * worst(0, 0)).all()
    assert (found > 0.98 * worst(60, 60)).all()


# ---- a unit's own names


def test_no_unit_names_a_weight_as_a_layer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer's would take its place, silently where both have one shape."""
    around = {"norm_weight", "norm_bias", "mix_weight", "mix_bias", "gate_weight", "gate_bias"}
    for name in registry.names(registry.UNIT):
        model = ResidualStack.Config(width=4, features=4, unit=usual_unit(name))
        named = {weight.removesuffix("_l0") for weight in ResidualStack.roles(model) if weight.endswith("_l0")}
        unit = registry.get(registry.UNIT, name)(model.unit, 4, 4)
        assert len(named) == len(unit.roles()) + len(named & around), name

    lru = registry.get(registry.UNIT, "lru")
    roles, named = lru.roles, {"norm_bias": Role(Part.BIAS, ("width",))}
    monkeypatch.setattr(lru, "roles", lambda self: roles(self) | named)
    with pytest.raises(ConfigError, match="the unit lru has a weight norm_bias, and so has the norm or the mixing"):
        config_from(TrialConfig, {"task": "linear_functional", "model": "residual_stack"}, "a trial")
