"""Recurrences with coefficients and gates that change from step to step: each against a plain loop and its gradient."""

from __future__ import annotations

import pytest
import torch

from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.gated.gru import gated_scan
from memsweep.recurrence.gated.lstm import lstm_scan
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


def gated_loop(drive, matrix, bias):
    state, states = torch.zeros_like(drive[:, :, 0, : bias.shape[-1]]), []
    for given in drive.unbind(2):
        (reset, update, candidate), images = given.chunk(3, -1), (state @ matrix.mT).chunk(3, -1)
        new = torch.sigmoid(update + images[1])
        shown = torch.tanh(candidate + torch.sigmoid(reset + images[0]) * (images[2] + bias[:, None]))
        state = (1 - new) * state + new * shown
        states.append(state)
    return torch.stack(states, 2)


def lstm_loop(drive, matrix):
    cell = shown = torch.zeros_like(drive[:, :, 0, : matrix.shape[-1]])
    states = []
    for given in drive.unbind(2):
        into, forget, out, candidate = (given + shown @ matrix.mT).chunk(4, -1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(candidate)
        shown = torch.sigmoid(out) * torch.tanh(cell)
        states.append(shown)
    return torch.stack(states, 2)


def gated_arguments(leading, batch, horizon, width, dtype=torch.float64):
    """Biased, so that no gate is near its middle and mistakes of its derivative show."""
    drive = 0.5 + rand(leading, batch, horizon, 3 * width, dtype=dtype)
    return (
        drive,
        rand(leading, 3 * width, width, seed=1, dtype=dtype) / width**0.5,
        rand(leading, width, seed=2, dtype=dtype),
    )


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


@pytest.mark.parametrize("size", SIZES)
def test_gated_scan_is_the_loop(size):
    arguments = gated_arguments(*size)
    found = value_and_gradients(gated_scan, *arguments)
    assert found[0].is_contiguous()
    assert_equal_runs(found, value_and_gradients(gated_loop, *arguments))


@pytest.mark.parametrize("size", [*SIZES, (2, 3, 70, 20)])
def test_lstm_scan_is_the_loop(size):
    leading, _, _, width = size
    drive = 0.5 + rand(*size[:3], 4 * width)
    arguments = drive, rand(leading, 4 * width, width, seed=1) / width**0.5
    found = value_and_gradients(lstm_scan, *arguments)
    assert found[0].is_contiguous()
    assert_equal_runs(found, value_and_gradients(lstm_loop, *arguments), 1e-11)
    assert torch.equal(lstm_scan(*arguments), found[0])


def test_gated_states_are_the_same_bits_with_and_without_gradients():
    arguments = gated_arguments(2, 3, 9, 5)
    assert torch.equal(gated_scan(*arguments), value_and_gradients(gated_scan, *arguments)[0])


def test_far_gates_neither_overflow_nor_leak():
    """Update gates shut keep a state for all time; a diverged sequence is known by its NaN, and by no other's."""
    drive, matrix, bias = gated_arguments(1, 3, 30, 4)
    drive[:, :, 0, 4:8], drive[:, :, 1:, 4:8] = 1e4, -1e4
    states = gated_scan(drive, 0.0 * matrix, bias)
    torch.testing.assert_close(states[:, :, -1], states[:, :, 0], rtol=0, atol=0)
    drive[0, 1, 5] = torch.nan
    broken = gated_scan(drive, 0.0 * matrix, bias)
    assert torch.isnan(broken[0, 1, 5:]).all()
    assert torch.isfinite(broken[0, [0, 2]]).all()


def test_a_models_numbers_do_not_depend_on_company(request):
    arguments = gated_arguments(3, 5, 6, 7)
    outer, outcomes = rand(3, 5, 6, 7, seed=9), []
    for rows in (slice(None), slice(1, 2)):
        live = [argument[rows].clone().requires_grad_() for argument in arguments]
        states = gated_scan(*live)
        outcomes.append([states.detach(), *torch.autograd.grad(states, live, outer[rows])])
    for together, alone in zip(*outcomes, strict=True):
        torch.testing.assert_close(together[1:2], alone, rtol=1e-12, atol=1e-12)
        if "compiled" in request.node.name:
            assert torch.equal(together[1:2], alone)


def test_what_does_not_fit_is_refused():
    drive, matrix, bias = gated_arguments(1, 2, 4, 3)
    with pytest.raises(ValueError, match=r"matrix must have the shape \[1, 9, 3\], got \[1, 9, 2\]"):
        gated_scan(drive, matrix[..., :2], bias)
    with pytest.raises(ValueError, match=r"slope must have the shape \[1, 2, 4, 9\], got \[1, 2, 4, 1\]"):
        varying_scan(drive[..., :1], drive)
