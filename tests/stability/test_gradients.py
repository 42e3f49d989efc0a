"""Measured gradients against matrices whose products are known, and against what autograd says."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import trial
from memsweep import registry
from memsweep.models.base import Model, Part, Role, Signature, Weights
from memsweep.stability.gradients import gradient_bounds, gradient_norms, measured_lags
from memsweep.trial import run_trial

WIDTH, STEPS = 6, 40


class Gained(Model):
    """h_t = rho_t tanh(U x_t + V h_{t-1}) or without the tanh: matrices by hand, a bound by norms."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        width: int = WIDTH
        linear: bool = False
        gains: tuple[float, ...] = ()

    @classmethod
    def roles(cls, config: Any) -> Mapping[str, Role]:
        return {
            "encoder": Role(Part.ENCODER, ("width", "inputs")),
            "recurrence": Role(Part.RECURRENT, ("width", "width")),
            "readout": Role(Part.READOUT, ("outputs", "width")),
        }

    @classmethod
    def initial(cls, config: Any, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        shapes = {"encoder": (config.width, signature.inputs), "readout": (signature.outputs, config.width)}
        found = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        return found | {"recurrence": rng.normal(size=(config.width, config.width)) / math.sqrt(config.width)}

    def gain(self, step: int) -> float:
        return self.config.gains[step] if self.config.gains else 1.0

    def step(self, weights: Weights, inputs_I: Tensor, before_M: Tensor, step: int) -> Tensor:
        """One step of one replica on one sequence."""
        pre_M = weights["encoder"] @ inputs_I + weights["recurrence"] @ before_M
        return self.gain(step) * (pre_M if self.config.linear else torch.tanh(pre_M))

    def forward(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError("these tests follow gradients alone")

    def jacobians(self, weights: Weights, inputs: Tensor) -> Iterator[Tensor] | None:
        recurrence_NMM, steps = weights["recurrence"], inputs.shape[1]
        drive_NBTM = torch.einsum("nmi,bti->nbtm", weights["encoder"], inputs)
        state_NBM = torch.zeros_like(drive_NBTM[:, :, 0])
        slopes = []
        for step in range(steps):
            pre_NBM = drive_NBTM[:, :, step] + torch.einsum("nij,nbj->nbi", recurrence_NMM, state_NBM)
            state_NBM = self.gain(step) * (pre_NBM if self.config.linear else torch.tanh(pre_NBM))
            slopes.append(
                torch.full_like(pre_NBM, self.gain(step))
                if self.config.linear
                else self.gain(step) * (1 - torch.tanh(pre_NBM) ** 2)
            )
        return (slopes[step][..., None] * recurrence_NMM[:, None] for step in range(steps - 1, 0, -1))

    def gradient_bound(self, weights: Weights, horizon: int) -> Tensor | None:
        norm_N1 = torch.linalg.matrix_norm(weights["recurrence"], 2)[:, None]
        gains_T = torch.tensor([abs(self.gain(step)) for step in reversed(range(1, horizon))], dtype=norm_N1.dtype)
        return torch.cat([torch.ones_like(norm_N1), (norm_N1 * gains_T).cumprod(-1)], -1)


def a_model(steps: int = STEPS, replicas: int = 3, **config: Any) -> tuple[Gained, dict[str, Tensor], Tensor]:
    rng = np.random.default_rng(11)
    model = Gained(Gained.Config(**config), Signature(2, 1, steps))
    drawn = [Gained.initial(model.config, model.signature, rng) for _ in range(replicas)]
    weights = {name: torch.tensor(np.stack([one[name] for one in drawn])) for name in drawn[0]}
    return model, weights, torch.tensor(rng.normal(size=(12, steps, 2)))


def orthogonal(weights: dict[str, Tensor], scale: float = 1.0) -> dict[str, Tensor]:
    return weights | {"recurrence": scale * torch.linalg.qr(weights["recurrence"])[0]}


@pytest.mark.parametrize("scale", [1.0, 0.9])
def test_an_orthogonal_linear_recurrence_keeps_a_gradient_and_a_smaller_one_loses_it(scale: float) -> None:
    model, weights, inputs = a_model(linear=True)
    norms = gradient_norms(model, orthogonal(weights, scale), inputs, [True] * 3)
    assert norms is not None
    lags = torch.arange(STEPS, dtype=torch.float64)
    torch.testing.assert_close(norms, (scale**lags).expand(3, -1), rtol=1e-12, atol=0)


def test_gains_give_their_product_which_is_also_the_bound() -> None:
    """The schedule n of stair RNNs: the product over the last k steps telescopes to (T - k + 1) / (T + 1)."""
    gains = tuple(1 - 1 / (step + 2) for step in range(STEPS))
    model, weights, inputs = a_model(linear=True, gains=gains)
    norms = gradient_norms(model, orthogonal(weights), inputs, [True] * 3)
    known = torch.tensor([(STEPS - lag + 1) / (STEPS + 1) for lag in range(STEPS)], dtype=torch.float64)
    torch.testing.assert_close(norms, known.expand(3, -1), rtol=1e-12, atol=0)
    bounds = gradient_bounds(model, orthogonal(weights), STEPS)
    torch.testing.assert_close(bounds, known.expand(3, -1), rtol=1e-12, atol=0)


def test_a_measured_norm_is_the_median_of_what_autograd_says_and_below_the_bound() -> None:
    model, weights, inputs = a_model(gains=tuple(np.linspace(0.9, 1.1, STEPS)))
    norms = gradient_norms(model, weights, inputs, [True] * 3)
    bounds = gradient_bounds(model, weights, STEPS)
    assert norms is not None
    assert bounds is not None
    assert not norms.isnan().any(), "few lags are measured at all of them"
    assert (norms <= bounds * (1 + 1e-12)).all()
    for row, lag in ((0, 1), (1, 7), (2, STEPS - 1)):
        single = {name: value[row] for name, value in weights.items()}
        found = [_by_autograd(model, single, sequence, lag) for sequence in inputs[[0, 2, 4, 6, 8]]]
        assert float(norms[row, lag]) == pytest.approx(float(np.median(found)), rel=1e-10)


def _by_autograd(model: Gained, weights: Weights, inputs_TI: Tensor, lag: int) -> float:
    state = torch.zeros(WIDTH, dtype=torch.float64)
    start = STEPS - 1 - lag
    for step in range(start + 1):
        state = model.step(weights, inputs_TI[step], state, step)

    def onwards(state_M: Tensor) -> Tensor:
        for step in range(start + 1, STEPS):
            state_M = model.step(weights, inputs_TI[step], state_M, step)
        return state_M

    return float(torch.linalg.matrix_norm(torch.autograd.functional.jacobian(onwards, state), 2))


@pytest.mark.parametrize(("scale", "dtype"), [(1e-12, torch.float32), (1e-30, torch.float32), (1e12, torch.float32)])
def test_products_that_leave_the_range_of_their_type_are_still_measured(scale: float, dtype: torch.dtype) -> None:
    """In float32 the product of 10 such matrices would be 0 or infinite; what comes back is float64."""
    model, weights, inputs = a_model(linear=True, replicas=1)
    small = {name: value.to(dtype) for name, value in orthogonal(weights, scale).items()}
    norms = gradient_norms(model, small, inputs.to(dtype), [True])
    assert norms is not None
    lags = torch.tensor([1, 5, 10])
    torch.testing.assert_close(norms[0, lags], torch.tensor(scale, dtype=torch.float64) ** lags, rtol=1e-4, atol=0)
    assert float(norms[0, -1]) == (0.0 if scale < 1 else math.inf), "beyond float64's range too"


def test_replicas_do_not_depend_on_their_company_and_a_lost_one_is_unknown() -> None:
    model, weights, inputs = a_model(width=24)
    together = gradient_norms(model, weights, inputs, [True, False, True])
    alone = gradient_norms(model, {name: value[2:] for name, value in weights.items()}, inputs, [True])
    assert together is not None
    assert alone is not None
    assert torch.equal(together[2], alone[0])
    assert together[1].isnan().all()
    broken = weights | {"recurrence": weights["recurrence"] * math.inf}
    norms = gradient_norms(model, broken, inputs, [True] * 3)
    assert norms is not None
    assert norms[:, 1:].isnan().all()


def test_many_lags_are_spread_in_their_logarithm_and_work_is_bounded() -> None:
    assert measured_lags(128, 64) == list(range(64))
    many = measured_lags(128, 1020)
    assert (many[0], many[1], many[-1]) == (0, 1, 1019)
    assert 45 <= len(many) <= 64
    assert len(measured_lags(1024, 300)) <= 16
    assert measured_lags(1024, 300)[-1] == 299
    assert measured_lags(1024, 10_000)[-1] < 1000, "a longer one would cost minutes"
    model, weights, inputs = a_model(steps=200, linear=True, replicas=1)
    norms = gradient_norms(model, orthogonal(weights), inputs, [True])
    assert norms is not None
    assert torch.equal((~norms[0].isnan()).nonzero()[:, 0], torch.tensor(measured_lags(WIDTH, 200)))
    assert norms[0, measured_lags(WIDTH, 200)].sub(1).abs().max() < 1e-12


def test_a_trial_stores_norms_and_bounds_by_lag_and_nan_where_its_model_says_nothing() -> None:
    part = registry.get(registry.MODEL, "exp_rnn")
    small = {"training": {"steps": 2, "validate_every": 2}, "perturbation": {"balls": (), "test_size": 8}}
    for activation in ("linear", "tanh"):  # the exact path, which has no sequences, and the sampled one
        config = part.Config(width=5, activation=activation, stair="n")
        table = run_trial(dataclasses.replace(trial(**small), model=config)).tables["memory"]
        bounds = [(20 - lag + 1) / 21 for lag in range(20)]
        for _, seed in table.groupby("seed"):
            assert seed["gradient_bound"].tolist() == pytest.approx(bounds, rel=1e-12)
            assert (seed["gradient"] <= seed["gradient_bound"] * (1 + 1e-12)).all()
            assert (seed["gradient"] > 0).all()
            if activation == "linear":
                assert seed["gradient"].tolist() == pytest.approx(bounds, rel=1e-12)
    table = run_trial(trial(**small)).tables["memory"]
    assert table[["gradient", "gradient_bound"]].isna().all(axis=None)
