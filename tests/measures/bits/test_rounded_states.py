"""Rounded states of deep models and of plain modules: against loops of one's own, and for every unit."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import NETS, usual_unit
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.config.schema.trial import PerturbationConfig, TrainingConfig, TrialConfig
from memsweep.errors import ConfigError
from memsweep.measures.bits import Bits
from memsweep.measures.bits.kinds import ROUNDINGS
from memsweep.measures.bits.states import Largest, Rounded
from memsweep.models.base import Model, Signature, Weights
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.model import Module
from memsweep.stability.fixed_point import fixed
from memsweep.stability.states import run_of
from memsweep.trial import run_pack
from memsweep.trust.gate import Trust

SIZES = Signature(inputs=2, outputs=2, horizon=9)
GROWING = {"attention"}
BITS = torch.tensor([math.inf, 20.0, 5.0], dtype=torch.float64)


def stacked(model: Model, count: int) -> Weights:
    """``count`` models that differ; a weight that begins as zero would silence what it multiplies."""
    rng, found = np.random.default_rng(4), {}
    for name, weight in model.named_parameters():
        drawn = weight.detach().double() if weight.any() else torch.from_numpy(0.3 * rng.standard_normal(weight.shape))
        found[name] = torch.stack([drawn * (1 + 0.1 * number) for number in range(count)])
    return found


def rounded(model: Model, weights: Weights, inputs: Tensor, rounding: str) -> Tensor:
    run, seen = run_of(model, weights, inputs), Largest()
    with torch.no_grad():
        run(seen, 1)
        return run(Rounded(ROUNDINGS[rounding], BITS, seen.sizes, np.random.default_rng(0)), len(BITS))


@pytest.mark.parametrize("unit", sorted({*registry.names(registry.UNIT)} - GROWING))
def test_states_of_every_unit_can_be_rounded(unit: str) -> None:
    config = ResidualStack.Config(width=8, features=8, layers=2, unit=usual_unit(unit))
    model = ResidualStack(config, SIZES, np.random.default_rng(1)).double().eval()
    weights, inputs = stacked(model, 2), torch.from_numpy(np.random.default_rng(2).standard_normal((3, 9, 2)))
    plain = model.outputs(weights, inputs)
    for rounding in ("fixed_states", "channel_states", "stochastic_states", "feedback_states", "float_states"):
        exact, fine, coarse = rounded(model, weights, inputs, rounding).unbind(1)
        assert torch.allclose(exact, plain, rtol=1e-8, atol=1e-10), rounding
        near, far = ((each - plain).abs().amax((1, 2, 3)) for each in (fine, coarse))
        assert (near < 1e-3 * plain.abs().max()).all(), rounding
        assert (far > near).all(), rounding
    assert torch.equal(model.outputs(weights, inputs), plain)  # nothing stays behind


def test_states_of_a_stack_are_those_of_a_loop() -> None:
    """A GRU with nothing around it: every state is stored with 5 bits before the next step reads it."""
    config = ResidualStack.Config(
        **{"width": 6, "features": 6, "mixing": "none", "norm": "none", "residual": False},
        unit=registry.get(registry.UNIT, "gru").Config(),
    )
    model = ResidualStack(config, SIZES, np.random.default_rng(1)).double().eval()
    weights, inputs = stacked(model, 1), torch.from_numpy(np.random.default_rng(2).standard_normal((3, 9, 2)))
    unit = model.layer_unit
    own = {name.removesuffix("_l0"): value for name, value in weights.items() if name.endswith("_l0")}
    read = inputs @ weights["encoder_weight"][0].mT + weights["encoder_bias"][0]

    def answers(largest: Tensor | None) -> tuple[Tensor, Tensor]:
        state, outputs, sizes = None, [], []
        for x in read.unbind(1):
            answer, state = unit.step(own, x.unsqueeze(0), state)
            ((name, value),) = state.items()
            sizes.append(value.abs().max())
            state = {name: value if largest is None else fixed(value, 5, largest)}
            outputs.append(answer[0] @ weights["readout_weight"][0].mT + weights["readout_bias"][0])
        return torch.stack(outputs, 1), torch.stack(sizes).max()

    with torch.no_grad():
        expected, _ = answers(answers(None)[1])
    assert torch.allclose(rounded(model, weights, inputs, "fixed_states")[0, 2], expected, atol=1e-12)


def test_states_of_a_module_are_those_of_its_step_form() -> None:
    model = Module(ModuleConfig(factory=f"{NETS}/audit_selective.py:Selective", width=4), SIZES).eval()
    weights, inputs = stacked(model, 1), torch.from_numpy(np.random.default_rng(2).standard_normal((3, 9, 2)))
    exact, _, coarse = rounded(model, weights, inputs, "channel_states")[0]
    with torch.no_grad():
        assert torch.allclose(exact, model.outputs(weights, inputs)[0], atol=1e-9)
        states, state = [], None
        for x in inputs.unbind(1):
            state = model.module.step(x, state)[1]
            states.append(state)
        largest, state, expected = torch.stack(states).abs().amax((0, 1)), None, []
        for x in inputs.unbind(1):
            answer, state = model.module.step(x, state)
            state = fixed(state, 5, largest)
            expected.append(answer)
    assert torch.allclose(coarse, torch.stack(expected, 1), atol=1e-12)


@pytest.mark.more
@pytest.mark.parametrize("unit", ["ssd", "delta_net"])
def test_a_trial_measures_the_bits_of_a_deep_model(unit: str) -> None:
    """Trained for a moment on recall: cross entropy, symbols, two layers."""
    asked = Bits.Config(roundings=("fixed_states", "feedback_states", "channel_weights"), bits=(2, 12))
    config = TrialConfig(
        task=registry.get(registry.TASK, "copying_memory").Config(delay=3),
        model=ResidualStack.Config(width=4, features=4, layers=2, unit=registry.get(registry.UNIT, unit).Config()),
        training=TrainingConfig(seeds=2, steps=4, batch_size=4, validation_size=4, validate_every=2),
        perturbation=PerturbationConfig(balls=(), test_size=8, asked_measures=(asked,)),
    )
    (result,) = run_pack([config])
    curves = result.tables["curves"]
    assert curves.groupby(["ball", "seed"])["error"].agg(lambda errors: errors.max() > errors.min()).any()
    for _, curve in curves.groupby(["ball", "seed"]):
        errors = curve.sort_values("radius")["error"].to_numpy()
        assert np.isfinite(errors).all()
        assert errors[1] == pytest.approx(errors[0], rel=1e-2)
        assert errors[2] >= errors[1]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("{name: residual_stack, unit: {name: attention}}", "states of the unit attention grow"),
        ("{name: stable_ssm}", "stable_ssm, as it is set here, is not computed step by step"),
        pytest.param(
            f"{{name: module, factory: '{NETS}/min_gru.py:MinGRU'}}", "has no method step", marks=pytest.mark.more
        ),
    ],
)
def test_states_that_cannot_be_rounded_are_refused(model: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        f"task: {{name: linear_functional, kernel: exponential}}\nmodel: {model}\n"
        "perturbation: {balls: [], roundings: [fixed_states]}\n"
    )
    with pytest.raises(ConfigError, match=why):
        load_study(str(file), trust=Trust(given=True))
