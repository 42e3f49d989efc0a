"""Recurrence scans against plain loops, their gradients, and what a row may not know of the others."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memsweep.recurrence.activations import ACTIVATIONS
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.scan import linear_scan, scan
from memsweep.recurrence.steps import GRAIN, room_for

REFERENCE = {
    "linear": lambda z: z,
    "hardtanh": torch.nn.functional.hardtanh,
    "tanh": torch.tanh,
    "relu": torch.relu,
}
FORMS = [(0.0, 1.0), (1.0, 1.0), (1.0, 0.3), (0.6, 1.7), (0.0, 0.5)]


@pytest.fixture(autouse=True, params=["plain", "compiled"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim is one of either code."""
    monkeypatch.setenv(KERNELS, request.param)


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def matrix_of(kind: str, leading: int, width: int, seed: int = 1) -> torch.Tensor:
    if kind == "diagonal":
        return -0.5 * rand(leading, width, seed=seed).abs()
    return 0.4 * rand(leading, width, width, seed=seed) / width**0.5


def loop(drive, matrix, activation, leak=1.0, gain=1.0):
    state, states = torch.zeros_like(drive[:, :, 0]), []
    for step in range(drive.shape[2]):
        image = matrix[:, None] * state if matrix.ndim == 2 else state @ matrix.mT
        state = leak * state + gain * REFERENCE[activation](drive[:, :, step] + image)
        states.append(state)
    return torch.stack(states, 2)


def linear_loop(eigenvalues, drive):
    return loop(drive, eigenvalues, "linear", leak=0.0)


def value_and_gradients(function, *arguments):
    """Outputs, and the gradients under outer gradients that differ from element to element."""
    live = [argument.clone().requires_grad_() for argument in arguments]
    states = function(*live)
    outer = rand(*states.shape, seed=9, dtype=states.dtype)
    return states.detach(), *torch.autograd.grad(states, live, outer)


def assert_equal_runs(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12 * float(other.abs().max()))


@pytest.mark.parametrize("kind", ["diagonal", "dense"])
@pytest.mark.parametrize(("leak", "gain"), FORMS)
@pytest.mark.parametrize("activation", REFERENCE)
def test_scan_is_the_loop(activation, leak, gain, kind):
    drive, matrix = rand(3, 5, 40, 7), matrix_of(kind, 3, 7)
    found = value_and_gradients(lambda x, a: scan(x, a, activation, leak, gain), drive, matrix)
    assert found[0].is_contiguous()
    assert_equal_runs(found, value_and_gradients(lambda x, a: loop(x, a, activation, leak, gain), drive, matrix))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_linear_scan_is_the_loop(dtype):
    drive = rand(3, 5, 60, 7, dtype=dtype)
    eigenvalues = rand(3, 7, seed=1).abs().clamp(max=0.95).to(dtype)
    if dtype.is_complex:
        eigenvalues = eigenvalues * torch.exp(3j * rand(3, 7, seed=2))
    assert_equal_runs(
        value_and_gradients(linear_scan, eigenvalues, drive), value_and_gradients(linear_loop, eigenvalues, drive)
    )


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 9, 1), (2, 1, 1, 3), (1, 4, 2, 1)])
@pytest.mark.parametrize("kind", ["diagonal", "dense"])
def test_small_shapes(shape, kind):
    """A drive whose memory would not have to be copied to be time first must still come back unharmed."""
    drive, matrix = rand(*shape), matrix_of(kind, shape[0], shape[3])
    before = drive.clone()
    assert_equal_runs(
        value_and_gradients(lambda x, a: scan(x, a, "tanh", 1.0, 0.3), drive, matrix),
        value_and_gradients(lambda x, a: loop(x, a, "tanh", 1.0, 0.3), drive, matrix),
    )
    scan(drive, matrix, "tanh")
    assert torch.equal(drive, before)


@pytest.mark.parametrize("kind", ["diagonal", "dense"])
@pytest.mark.parametrize(("leak", "gain"), [(0.0, 1.0), (1.0, 0.3), (0.6, 1.7)])
@pytest.mark.parametrize("activation", REFERENCE)
def test_gradient_by_finite_differences(activation, leak, gain, kind):
    drive, matrix = rand(2, 2, 5, 3).requires_grad_(), matrix_of(kind, 2, 3).requires_grad_()
    with torch.no_grad():
        states = scan(drive, matrix, "linear", leak, gain)
        assert (states.abs() - 1.0).abs().min() > 1e-4  # no corner of an activation within a difference's reach
    assert torch.autograd.gradcheck(lambda x, a: scan(x, a, activation, leak, gain), (drive, matrix))


def test_gradient_at_the_corners_is_that_of_torch():
    drive = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64).view(1, 1, 1, 5)
    for activation, function in REFERENCE.items():
        found = value_and_gradients(lambda x, name=activation: scan(x, torch.zeros(1, 5).double(), name, 0.0), drive)
        assert_equal_runs(found, value_and_gradients(function, drive))


def _runs(dtype=torch.float64):
    """Every kind of scan, as (name, drive -> matrix, function)."""
    real = [
        (f"{kind} {activation}", kind, lambda x, a, name=activation: scan(x, a, name, 1.0, 0.3))
        for kind, activation in itertools.product(["diagonal", "dense"], ACTIVATIONS)
    ]
    return [*real, ("complex", "complex", lambda x, a: linear_scan(a, x))]


def _arguments(kind, leading, batch, horizon, width, seed=0):
    """A drive, a matrix and the gradient that arrives from outside."""
    if kind == "complex":
        drive = rand(leading, batch, horizon, width, seed=seed, dtype=torch.complex128)
        outer = rand(*drive.shape, seed=seed + 2, dtype=torch.complex128)
        return drive, 0.9 * torch.exp(1j * rand(leading, width, seed=seed + 1)), outer
    drive = rand(leading, batch, horizon, width, seed=seed)
    return drive, matrix_of(kind, leading, width, seed + 1), rand(*drive.shape, seed=seed + 2)


def _rows(function, drive, matrix, outer):
    """Everything that belongs to each row: states and both gradients."""
    drive, matrix = drive.clone().requires_grad_(), matrix.clone().requires_grad_()
    states = function(drive, matrix)
    return [states.detach(), *torch.autograd.grad(states, [drive, matrix], outer)]


SHAPES = [(16, 64, 6, 8), (5, 3, 11, 7), (12, 64, 5, 5), (64, 1, 9, 3), (7, 33, 5, 1), (9, 20, 4, 65), (64, 16, 3, 40)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "function"), [run[1:] for run in _runs()], ids=[run[0] for run in _runs()])
def test_bits_of_a_row_do_not_depend_on_the_others(kind, function, shape):
    """Rows in another order, among strangers: the same bits, forward and backward."""
    arguments, strangers = (_arguments(kind, *shape, seed=seed) for seed in (0, 50))
    order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(3))
    stay = torch.arange(shape[0]) % 2 == 0
    mixed = [
        torch.where(stay.view(-1, *[1] * (one.ndim - 1)), one, two)
        for one, two in zip(arguments, strangers, strict=True)
    ]
    expected = _rows(function, *arguments)
    permuted = _rows(function, *(argument[order] for argument in arguments))
    among = _rows(function, *(argument[order] for argument in mixed))
    for one, two, three in zip(expected, permuted, among, strict=True):
        assert torch.equal(one[order], two)
        assert torch.equal(two[stay[order]], three[stay[order]])


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), 1e308])
@pytest.mark.parametrize(("kind", "function"), [run[1:] for run in _runs()], ids=[run[0] for run in _runs()])
def test_overflow_stays_in_its_row(kind, function, bad):
    drive, matrix, outer = _arguments(kind, 5, 3, 11, 7)
    expected = _rows(function, drive, matrix, outer)
    broken = matrix.clone()
    broken[2] = bad
    found = _rows(function, drive, broken, outer)
    others = torch.arange(5) != 2
    for one, two in zip(expected, found, strict=True):
        assert torch.equal(one[others], two[others])


@given(size=st.integers(1, 20 * GRAIN), threads=st.integers(1, 12))
@settings(max_examples=300, deadline=None)
def test_every_thread_gets_whole_registers(size, threads):
    room = room_for(size, threads)
    used = min(threads, -(-room // GRAIN))  # how torch divides an elementwise operation
    assert size <= room < size + 16 * (threads + 1) ** 2
    assert -(-room // used) % 16 == 0


@pytest.mark.parametrize("threads", [2, 3])
def test_complex_bits_under_several_threads(threads):
    """Large enough for torch to divide a step among threads."""
    shape = (64, 37, 3, 31)
    arguments = _arguments("complex", *shape)
    order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(3))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = _rows(lambda x, a: linear_scan(a, x), *arguments)
        permuted = _rows(lambda x, a: linear_scan(a, x), *(argument[order] for argument in arguments))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one[order], two) for one, two in zip(expected, permuted, strict=True))


def test_single_precision():
    drive, matrix = rand(3, 5, 20, 7), matrix_of("dense", 3, 7)
    found = scan(drive.float(), matrix.float(), "tanh", 1.0, 0.3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), loop(drive, matrix, "tanh", 1.0, 0.3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([2, 3, 4, 5], [2, 5], "tahn"), r"unknown activation 'tahn'; allowed: hardtanh, linear, relu, tanh.*'tanh'"),
        (([2, 3, 4, 5], [3, 5], "tanh"), r"matrix must have the shape \[2, 5\] or \[2, 5, 5\], got \[3, 5\]"),
        (([2, 3, 4], [2, 4], "tanh"), r"drive must have the shape \[2, 3, 4, 4\], got \[2, 3, 4\]"),
    ],
)
def test_what_cannot_be_scanned_is_refused(arguments, message):
    drive, matrix, activation = arguments
    with pytest.raises(ValueError, match=message):
        scan(rand(*drive), rand(*matrix), activation)


def test_other_numbers_are_refused():
    drive = rand(2, 3, 4, 5)
    with pytest.raises(ValueError, match="one dtype"):
        scan(drive, torch.zeros(2, 5), "tanh")
    with pytest.raises(ValueError, match="real states"):
        scan(drive + 0j, rand(2, 5) + 0j, "tanh")
