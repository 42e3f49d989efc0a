"""Statistics of a batch and the loss of modes in C++: against torch's, and with bits that depend on no company."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import pytest
import torch
from torch import Tensor

from memsweep.recurrence.compiled.compiler import compile_to, compiler, target
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.linear.gram import CompiledGram, Gram, Growth
from memsweep.recurrence.linear.impulse import diagonal_response
from memsweep.recurrence.linear.modal_loss import CompiledModalLoss, Modes, modal_loss

HORIZON, MODELS, WIDTH = 48, 37, 9
"""Models of more than one group, and of an odd last one; modes, too."""
DTYPES = {torch.float64: torch.complex128, torch.float32: torch.complex64}
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-4}


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels, or an error."""
    monkeypatch.setenv(KERNELS, "compiled")


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def weights(dtype: torch.dtype) -> Tensor:
    return torch.linspace(0.1, 2.0, HORIZON, dtype=dtype)


def gram_of(kind: str, dtype: torch.dtype) -> Gram:
    batch = Gram.of_batch(rand(30, HORIZON, seed=1, dtype=dtype), weights(dtype))
    return batch if kind == "batch" else Gram.population(weights(dtype), 2.0)


def modes_of(dtype: torch.dtype, own: torch.dtype) -> Modes:
    """Of eigenvalues on both sides of the unit circle; one is 0."""
    circle = torch.nn.functional.normalize(rand(MODELS, WIDTH, 2, dtype=dtype), dim=-1)
    eigenvalues = circle * torch.linspace(0.3, 1.1, WIDTH, dtype=dtype).unsqueeze(-1)
    chosen = torch.view_as_complex(eigenvalues) if own.is_complex else eigenvalues[..., 0].clone()
    chosen[0, 0] = 0.0
    given = [rand(MODELS, WIDTH, seed=seed, dtype=own) for seed in (2, 3, 4)]
    return Modes(*given, chosen, rand(MODELS, seed=5, dtype=dtype))


def by_response(modes: Modes, gram: Gram, targets: Tensor) -> Tensor:
    drive = torch.stack([modes.input, modes.bias], 1)
    answers = diagonal_response(modes.readout.unsqueeze(1) * drive, modes.eigenvalues, HORIZON)
    kernel, drift = (answers.real if answers.is_complex() else answers).unbind(1)
    return gram.loss(kernel - targets, drift.cumsum(-1) + modes.offset.unsqueeze(-1))


def by_kernel(modes: Modes, gram: Gram, targets: Tensor, live: Tensor | None = None) -> Tensor:
    loss = modal_loss(modes, gram, targets, live)
    assert loss is not None
    return loss


def value_and_gradients(function, modes: Modes, *arguments) -> list[Tensor]:
    """Losses, and the gradients under outer gradients that differ from model to model."""
    leaves = Modes(*(tensor.clone().requires_grad_() for tensor in modes))
    loss = function(leaves, *arguments)
    outer = torch.arange(1.0, 1.0 + loss.numel(), dtype=loss.dtype).view(loss.shape)
    return [loss.detach(), *torch.autograd.grad(loss, leaves, outer)]


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize(("batch", "horizon"), [(3, 16), (300, 48), (7, 112)])
def test_statistics_are_those_of_torch(batch: int, horizon: int, dtype: torch.dtype, monkeypatch) -> None:
    """Of fewer sequences than one block, and of more."""
    x, scale = rand(batch, horizon, dtype=dtype), torch.linspace(0.1, 2.0, horizon, dtype=dtype)
    found = Gram.of_batch(x, scale)
    monkeypatch.setenv(KERNELS, "plain")
    expected = Gram.of_batch(x, scale)
    room = CLOSE[dtype] * float(expected.lags.diagonal().max())
    torch.testing.assert_close(found.lags, expected.lags, rtol=0.0, atol=room)
    torch.testing.assert_close(found.mean, expected.mean, rtol=0.0, atol=CLOSE[dtype])
    assert torch.equal(found.lags, found.lags.T)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize(("power", "steps"), [(0, 48), (1, 48), (4, 41), (8, 33), (8, 1)])
def test_weights_that_are_a_power_of_time_need_moments_alone(power: int, steps: int, dtype: torch.dtype) -> None:
    """Of all steps, and of fewer with padding behind."""
    time = torch.arange(1.0, HORIZON + 1, dtype=dtype)
    scale = torch.where(time <= steps, 0.3 * time ** (0.5 * power), 0.0)
    assert Growth.of(scale) == (steps, power if steps > 1 else 0)
    x = rand(30, HORIZON, dtype=dtype)
    found, expected = Gram.of_batch(x, scale, growth=Growth(steps, power)), Gram.of_batch(x, scale)
    room = CLOSE[dtype] * float(expected.lags.diagonal().max())
    torch.testing.assert_close(found.lags, expected.lags, rtol=0.0, atol=room)


@pytest.mark.parametrize("scale", [weights(torch.float64), torch.arange(1.0, 49.0) ** 0.7, torch.zeros(48)])
def test_weights_of_another_kind_have_no_growth(scale: Tensor) -> None:
    assert Growth.of(scale) is None


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("kind", ["batch", "population"])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_loss_and_gradients_are_those_of_the_response(dtype: torch.dtype, kind: str, is_complex: bool) -> None:
    modes, gram = modes_of(dtype, DTYPES[dtype] if is_complex else dtype), gram_of(kind, dtype)
    targets = rand(MODELS, HORIZON, seed=6, dtype=dtype)
    found = value_and_gradients(by_kernel, modes, gram, targets)
    expected = value_and_gradients(by_response, modes, gram, targets)
    scale = expected[0] * torch.arange(1.0, MODELS + 1)  # sums over time may cancel, of the offset above all
    for one, other in zip(found, expected, strict=True):
        size = other.abs().flatten(1).amax(1) if other.ndim > 1 else scale
        assert ((one - other).abs() <= CLOSE[dtype] * size.view(-1, *[1] * (other.ndim - 1))).all()


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("kind", ["batch", "population"])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_a_model_has_the_same_bits_alone_among_dead_ones_and_in_threads(
    dtype: torch.dtype, kind: str, is_complex: bool
) -> None:
    modes, gram = modes_of(dtype, DTYPES[dtype] if is_complex else dtype), gram_of(kind, dtype)
    targets = rand(MODELS, HORIZON, seed=6, dtype=dtype)
    whole = value_and_gradients(by_kernel, modes, gram, targets)
    live = torch.zeros(MODELS, dtype=torch.bool)
    live[[5, 36]] = True
    few = value_and_gradients(by_kernel, modes, gram, targets, live)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        shared = value_and_gradients(by_kernel, modes, gram, targets, live)
    finally:
        torch.set_num_threads(threads)
    for row in (5, 36):
        alone = Modes(*(tensor[row : row + 1] for tensor in modes))
        own = value_and_gradients(by_kernel, alone, gram, targets[row : row + 1])
        own = [own[0], *((row + 1) * tensor for tensor in own[1:])]  # the outer gradient of this row among all
        for one, *others in zip(own, whole, few, shared, strict=True):
            assert all(torch.equal(one[0], other[row]) for other in others)
    for tensor, other in zip(few, shared, strict=True):
        assert not tensor[~live].any()
        assert torch.equal(tensor, other)


def test_copies_of_a_replica_share_its_target() -> None:
    modes, gram = modes_of(torch.float64, torch.float64), gram_of("batch", torch.float64)
    targets = rand(MODELS, HORIZON, seed=6)
    copies = Modes(*(torch.stack([tensor, 0.5 * tensor], 1) for tensor in modes))
    found = by_kernel(copies, gram, targets.unsqueeze(1))
    assert torch.equal(found[:, 0], by_kernel(modes, gram, targets))
    assert torch.equal(found[:, 1], by_kernel(Modes(*(0.5 * tensor for tensor in modes)), gram, targets))


def test_the_loss_of_a_model_that_overflows_is_not_finite_and_touches_no_other() -> None:
    modes, gram = modes_of(torch.float64, torch.float64), gram_of("batch", torch.float64)
    targets = rand(MODELS, HORIZON, seed=6)
    whole = value_and_gradients(by_kernel, modes, gram, targets)
    modes.eigenvalues[3] = 1e30
    found = value_and_gradients(by_kernel, modes, gram, targets)
    assert not found[0][3].isfinite()
    others = torch.arange(MODELS) != 3
    assert all(torch.equal(one[others], other[others]) for one, other in zip(found, whole, strict=True))


def test_horizons_that_fill_no_vector_are_left_to_torch() -> None:
    modes = modes_of(torch.float64, torch.float64)
    gram = Gram.of_batch(rand(4, 13), torch.ones(13, dtype=torch.float64))
    assert modal_loss(modes, gram, rand(MODELS, 13)) is None


@pytest.mark.long
@pytest.mark.more
@pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine has one level of instructions")
def test_narrower_vectors_give_the_same_numbers(tmp_path: Path) -> None:
    narrower = "x86-64-v3" if target() == "x86-64-v4" else "x86-64-v2"
    compile_to(tmp_path / "kernels.so", "double", narrower, compiler())
    other = ctypes.CDLL(str(tmp_path / "kernels.so"))
    x, scale = rand(30, HORIZON, seed=1), weights(torch.float64).square()
    gram, targets = gram_of("batch", torch.float64), rand(MODELS, HORIZON, seed=6)
    modes, live = modes_of(torch.float64, torch.float64), torch.ones(MODELS, dtype=torch.bool)
    for kernel, arguments in ((CompiledGram, (x, scale)), (CompiledModalLoss, (modes, gram, targets, live, True))):
        usual = kernel.load(torch.float64)
        for one, two in zip(usual(*arguments), kernel(other)(*arguments), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-11 * float(one.abs().max()))
