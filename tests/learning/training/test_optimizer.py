"""Each optimizer is torch's, for every replica by itself, with settings of their own for groups of weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine import noise
from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.training.optimizer import Optimizer, clipped, optimizer_for

THEIRS: dict[str, Any] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
}
STEPS, ROWS, SIZE, GROUP = 50, 3, 7, slice(2, 5)
RATES = torch.tensor([0.1, 0.003, 0.02], dtype=torch.float64)


def options_of(name: str) -> dict[str, Any]:
    return {"alpha": 0.9} if name == "rmsprop" else {"beta1": 0.8, "beta2": 0.97}


def torchs(name: str, options: dict[str, Any]) -> dict[str, Any]:
    return options if name == "rmsprop" else {"betas": (options["beta1"], options["beta2"])} if options else {}


def trained(mine: Optimizer, weights: torch.Tensor, gradients: torch.Tensor, rate: torch.Tensor, decay: Any) -> Any:
    moving = torch.ones_like(weights, dtype=torch.bool)
    for gradient in gradients:
        kept = gradient.clone()
        weights = mine.update(weights, gradient, rate, decay, moving)
        assert torch.equal(gradient, kept)
    return weights


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", THEIRS)
def test_fifty_steps_of_every_row_are_torchs(name: str, given: bool, decay: float) -> None:
    options = options_of(name) if given else {}
    weights, gradients = noise(ROWS, SIZE), noise(STEPS, ROWS, SIZE, seed=4)
    mine = optimizer_for(weights, TrainingConfig(optimizer=name, **options))
    found = trained(mine, weights, gradients, RATES.unsqueeze(-1), decay)
    for row, rate in enumerate(RATES.tolist()):
        theirs = torch.nn.Parameter(weights[row].clone())
        optimizer = THEIRS[name]([theirs], lr=rate, weight_decay=decay, **torchs(name, options))
        for gradient in gradients:
            theirs.grad = gradient[row].clone()
            optimizer.step()
        torch.testing.assert_close(found[row], theirs.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", THEIRS)
def test_rates_and_decays_of_single_entries_are_torchs_parameter_groups(name: str) -> None:
    weights, gradients = noise(ROWS, SIZE), noise(STEPS, ROWS, SIZE, seed=4)
    rate, decay = RATES.unsqueeze(-1).expand(ROWS, SIZE).clone(), torch.full((SIZE,), 0.01, dtype=torch.float64)
    rate[:, GROUP], decay[GROUP] = 0.0004, 0.3
    found = trained(optimizer_for(weights, TrainingConfig(optimizer=name)), weights, gradients, rate, decay)
    rest = [entry for entry in range(SIZE) if entry not in range(GROUP.start, GROUP.stop)]
    for row, usual in enumerate(RATES.tolist()):
        parts = [torch.nn.Parameter(weights[row, entries].clone()) for entries in (rest, GROUP)]
        groups = [
            {"params": parts[:1], "lr": usual, "weight_decay": 0.01},
            {"params": parts[1:], "lr": 0.0004, "weight_decay": 0.3},
        ]
        optimizer = THEIRS[name](groups)
        for gradient in gradients:
            for part, entries in zip(parts, (rest, GROUP), strict=True):
                part.grad = gradient[row, entries].clone()
            optimizer.step()
        for part, entries in zip(parts, (rest, GROUP), strict=True):
            torch.testing.assert_close(found[row, entries], part.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", THEIRS)
def test_entries_that_stand_still_keep_their_weights_and_take_no_decay_into_their_state(name: str) -> None:
    weights = noise(2, 4)
    moving = torch.tensor([[True, False, True, True], [False] * 4])
    mine = optimizer_for(weights, TrainingConfig(optimizer=name))
    found = mine.update(weights, noise(2, 4, seed=4) * moving, torch.full((2, 1), 0.1), 0.5, moving)
    assert torch.equal(found == weights, ~moving)
    assert torch.equal(mine.state()["square"] == 0.0, ~moving)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", THEIRS)
def test_bits_of_the_first_rows_do_not_depend_on_how_many_are_updated(name: str, dtype: torch.dtype) -> None:
    weights, gradients = noise(9, 33).to(dtype), noise(5, 9, 33, seed=4).to(dtype)
    rate, training = torch.full((9, 1), 0.1, dtype=dtype), TrainingConfig(optimizer=name)
    whole = optimizer_for(weights, training)
    found = trained(whole, weights, gradients, rate, 0.01)
    for rows in (1, 2, 5):
        few = optimizer_for(weights, training)
        assert torch.equal(trained(few, weights[:rows], gradients[:, :rows], rate[:rows], 0.01), found[:rows])
        square, state = few.state()["square"], whole.state()["square"]
        assert isinstance(square, torch.Tensor)
        assert isinstance(state, torch.Tensor)
        assert torch.equal(square[:rows], state[:rows])
        assert not square[rows:].any()


def test_clip_is_per_replica_and_zero_is_no_limit() -> None:
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    torch.testing.assert_close(clipped(gradient, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    assert torch.equal(clipped(gradient, 0.0), gradient)


def test_a_gradient_whose_norm_overflows_keeps_its_direction() -> None:
    """In float32 the squares of entries beyond 1e19 are infinite; scaled by their norm they would all be zero."""
    gradient = torch.tensor([[3e30, -4e30], [0.3, 0.4]])
    torch.testing.assert_close(clipped(gradient, 1.0), torch.tensor([[0.6, -0.8], [0.3, 0.4]]))
