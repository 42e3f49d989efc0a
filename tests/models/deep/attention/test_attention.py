"""Units of queries, keys and values beside loops over time that are written from the papers' equations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from engine import task_config
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.models.deep.attention.heads import rotated
from memsweep.models.deep.attention.matrix import DeltaNetUnit, GatedDeltaNetUnit, GLAUnit, KDAUnit
from memsweep.models.deep.attention.softmax import AttentionUnit
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.testing import ModelSuite, UnitSuite
from memsweep.trial import run_trial
from unit_loops import against

registry.discover()

CHOICES: dict[str, Any] = {
    "Nope": AttentionUnit.Config(positions="nope"),
    "Forgetting": AttentionUnit.Config(forgetting=True, convolution=3),
    "Convolved": GLAUnit.Config(convolution=3),
    "Reflecting": DeltaNetUnit.Config(largest_beta=2.0, convolution=0),
    "OneHead": GatedDeltaNetUnit.Config(heads=1),
}
for _name, _config in CHOICES.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (UnitSuite,), {"unit": _config.name, "config": _config})


class TestDeltaStack(ModelSuite):
    model = "residual_stack"
    config = ResidualStack.Config(width=4, features=3, layers=2, unit=GatedDeltaNetUnit.Config())


class TestAttentionStack(ModelSuite):
    model = "residual_stack"
    config = ResidualStack.Config(width=4, features=3, layers=2, unit=AttentionUnit.Config(), norm="batch")


del ModelSuite, UnitSuite  # pytest would collect the bare suites too

W = dict[str, Tensor]
HEADS, EACH, FEATURES, STEPS = 2, 4, 3, 40
MATRICES = ("linear_attention", "retnet", "gla", "delta_net", "gated_delta_net", "kda")


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def convolved(series: Tensor, kernel: Tensor) -> Tensor:
    """sum_j w_j x_{t - (L - 1) + j}, channel by channel."""
    lags = kernel.shape[1]
    return torch.stack(
        [
            sum((kernel[:, j] * series[t - lags + 1 + j] for j in range(lags) if t - lags + 1 + j >= 0), series[0] * 0)
            for t in range(len(series))
        ]
    )


def turned(vector: Tensor, time: int) -> Tensor:
    """Pairs (i, i + D/2) as complex numbers, times exp(i t / 10000^(2 i / D))."""
    half = len(vector) // 2
    rates = torch.tensor([10000.0 ** (-2 * i / len(vector)) for i in range(half)], dtype=torch.float64)
    found = torch.complex(vector[:half], vector[half:]) * torch.exp(1j * time * rates)
    return torch.cat([found.real, found.imag])


def length_one(vector: Tensor) -> Tensor:
    return vector / vector.norm()


def qkv(w: W, x: Tensor, kernel: bool, activation: Any) -> tuple[Tensor, ...]:
    found = []
    for name in ("query", "key", "value"):
        series = x @ w[f"encoder_{name}"].T
        found.append(activation(convolved(series, w[f"convolution_{name}"]) if kernel else series))
    return tuple(found)


def normed(answer: Tensor) -> Tensor:
    return answer / torch.sqrt(answer.square().mean() + 1e-5)


def matrix_loop(name: str, w: W, x: Tensor) -> Tensor:
    """One sequence ``[T, F]``, head by head, from the equations of each paper."""
    delta = name in ("delta_net", "gated_delta_net", "kda")
    query, key, value = qkv(w, x, delta, silu if delta else (lambda given: given))
    heads = []
    for head in range(HEADS):
        own = slice(head * EACH, (head + 1) * EACH)
        state, normalizer = torch.zeros(EACH, EACH, dtype=x.dtype), torch.zeros(EACH, dtype=x.dtype)
        answers = []
        for t in range(len(x)):
            q, k, v = query[t, own], key[t, own], value[t, own]
            if name == "linear_attention":
                phi = [torch.where(part > 0, part + 1, torch.exp(part)) for part in (q, k)]
                state, normalizer = state + torch.outer(v, phi[1]), normalizer + phi[1]
                answers.append(state @ phi[0] / (normalizer @ phi[0]))
                continue
            q = q if delta else q / math.sqrt(EACH)
            if name == "retnet":
                gamma = 1 - 2.0 ** (-5 - head)
                state = gamma * state + torch.outer(v, turned(k, t))
                answers.append(normed(state @ turned(q, t)))
                continue
            if name == "gla":
                alpha = torch.exp(logsigmoid(w["encoder_decay"] @ x[t] + w["bias_decay"]))[own] ** (1 / 16)
                state = state * alpha + torch.outer(v, k)
                answers.append(normed(state @ q))
                continue
            q, k = length_one(q) / math.sqrt(EACH), length_one(k)
            beta = torch.sigmoid(w["encoder_beta"][head] @ x[t])
            if name != "delta_net":
                drive = w["encoder_decay"] @ x[t] + w["bias_decay"]
                drive = drive[head] if name == "gated_delta_net" else drive[own]
                state = state * torch.exp(-torch.exp(w["rate"][head]) * softplus(drive))
            state = state @ (torch.eye(EACH, dtype=x.dtype) - beta * torch.outer(k, k)) + beta * torch.outer(v, k)
            answers.append(normed(state @ q))
        heads.append(torch.stack(answers))
    found = torch.cat(heads, 1)
    if name != "linear_attention":
        found = found * w["norm_gain"]
    if "encoder_gate" in w:
        gate = x @ w["encoder_gate"].T
        found = found * (torch.sigmoid(gate) if name == "kda" else silu(gate))
    return found @ w["readout"].T


def softmax_loop(config: AttentionUnit.Config, w: W, x: Tensor) -> Tensor:
    query, key, value = qkv(w, x, bool(config.convolution), lambda given: given)
    heads = []
    for head in range(HEADS):
        own, answers = slice(head * EACH, (head + 1) * EACH), []
        for t in range(len(x)):
            exponents = []
            for s in range(t + 1):
                q, k = query[t, own], key[s, own]
                exponent = (turned(q, t) @ turned(k, s) if config.positions == "rope" else q @ k) / math.sqrt(EACH)
                if config.forgetting:
                    for between in range(s + 1, t + 1):
                        exponent = exponent + logsigmoid(w["encoder_decay"][head] @ x[between] + w["bias_decay"][head])
                exponents.append(exponent)
            answers.append(torch.softmax(torch.stack(exponents), 0) @ value[: t + 1, own])
        heads.append(torch.stack(answers))
    return torch.cat(heads, 1) @ w["readout"].T


@pytest.mark.parametrize("name", MATRICES)
def test_matrix_states_are_their_papers_loop_with_all_gradients(name: str) -> None:
    kind = registry.get(registry.UNIT, name)
    against(kind(kind.Config(), HEADS * EACH, FEATURES), lambda w, x: matrix_loop(name, w, x), STEPS)


@pytest.mark.parametrize(
    "fields",
    [{}, {"positions": "nope"}, {"forgetting": True, "positions": "nope"}, {"convolution": 3, "forgetting": True}],
    ids=str,
)
def test_attention_is_its_loop_with_all_gradients(fields: dict[str, Any]) -> None:
    config = AttentionUnit.Config(**fields)
    against(AttentionUnit(config, HEADS * EACH, FEATURES), lambda w, x: softmax_loop(config, w, x), steps=9)


def test_rope_knows_distances_alone() -> None:
    rng = np.random.default_rng(0)
    query, key = (torch.from_numpy(rng.standard_normal((1, 1, 1, 6, 4))) for _ in range(2))
    now, later = (rotated(query, first) @ rotated(key, first).mT for first in (0, 1000))
    torch.testing.assert_close(now, later, rtol=1e-9, atol=1e-9)
    assert (now - query @ key.mT).abs().max() > 0.1


def test_eigenvalues_are_the_decays_at_input_zero() -> None:
    for kind, expected in ((DeltaNetUnit, 1.0), (GLAUnit, 0.5 ** (1 / 16))):
        unit = kind(kind.Config(), 4, 3)  # type: ignore[abstract]
        weights = {n: torch.from_numpy(v).unsqueeze(0) for n, v in unit.initial(9, np.random.default_rng(0)).items()}
        found = unit.eigenvalues(weights)
        assert found.shape == (1, 4)
        torch.testing.assert_close(found, torch.full_like(found, expected))
    unit = KDAUnit(KDAUnit.Config(), 200, 3)  # type: ignore[assignment]
    weights = {n: torch.from_numpy(v).unsqueeze(0) for n, v in unit.initial(9, np.random.default_rng(0)).items()}
    decays = unit.eigenvalues(weights)
    assert 0.1 < float(decays.min()) < 0.6
    assert 0.99 < float(decays.max()) < 1.0


@pytest.mark.parametrize("name", [*MATRICES, "attention"])
def test_widths_that_do_not_fit_the_heads_are_refused_with_those_that_do(name: str) -> None:
    unit = registry.get(registry.UNIT, name).Config(heads=3)
    (found,) = ResidualStack.Config(unit=unit, width=8).problems()
    assert f"the unit {name} needs" in found
    assert found.endswith(f"let width be a multiple of {6 if name in ('retnet', 'attention') else 3}")
    assert not list(ResidualStack.Config(unit=unit, width=12).problems())


def test_rules_that_go_forward_in_time_refuse_them() -> None:
    model = ResidualStack.Config(unit=DeltaNetUnit.Config())
    task = registry.get(registry.TASK, "copying_memory").Config()
    (problem,) = TrialConfig(task=task, model=model, training=TrainingConfig(rule="online_full")).problems()
    assert "the unit delta_net does not give the derivatives of its steps" in problem
    assert problem.endswith("Rules for this model: bptt")


@pytest.mark.parametrize("name", ["attention", "linear_attention", "retnet"])
def test_a_ball_without_weights_is_refused(name: str) -> None:
    model = ResidualStack.Config(unit=registry.get(registry.UNIT, name).Config())
    trial = TrialConfig(task=task_config(), model=model)
    (problem,) = trial.problems()
    assert f"the unit {name}, as it is set here, has no recurrent weights" in problem
    assert not list(replace(trial, perturbation=replace(trial.perturbation, balls=("all",))).problems())


@pytest.mark.more
@pytest.mark.parametrize("unit", [KDAUnit.Config(), AttentionUnit.Config(forgetting=True)], ids=lambda unit: unit.name)
def test_a_trial_measures_them(unit: Any) -> None:
    trial = TrialConfig(
        task=task_config(horizon=5),
        model=ResidualStack.Config(width=4, features=4, layers=1, unit=unit, dropout=0.2),
        training=TrainingConfig(seeds=2, steps=4, batch_size=8, validation_size=8, validate_every=2),
        perturbation=PerturbationConfig(
            radii=RadiiConfig(from_=0.1, to=1.0, count=2),
            balls=("recurrent", "all"),
            starts=0,
            ascent_steps=2,
            test_size=4,
        ),
    )
    tables = run_trial(trial).tables
    assert np.isfinite(tables["curves"]["error"]).all()
    assert np.isfinite(tables["memory"]["learned"]).all()
    assert (tables["memory"]["learned"] > 0).any()
