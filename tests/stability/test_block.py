"""Blocks of derivatives against the closed form, against torch's own Jacobian, and against the number of states."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import model_config, noise, usual_model, weights_of
from memsweep import registry
from memsweep.measures.capacity.maps import BLOCK, HANKEL, capacity_of
from memsweep.models.base import Model, Signature
from memsweep.stability.block import STEPS, block_values, steps_of

HORIZON = 24


def made(name: str, inputs: int = 1, outputs: int = 1, horizon: int = HORIZON, **fields: object) -> Model:
    model_class = registry.get(registry.MODEL, name)
    config = model_config(**fields) if name == "diagonal_rnn" else usual_model(name, **fields)
    return model_class(config, Signature(inputs, outputs, horizon), np.random.default_rng(0)).double().eval()


def test_the_block_of_a_linear_layer_tends_to_its_closed_form() -> None:
    short, model = made("diagonal_rnn", width=4), made("diagonal_rnn", width=4, horizon=250)
    found = capacity_of(model, weights_of(short), noise(1, 250, 1))
    torch.testing.assert_close(found[BLOCK][:4], found[HANKEL], rtol=1e-6, atol=1e-9)
    assert (found[BLOCK] > 1e-9 * found[BLOCK][0]).sum() == 4


def test_derivatives_and_the_impulse_response_of_a_linear_model_give_one_block() -> None:
    model, given = made("diagonal_rnn", width=5, inputs=2, outputs=3), noise(1, HORIZON, 2)
    known = capacity_of(model, weights_of(model), given)[BLOCK]
    derived = block_values(lambda inputs: model.outputs(weights_of(model), inputs)[0], given, 7)
    torch.testing.assert_close(derived, known, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("vanilla_rnn", {"width": 3}),
        ("residual_stack", {"width": 3, "features": 3, "unit": registry.get(registry.UNIT, "gru").Config()}),
        ("module", {}),
    ],
)
def test_the_block_of_any_model_is_torchs_jacobian(name: str, fields: dict[str, object]) -> None:
    model, sequence = made(name, inputs=2, outputs=2, **fields), noise(1, HORIZON, 2)
    jacobian = torch.autograd.functional.jacobian(lambda given: model(given.unsqueeze(0))[0], sequence[0])
    before, after = steps_of(HORIZON)
    expected = torch.linalg.svdvals(jacobian[after][:, :, before].reshape(len(after) * 2, len(before) * 2))
    found = capacity_of(model, weights_of(model), sequence)
    assert HANKEL not in found
    torch.testing.assert_close(found[BLOCK], expected / expected[0], rtol=1e-7, atol=1e-10)


def test_a_block_has_no_more_rank_than_the_model_has_states() -> None:
    for width in (1, 3, 6):
        model = made("vanilla_rnn", width=width)
        values = capacity_of(model, weights_of(model), noise(3, HORIZON, 1))[BLOCK]
        assert 0 < (values > 1e-10).sum() <= width


def test_a_model_that_is_not_finite_has_no_rank() -> None:
    model = made("vanilla_rnn", width=3)
    next(model.parameters()).data.fill_(torch.nan)
    assert capacity_of(model, weights_of(model), noise(1, HORIZON, 1))[BLOCK].isnan().all()


def test_a_long_horizon_is_taken_at_some_of_its_steps() -> None:
    before, after = steps_of(10 * STEPS)
    assert (len(before), len(after)) == (STEPS, STEPS)
    assert (int(before[0]), int(before[-1])) == (0, 5 * STEPS - 1)
    assert (int(after[0]), int(after[-1])) == (5 * STEPS, 10 * STEPS - 1)
    before, after = steps_of(7)
    assert [before.tolist(), after.tolist()] == [[0, 1, 2], [3, 4, 5, 6]]
