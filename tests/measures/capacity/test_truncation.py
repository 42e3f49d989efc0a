"""Balanced truncations between their bounds, against systems that are known, and as a measurement of trials."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_linear import SYSTEMS, layer

from engine import noise, usual_model, weights_of
from memsweep import registry
from memsweep.measures.capacity.linear import LinearSystem
from memsweep.measures.capacity.maps import HANKEL, TRUNCATION, capacity_of
from memsweep.measures.capacity.truncation import WIDEST, truncated, truncation_errors
from memsweep.models.base import Signature


def kernel(system: LinearSystem, steps: int) -> torch.Tensor:
    """C A^k B, step by step."""
    matrix = torch.diag(system.matrix) if system.matrix.ndim == 1 else system.matrix
    found, state = [], system.encoder
    for _ in range(steps):
        found.append(system.readout @ state)
        state = matrix @ state
    return torch.stack(found)


@pytest.mark.parametrize("name", SYSTEMS)
def test_errors_lie_between_what_no_system_surpasses_and_their_bound(name: str) -> None:
    system = LinearSystem.of(SYSTEMS[name], 0)
    values, errors = system.hankel, truncation_errors(system)
    rounding = 1e-9 * float(errors[0])
    assert len(errors) > 1
    for states, error in enumerate(errors.tolist()):
        assert error <= 2 * float(values[states:].sum()) + rounding or states == 0
        # the lower bound is one of the supremum; here the frequencies are dense enough
        assert error >= 0.99 * float(values[states]) - rounding


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_error_is_the_largest_gain_of_the_difference_of_both_responses(name: str) -> None:
    """By Fourier transforms of impulse responses, at other frequencies: both are lower bounds, within 1 %."""
    system = LinearSystem.of(SYSTEMS[name], 0)
    errors = truncation_errors(system)
    steps = 2048
    own = kernel(system, steps)
    for states, error in enumerate(errors.tolist()):
        other = kernel(truncated(system, states), steps) if states else torch.zeros_like(own)
        gains = torch.linalg.matrix_norm(torch.fft.fft(own - other, dim=0), 2)
        assert error == pytest.approx(float(gains.max()), rel=1e-2, abs=1e-9 * float(errors[0]))


def test_a_truncation_to_all_states_is_the_same_system() -> None:
    for name in ("diagonal", "dense", "dense, several inputs and outputs"):
        system = LinearSystem.of(SYSTEMS[name], 0)
        states = int((system.hankel > 1e-12 * system.hankel[0]).sum())
        torch.testing.assert_close(kernel(truncated(system, states), 200), kernel(system, 200), rtol=1e-7, atol=1e-9)


def test_a_mode_that_is_not_seen_costs_nothing() -> None:
    given = layer(np.array([0.99, 0.9, 0.5]))
    given.readout[..., 0] = 0.0
    errors = truncation_errors(LinearSystem.of(given, 0))
    assert len(errors) <= 3
    assert all(errors[2:] < 1e-9 * errors[0])


def test_one_mode_has_the_gain_that_is_known_by_hand() -> None:
    given = layer(np.array([0.9]))
    gain = abs(float(given.encoder * given.readout)) * 0.9 / (1 - 0.9)
    assert truncation_errors(LinearSystem.of(given, 0)).tolist() == [pytest.approx(gain)]


def test_a_linear_layer_has_its_errors_beside_its_singular_values_unless_it_is_wide() -> None:
    for width, known in ((5, True), (WIDEST + 1, False)):
        config = usual_model("diagonal_rnn", width=width)
        model = registry.get(registry.MODEL, "diagonal_rnn")(config, Signature(1, 1, 20), np.random.default_rng(0))
        found = capacity_of(model, weights_of(model), noise(1, 20, 1))
        assert (TRUNCATION in found) is known
        assert HANKEL in found
