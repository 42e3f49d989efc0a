"""Recurrences with coefficients and gates that change from step to step: each against a plain loop and its gradient."""

from __future__ import annotations

import pytest
import torch

from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.gated.gru import gru_states
from memsweep.recurrence.gated.lstm import lstm_states
from memsweep.recurrence.varying import varying_scan

SIZES = [(2, 3, 9, 5), (1, 40, 4, 13), (2, 1, 1, 1)]


@pytest.fixture(autouse=True, params=["plain", "compiled"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim is one of either code."""
    monkeypatch.setenv(KERNELS, request.param)


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def varying_loop(slope, drive):
    state, states = torch.zeros_like(drive[:, :, 0]), []
    for factor, given in zip(slope.unbind(2), drive.unbind(2), strict=True):
        state = factor * state + given
        states.append(state)
    return torch.stack(states, 2)


def driven(x, encoder, bias):
    return (x @ encoder[:, None].mT + bias[:, None, None]).unbind(2)


def gru_loop(x, encoder, bias, matrix, recalled):
    state, states = torch.zeros_like(x[:, :, 0, :1] + recalled[:, None]), []
    for given in driven(x, encoder, bias):
        (reset, update, candidate), images = given.chunk(3, -1), (state @ matrix.mT).chunk(3, -1)
        new = torch.sigmoid(update + images[1])
        shown = torch.tanh(candidate + torch.sigmoid(reset + images[0]) * (images[2] + recalled[:, None]))
        state = (1 - new) * state + new * shown
        states.append(state)
    return torch.stack(states, 2)


def lstm_loop(x, encoder, bias, matrix):
    cell = shown = torch.zeros_like(x[:, :, 0, :1] + matrix[:, None, 0])
    states = []
    for given in driven(x, encoder, bias):
        into, forget, out, candidate = (given + shown @ matrix.mT).chunk(4, -1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(candidate)
        shown = torch.sigmoid(out) * torch.tanh(cell)
        states.append(shown)
    return torch.stack(states, 2)


def lstm_arguments(leading, batch, horizon, width, gates=4, dtype=torch.float64):
    """More features than states, and biased, so that no gate is near its middle and mistakes of its derivative show."""
    return (
        rand(leading, batch, horizon, width + 2, dtype=dtype),
        rand(leading, gates * width, width + 2, seed=3, dtype=dtype) / width**0.5,
        0.5 + rand(leading, gates * width, seed=4, dtype=dtype),
        rand(leading, gates * width, width, seed=1, dtype=dtype) / width**0.5,
    )


def gru_arguments(leading, batch, horizon, width, dtype=torch.float64):
    shared = lstm_arguments(leading, batch, horizon, width, 3, dtype)
    return *shared, rand(leading, width, seed=2, dtype=dtype)


def value_and_gradients(function, *arguments):
    """States, and the gradients under outer gradients that differ from element to element."""
    live = [argument.clone().requires_grad_() for argument in arguments]
    states = function(*live)
    real = states.dtype if states.is_complex() else torch.float64
    return states.detach(), *torch.autograd.grad(states, live, rand(*states.shape, seed=9, dtype=real).to(states.dtype))


def assert_equal_runs(found, expected, tolerance=1e-12):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("size", SIZES)
def test_varying_scan_is_the_loop(size, dtype):
    slope = 0.7 * rand(*size, seed=1, dtype=dtype)
    found = value_and_gradients(lambda drive: varying_scan(slope, drive), rand(*size, dtype=dtype))
    assert found[0].is_contiguous()
    assert_equal_runs(found, value_and_gradients(lambda drive: varying_loop(slope, drive), rand(*size, dtype=dtype)))


def test_a_slope_is_a_constant():
    slope, drive = rand(1, 2, 4, 3, seed=1).requires_grad_(), rand(1, 2, 4, 3).requires_grad_()
    (of_slope,) = torch.autograd.grad(varying_scan(slope, drive).sum(), slope, allow_unused=True)
    assert of_slope is None


GATED = [*SIZES, (2, 3, 70, 20), (1, 1, 37, 64), (2, 4, 19, 33), (1, 8, 40, 24), (1, 35, 9, 24)]
"""The fourth one is longer than compiled code goes at a time; then few sequences, and few that blocks leave over."""
LAYERS = {"gru": (gru_states, gru_loop, gru_arguments), "lstm": (lstm_states, lstm_loop, lstm_arguments)}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("size", GATED)
def test_gated_states_are_the_loops(size, name):
    layer, loop, drawn = LAYERS[name]
    arguments = drawn(*size)
    found = value_and_gradients(layer, *arguments)
    assert found[0].is_contiguous()
    assert_equal_runs(found, value_and_gradients(loop, *arguments), 1e-11)
    assert torch.equal(layer(*arguments), found[0])


@pytest.mark.parametrize("name", LAYERS)
def test_gated_states_in_float32_have_its_roundings_alone(name):
    """Of a width whose gradients fill vectors of columns and leave a rest."""
    layer, loop, drawn = LAYERS[name]
    arguments = drawn(1, 33, 40, 40, dtype=torch.float32)
    expected = value_and_gradients(loop, *(argument.double() for argument in arguments))
    for one, other in zip(value_and_gradients(layer, *arguments), expected, strict=True):
        assert float((one - other).norm() / other.norm()) < 2e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("width", [6, 24, 65])
def test_few_sequences_have_the_bits_that_they_have_in_full_blocks(request, name, width, dtype):
    """Among others that are given no gradient; 64 sequences leave no lane of a block empty."""
    if "plain" in request.node.name:
        pytest.skip("torch's products have orders of their own")
    layer, _, drawn = LAYERS[name]
    x, *weights = drawn(2, 64, 60, width, dtype=dtype)
    for count in (1, 2, 3, 4, 7):
        outcomes = []
        for batch in (count, 64):
            live = [x[:, :batch].clone().requires_grad_(), *(each.clone().requires_grad_() for each in weights)]
            states = layer(*live)
            outer = rand(2, 64, 60, width, seed=9, dtype=dtype)[:, :batch]
            outer[:, count:] = 0.0
            of_x, *found = torch.autograd.grad(states, live, outer)
            outcomes.append([states.detach()[:, :count], layer(*live).detach()[:, :count], of_x[:, :count], *found])
        for few, among in zip(*outcomes, strict=True):
            assert torch.equal(few, among)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_the_same_bits_where_none_of_the_input_is_wanted(name):
    layer, _, drawn = LAYERS[name]
    x, *weights = (argument.requires_grad_() for argument in drawn(2, 3, 9, 5))
    with_x, without = (torch.autograd.grad(layer(each, *weights).sum(), weights) for each in (x, x.detach()))
    assert all(torch.equal(one, other) for one, other in zip(with_x, without, strict=True))


def test_far_gates_neither_overflow_nor_leak():
    """Update gates shut keep a state for all time; a diverged sequence is known by its NaN, and by no other's."""
    x, encoder, bias, matrix, recalled = gru_arguments(1, 3, 30, 4)
    encoder[:, 4:8], encoder[:, 4:8, 0] = 0.0, 1.0
    x[:, :, 0, 0], x[:, :, 1:, 0] = 1e4, -1e4
    states = gru_states(x, encoder, bias, 0.0 * matrix, recalled)
    torch.testing.assert_close(states[:, :, -1], states[:, :, 0], rtol=0, atol=0)
    x[0, 1, 5] = torch.nan
    broken = gru_states(x, encoder, bias, 0.0 * matrix, recalled)
    assert torch.isnan(broken[0, 1, 5:]).all()
    assert torch.isfinite(broken[0, [0, 2]]).all()


@pytest.mark.parametrize("name", LAYERS)
def test_a_models_numbers_do_not_depend_on_company(request, name):
    layer, _, drawn = LAYERS[name]
    arguments = drawn(3, 5, 6, 7)
    outer, outcomes = rand(3, 5, 6, 7, seed=9), []
    for rows in (slice(None), slice(1, 2)):
        live = [argument[rows].clone().requires_grad_() for argument in arguments]
        states = layer(*live)
        outcomes.append([states.detach(), *torch.autograd.grad(states, live, outer[rows])])
    for together, alone in zip(*outcomes, strict=True):
        torch.testing.assert_close(together[1:2], alone, rtol=1e-12, atol=1e-12)
        if "compiled" in request.node.name:
            assert torch.equal(together[1:2], alone)


def test_what_does_not_fit_is_refused():
    x, encoder, bias, matrix, recalled = gru_arguments(1, 2, 4, 3)
    with pytest.raises(ValueError, match=r"matrix must have the shape \[1, 9, 3\], got \[1, 9, 2\]"):
        gru_states(x, encoder, bias, matrix[..., :2], recalled)
    wide, too_narrow, *rest = lstm_arguments(1, 2, 4, 3)
    with pytest.raises(ValueError, match=r"encoder must have the shape \[1, 12, 5\], got \[1, 12, 4\]"):
        lstm_states(wide, too_narrow[..., :4], *rest)
    with pytest.raises(ValueError, match=r"slope must have the shape \[1, 2, 4, 9\], got \[1, 2, 4, 1\]"):
        varying_scan(rand(1, 2, 4, 1), rand(1, 2, 4, 9))
