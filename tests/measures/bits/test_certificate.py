"""Certificates: no rounding, and nothing in the box, has a larger error; exact for one mode; refused where unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import model_config, stacked, task_config
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import TaskLoss
from memsweep.measures.bits.kinds import ROUNDINGS
from memsweep.measures.bits.rounded import rounded_weights_error
from memsweep.models.modal.diagonal_rnn import TURNING_AT_ZERO
from memsweep.models.parameterizations.base import DISCRETIZATIONS
from memsweep.stability.verdict.radius import crossing

BITS = [2, 4, 6, 8, 10]
LIMIT = 0.01


def errors_of(ensemble: Ensemble, task_loss: TaskLoss[Any], weights: Tensor, rounding: str, bits: list[int]) -> Tensor:
    targets = ensemble.spread([task_loss.target(each.trial) for each in ensemble.replicas])
    data = task_loss.population()
    return rounded_weights_error(ensemble, task_loss, data, weights, targets, ROUNDINGS[rounding], bits, 0)


def random_models(
    parameterization: str, discretization: str, count: int = 12
) -> tuple[Ensemble, TaskLoss[Any], Tensor]:
    """Models with random weights, some of them near their target: targets are what one of them answers."""
    models = [
        model_config(parameterization, width=1 + number % 5, discretization=discretization) for number in range(count)
    ]
    (ensemble,), task_loss = stacked(models, task=task_config(horizon=25, kernel="polynomial"))
    rng = np.random.default_rng(5)
    noise = torch.from_numpy(rng.standard_normal(ensemble.initial.shape)) * 0.3
    return ensemble, task_loss, torch.where(ensemble.exists, ensemble.initial + noise, ensemble.initial)


@pytest.mark.parametrize("discretization", DISCRETIZATIONS)
@pytest.mark.parametrize("parameterization", sorted(TURNING_AT_ZERO))
def test_no_rounding_has_a_larger_error_than_the_certificate(parameterization: str, discretization: str) -> None:
    ensemble, task_loss, weights = random_models(parameterization, discretization)
    count = len(ensemble.replicas)
    for part in ("recurrent", "weights"):
        bound = errors_of(ensemble, task_loss, weights, f"certified_{part}", BITS)[:count]
        nearest = errors_of(ensemble, task_loss, weights, f"fixed_{part}", BITS)[:count]
        assert torch.equal(bound[:, 0], nearest[:, 0])
        assert (bound >= nearest * (1 - 1e-9)).all()
        # so many bits need no more than the certificate says
        radii = np.array(ROUNDINGS[f"certified_{part}"].radii_of(BITS))
        for own, worst in zip(nearest.numpy(), bound.numpy(), strict=True):
            limit = own[0] * 1.2 + LIMIT
            assert crossing(radii, worst, limit).low <= crossing(radii, own, limit).low * (1 + 1e-9)


@pytest.mark.parametrize("parameterization", ["direct", "exp", "best"])
def test_nothing_in_the_box_has_a_larger_error_than_the_certificate(parameterization: str) -> None:
    """Corners and points inside, and the worst that an ascent by corners finds: the bound holds, and is no wild one."""
    ensemble, task_loss, weights = random_models(parameterization, "exact")
    targets = ensemble.spread([task_loss.target(each.trial) for each in ensemble.replicas])
    chosen = ensemble.exists & ensemble.select(*ROUNDINGS["fixed_weights"].parts)
    largest = torch.zeros_like(weights)
    for segment in ensemble.layout.segments:
        columns = slice(segment.start, segment.stop)
        sizes = torch.where(chosen, weights.abs(), 0.0)[:, columns]
        largest[:, columns] = sizes.amax(1, keepdim=True)
    rng, count = np.random.default_rng(1), len(ensemble.replicas)
    for bits in (4, 8):
        bound = errors_of(ensemble, task_loss, weights, "certified_weights", [bits])[:count, 1]
        worst = torch.zeros(count, dtype=torch.float64)
        for number in range(200):
            share = torch.from_numpy(rng.uniform(-1, 1, weights.shape))
            share = share.sign() if number % 2 else share
            moved = weights + torch.where(chosen, share * largest / (2**bits - 2), 0.0)
            loss = task_loss.loss(ensemble.model, ensemble.layout.named(moved), task_loss.population(), targets)[:count]
            worst = torch.maximum(worst, loss.nan_to_num(torch.inf))
        assert (bound >= worst * (1 - 1e-9)).all()
        if bits == 8:
            assert (bound <= 4 * worst).float().mean() > 0.7


def test_the_certificate_of_one_mode_is_its_worst_rounding() -> None:
    """The target is the mode's own kernel: all lags are worst at the slow end together."""
    (ensemble,), task_loss = stacked([model_config("direct", width=1)], task=task_config(horizon=30))
    named = {name: torch.zeros_like(value) for name, value in ensemble.layout.named(ensemble.initial).items()}
    named["recurrent_weight"][:] = 0.1
    named["encoder_weight"][:, :1] = 1.0
    named["readout_weight"][..., :1] = 2.0
    weights = ensemble.layout.flat(named)
    steps = len(task_loss.target(0))
    targets = (2.0 * 0.9 ** torch.arange(steps, dtype=torch.float64)).expand(ensemble.rows, -1)
    data, rounding = task_loss.population(), ROUNDINGS["certified_recurrent"]
    errors = rounded_weights_error(ensemble, task_loss, data, weights, targets, rounding, [3], 0)
    slow = dict(named, recurrent_weight=named["recurrent_weight"] * (1 - 1 / 6))
    expected = task_loss.loss(ensemble.model, slow, data, targets)[0]
    assert float(errors[0, 1]) == pytest.approx(float(expected), rel=1e-9)


def test_every_parameterization_with_a_certificate_turns_at_zero_alone() -> None:
    """Dense samples on each side of 0: eigenvalues only rise, or only fall."""
    raw = torch.linspace(0, 12, 20_001, dtype=torch.float64)
    for name in TURNING_AT_ZERO:
        part = registry.get(registry.PARAMETERIZATION, name)()
        for discretization in DISCRETIZATIONS:
            for side in (raw, -raw):
                steps = part.eigenvalue(side, 1.0, discretization).diff()
                assert (steps <= 1e-15).all() or (steps >= -1e-15).all(), (name, discretization)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("model: {name: vanilla_rnn}", "no upper bound of the error of the model vanilla_rnn is known"),
        ("model: {name: diagonal_rnn, activation: tanh}", "a mean over test sequences"),
        ("model: {name: diagonal_rnn, normalize: true}", "model.normalize is true"),
        ("model: {name: diagonal_rnn, parameterization: inverse}", "the parameterization inverse"),
    ],
)
def test_a_certificate_is_not_claimed_where_no_bound_is_known(changes: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "task: {name: linear_functional, kernel: exponential}\n"
        f"{changes}\nperturbation: {{balls: [], roundings: [certified_recurrent]}}\n"
    )
    with pytest.raises(ConfigError, match=why):
        load_study(str(file))
