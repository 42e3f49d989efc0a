"""The capacity of states against closed forms: delay lines, linear layers under white noise, and pure chance."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from engine import trial, usual_model
from memsweep import registry
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.task import Task
from memsweep.measures.linear_readout import LinearReadout
from memsweep.measures.linear_readout.fit import Capacity, capacity, explained
from memsweep.models.base import Model, Signature, as_layer
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.streams import TEST, Stream
from memsweep.trial import run_pack
from paths import ROOT

HORIZON, DELAYS = 40, 12


def memory(horizon: int = HORIZON, delays: int = DELAYS) -> Task:
    part: Any = registry.get(registry.TASK, "memory_capacity")
    task: Task = part(part.Config(horizon=horizon, delays=delays))
    return task


def model_of(name: str, width: int, **fields: Any) -> Model:
    config = usual_model(name, width=width, **fields)
    model: Model = registry.get(registry.MODEL, name)(config, Signature(1, DELAYS, HORIZON), np.random.default_rng(7))
    return model.double()


def stacked(model: Model) -> dict[str, Tensor]:
    return {name: value.detach().unsqueeze(0) for name, value in model.named_parameters()}


def found(model: Model, weights: dict[str, Tensor], sequences: int = 512) -> Capacity:
    return capacity(model, weights, memory(), memory().draw(Stream(0, TEST), 3, sequences))


def test_a_delay_line_recalls_as_many_inputs_as_it_has_states() -> None:
    """The present one, which no delay asks for, and all others without a fault; and noise none of the rest."""
    for width in (1, 5, 9):
        model = model_of("vanilla_rnn", width, activation="linear")
        weights = {name: torch.zeros_like(value) for name, value in stacked(model).items()}
        weights["weight_ih_l0"][0, 0] = 1.0
        weights["weight_hh_l0"][0] = torch.diag(torch.ones(width - 1, dtype=torch.float64), -1)
        recalled = found(model, weights)
        assert recalled.states == width
        assert recalled.best == pytest.approx(width - 1, abs=0.05)
        assert recalled.trained == pytest.approx(0.0, abs=1e-3)  # its readout is zero


def leverages(responses_TM: np.ndarray, delays: int) -> tuple[np.ndarray, int]:
    """The shares by delay, and the rank, of states h_t = sum_j A^j b x_{t-j} with these impulse responses A^j b.

    The covariance of states is R W R', of the responses R and the share W of the counting steps that each lag reaches;
    that with the input of k steps ago is column k of R. So the share is the k-th diagonal entry of the projection on
    the rows of R W^(1/2), which adds up to the rank over all lags.
    """
    horizon = len(responses_TM)
    reached = np.array([(horizon - max(delays, lag)) / (horizon - delays) for lag in range(horizon)])
    rows = responses_TM * np.sqrt(reached)[:, None]
    left, values, _ = np.linalg.svd(rows / np.linalg.norm(rows, axis=0), full_matrices=False)
    kept = left[:, values > 1e-14 * values[0]]
    return np.square(kept).sum(1)[1 : delays + 1], kept.shape[1]


def in_closed_form(model: Model, weights: dict[str, Tensor]) -> tuple[np.ndarray, int]:
    """The shares by delay, and the rank, of a linear layer."""
    if (single := as_layer(model)) is None:
        powers = model.eigenvalues(weights)[0].detach().numpy() ** np.arange(HORIZON)[:, None]
        answers = [np.concatenate([each.real, each.imag]) for each in powers]
    else:
        layer = single.layer(weights).folded()
        matrix = layer.matrix[0].detach().numpy()
        matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
        answers = [layer.encoder[0, :, 0].detach().numpy()]
        for _ in range(HORIZON - 1):
            answers.append(matrix @ answers[-1])
    return leverages(np.array(answers), DELAYS)


@pytest.mark.parametrize(("name", "width"), [("diagonal_rnn", 4), ("diagonal_rnn", 10), ("lru", 3), ("vanilla_rnn", 6)])
def test_the_capacity_of_a_linear_layer_is_that_in_closed_form(name: str, width: int) -> None:
    fields = {"activation": "linear"} if name == "vanilla_rnn" else {}
    model = model_of(name, width, **fields)
    shares, rank = in_closed_form(model, weights := stacked(model))
    recalled = found(model, weights, 1500)
    assert recalled.best == pytest.approx(shares.sum(), abs=0.02 * max(1.0, shares.sum()))
    assert abs(recalled.states - rank) <= 1  # the last of many modes is at the edge of float64
    assert recalled.best <= recalled.states
    assert shares.sum() > 0.5


def test_real_modes_of_evenly_spaced_rates_keep_what_the_docs_say() -> None:
    kept = []
    for width in (4, 8, 16):
        modes = np.exp(-np.linspace(0.02, 2.0, width))
        kept.append(leverages(modes[None, :] ** np.arange(64)[:, None], 24)[0].sum())
    said = ", ".join(f"{each:.1f}" for each in kept[:2]) + f" and {kept[2]:.1f} in closed form"
    assert said in (ROOT / "docs" / "capacity.md").read_text("utf-8")


def test_chance_explains_nothing_in_the_mean() -> None:
    """Twenty states that know nothing, and 60 samples, would explain a third uncorrected."""
    rng, root = np.random.default_rng(0), torch.ones(60, dtype=torch.float64)
    states, targets = (torch.from_numpy(rng.standard_normal((60, count))) for count in (20, 4000))
    shares, rank = explained(states, targets, root)
    assert rank == 20
    assert float(shares.mean()) == pytest.approx(0.0, abs=5 * float(shares.std()) / np.sqrt(4000))
    mixed = 0.6 * states[:, :1] + 0.8 * targets  # a share of 0.36
    shares, _ = explained(states, mixed, root)
    assert float(shares.mean()) == pytest.approx(0.36, abs=0.04)
    none, _ = explained(states[:21], targets[:21], root[:21])
    assert none.isnan().all()


def test_shares_are_those_of_numpys_least_squares() -> None:
    """Of weighted samples; what does not move, or is the same twice, adds no state."""
    rng = np.random.default_rng(1)
    states, weights = rng.standard_normal((300, 5)), rng.uniform(0.5, 1.0, 300)
    weights[:50] = 0.0
    targets = np.tanh(states @ rng.standard_normal((5, 3))) + rng.standard_normal((300, 3))
    root = np.sqrt(weights)[:, None]
    read = np.hstack([states, np.ones((300, 1))])
    fitted = read @ np.linalg.lstsq(read * root, targets * root, rcond=None)[0]
    mean = (weights @ targets) / weights.sum()
    share = 1 - (weights @ (targets - fitted) ** 2) / (weights @ (targets - mean) ** 2)
    samples = weights.sum() ** 2 / (weights**2).sum()
    expected = 1 - (1 - share) * (samples - 1) / (samples - 5 - 1)
    given = np.hstack([1e-9 * states, np.full((300, 1), 3.0), states[:, :1]])
    own, rank = explained(*(torch.from_numpy(each) for each in (given, targets, np.sqrt(weights))))
    assert rank == 5
    np.testing.assert_allclose(own.numpy(), expected, rtol=1e-9)


def asking(width: int, **model: Any) -> TrialConfig:
    config = trial(model={"width": width, **model}, training={"steps": 10, "merge_redundant": False})
    task = registry.get(registry.TASK, "memory_capacity").Config(horizon=20, delays=4)
    asked = LinearReadout.Config(sequences=64)
    perturbation = dataclasses.replace(config.perturbation, balls=(), asked_measures=(asked,))
    return dataclasses.replace(config, task=task, perturbation=perturbation)


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_the_trained_readout_of_a_trial_explains_less_than_the_best_one(activation: str) -> None:
    configs = [asking(width, activation=activation) for width in (3, 2)]
    together, alone = run_pack(configs), run_pack(configs[1:])[0]
    for config, result in zip(configs, together, strict=True):
        table = result.tables["linear_readout"]
        assert (table["best"] > table["trained"]).all()
        assert (table["best"] <= table["states"]).all()
        assert (table["states"] == config.model.width).all()
        metric = result.tables["replicas"].set_index("seed")["test_metric"]
        assert table.set_index("seed")["trained"].to_numpy() == pytest.approx(metric.to_numpy(), abs=0.15)
    pd.testing.assert_frame_equal(together[1].tables["linear_readout"], alone.tables["linear_readout"])


def test_what_has_no_states_or_no_targets_of_numbers_is_refused() -> None:
    plain = asking(3)
    assert not [*plain.problems()]
    symbols = dataclasses.replace(plain, task=registry.get(registry.TASK, "copying_memory").Config(delay=3))
    assert any("the task copying_memory is no squared error of numbers" in each for each in symbols.problems())
    growing = ResidualStack.Config(width=4, unit=registry.get(registry.UNIT, "attention").Config())
    refused = [*dataclasses.replace(plain, model=growing).problems()]
    assert any("linear_readout reads states, but" in each and "grow" in each for each in refused)
