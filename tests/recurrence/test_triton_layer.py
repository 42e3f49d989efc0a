"""The layer's Triton kernels: by Triton's interpreter where there is no GPU, and on the GPU where there is one.

Triton comes with torch's CUDA builds; on other machines ``pip install triton`` lets the interpreter run.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.layer import Layer
from memsweep.recurrence.layer_outputs import plain_outputs
from memsweep.recurrence.triton import layer
from memsweep.recurrence.triton.layer import TritonLayer, triton_knows
from processes import INTERPRETED, interpret

pytest.importorskip("triton", reason="Triton is not installed (it comes with torch's CUDA builds)")
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
on_kernels = pytest.mark.skipif(not GPU and not INTERPRETED, reason="run by test_the_interpreter_runs_the_kernels")
KINDS = [
    *(("linear", output, 0.0) for output in ("linear", "hardtanh", "tanh", "relu")),
    *((activation, "linear", leak) for activation in ("hardtanh", "tanh", "relu") for leak in (0.0, 1.0)),
]
ODD = (2, 5, 3, 2, 7, 4)  # N M I O B T


@pytest.fixture(autouse=True)
def oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are compared with torch's loop."""
    monkeypatch.setenv(KERNELS, "plain")


def rand(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def layer_of(shape, kind, dense) -> Layer:
    models, width, inputs, outputs, _, _ = shape
    activation, output, leak = kind
    matrix = rand(models, *[width] * (1 + dense), seed=1)
    matrix = 0.4 * matrix / width**0.5 if dense else 0.6 * torch.tanh(matrix)
    if leak:
        matrix = matrix - (0.8 * torch.eye(width, dtype=matrix.dtype) if dense else 0.8)
    weights = (
        rand(models, width, inputs, seed=2),
        0.3 * rand(models, width, seed=3),
        matrix,
        rand(models, outputs, width, seed=4) / width**0.5,
        rand(models, outputs, seed=5),
    )
    return Layer(*weights, activation=activation, output=output, leak=leak)


def data_of(shape) -> tuple[torch.Tensor, ...]:
    _, _, inputs, outputs, batch, horizon = shape
    return rand(batch, horizon, inputs, seed=6), rand(batch, horizon, outputs, seed=7), rand(horizon, seed=8).abs()


def moved(layer: Layer, *tensors: torch.Tensor, dtype=torch.float64):
    """All of it where the kernels run."""
    weights = (tensor.to(DEVICE, dtype) for tensor in layer.tensors().values())
    return layer.with_tensors(*weights), *(tensor.to(DEVICE, dtype) for tensor in tensors)


def found_by_kernels(layer, x, target, weight, outer, live=None, dtype=torch.float64):
    """Outputs, their gradient, and the squared error with and without its gradient."""
    live = torch.ones(layer.models, dtype=torch.bool) if live is None else live
    there, x, target, weight, outer = moved(layer, x, target, weight, outer, dtype=dtype)
    kernels = TritonLayer()
    loss, of_loss = kernels.squared(there, x, live, target, weight, True)
    alone, nothing = kernels.squared(there, x, live, target, weight, False)
    assert nothing is None
    return [
        tensor.cpu()
        for tensor in (
            kernels.outputs(there, x, live), *kernels.gradients(there, x, live, outer), loss, *of_loss, alone,
        )
    ]  # fmt: skip


def found_by_the_loop(layer, x, target, weight, outer):
    weights = [tensor.clone().requires_grad_() for tensor in layer.tensors().values()]
    y = plain_outputs(layer.with_tensors(*weights), x)
    loss = (weight[:, None] * (y - target).square()).sum((1, 2, 3))
    pulled = torch.autograd.grad(y, weights, outer, retain_graph=True)
    return [y.detach(), *pulled, loss.detach(), *torch.autograd.grad(loss.sum(), weights), loss.detach()]


def assert_close(found, expected, relative=1e-12):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        scale = max(1e-300, float(other.abs().max()))
        torch.testing.assert_close(one.double(), other, rtol=relative, atol=relative * scale)


def case(shape, kind, dense):
    layer, data = layer_of(shape, kind, dense), data_of(shape)
    return layer, *data, rand(shape[0], shape[4], shape[5], shape[3], seed=9)


@on_kernels
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_outputs_losses_and_gradients_are_those_of_the_loop(kind, dense):
    arguments = case(ODD, kind, dense)
    assert_close(found_by_kernels(*arguments), found_by_the_loop(*arguments))


@on_kernels
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
@pytest.mark.parametrize("shape", [(1, 3, 1, 1, 70, 3), (1, 1, 1, 1, 1, 1), (1, 16, 1, 3, 1, 2)], ids=str)
def test_other_shapes(shape, dense):
    arguments = case(shape, ("hardtanh", "linear", 1.0), dense)
    assert_close(found_by_kernels(*arguments), found_by_the_loop(*arguments))


@on_kernels
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
@pytest.mark.parametrize("kind", [("linear", "linear", 0.0), ("tanh", "linear", 1.0)], ids=str)
def test_float32_is_float64_but_for_rounding(kind, dense):
    arguments = case(ODD, kind, dense)
    found = found_by_kernels(*arguments, dtype=torch.float32)
    assert {tensor.dtype for tensor in found} == {torch.float32}
    assert_close(found, found_by_the_loop(*arguments), 1e-4)


@on_kernels
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
def test_a_model_knows_nothing_of_the_others(dense):
    """Alone, in company, in another order, beside models that ended: the same bits, and zeros for those."""
    shape = (3, *ODD[1:])
    layer, *data, outer = case(shape, ("tanh", "linear", 1.0), dense)
    whole = found_by_kernels(layer, *data, outer)
    order = torch.tensor([2, 0, 1])
    turned = found_by_kernels(layer.with_tensors(*(t[order] for t in layer.tensors().values())), *data, outer[order])
    ended = found_by_kernels(layer, *data, outer, live=torch.tensor([True, False, True]))
    alone = found_by_kernels(layer.with_tensors(*(t[2:] for t in layer.tensors().values())), *data, outer[2:])
    for every, other, some, one in zip(whole, turned, ended, alone, strict=True):
        assert torch.equal(other, every[order])
        assert torch.equal(some[[0, 2]], every[[0, 2]])
        assert not some[1].any()
        assert torch.equal(one[0], every[2])


@on_kernels
def test_no_model_need_live():
    layer, x, target, weight, outer = case(ODD, ("tanh", "linear", 1.0), True)
    found = found_by_kernels(layer, x, target, weight, outer, live=torch.zeros(layer.models, dtype=torch.bool))
    for one, other in zip(found, found_by_the_loop(layer, x, target, weight, outer), strict=True):
        assert one.shape == other.shape
        assert not one.any()


@on_kernels
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
def test_slices_that_fit_the_memory_change_nothing(dense, monkeypatch):
    """Two blocks of sequences and more, of which each is a launch of its own, as is each model."""
    shape = (2, 40, 1, 1, 35, 3)
    arguments = case(shape, ("tanh", "linear", 1.0), dense)
    whole = found_by_kernels(*arguments)
    assert_close(whole, found_by_the_loop(*arguments))
    cut, cuts = layer._Launch._slices, []

    def watched(launch):
        found = cut(launch)
        cuts.append(tuple(map(len, found)))
        return found

    monkeypatch.setattr(layer._Launch, "_slices", watched)
    monkeypatch.setattr(layer, "_BYTES", 1)  # each model by itself,
    monkeypatch.setattr(layer, "_MODEL_BYTES", 1)  # and each block of sequences
    for one, other in zip(found_by_kernels(*arguments), whole, strict=True):
        assert torch.equal(one, other)
    assert cuts == 2 * [(2, 3)]  # ``gradients`` and ``squared``


@on_kernels
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
def test_what_is_not_finite_stays_so_and_stays_apart(dense):
    layer, x, target, weight, outer = case(ODD, ("hardtanh", "linear", 1.0), dense)
    broken = x.clone()
    broken[3, 2] = float("nan")
    expected = found_by_the_loop(layer, x, target, weight, outer)
    y, *_, loss = found_by_kernels(layer, broken, target, weight, outer)
    assert torch.isnan(y[:, 3, 2:]).all()
    assert torch.isnan(loss).all()
    others = [0, 1, 2, 4, 5, 6]
    assert_close([y[:, others], y[:, 3, :2]], [expected[0][:, others], expected[0][:, 3, :2]])


@on_kernels
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # the interpreter's numpy
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
def test_a_state_that_overflows_spoils_its_model_alone(dense):
    """Neither padding nor h_{-1}, which are zero, may meet infinity: what is finite in the loop is finite."""
    layer, x, target, weight, outer = case(ODD, ("linear", "linear", 0.0), dense)
    with torch.no_grad():
        layer.matrix[0] = 0.0
        layer.matrix[(0, 0, 0) if dense else (0, 0)] = 1e200
        layer.readout[0, 1, 0] = 0.0
    found = found_by_kernels(layer, x, target, weight, outer)
    expected = found_by_the_loop(layer, x, target, weight, outer)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(torch.isfinite(one), torch.isfinite(other))
        assert_close([one[1]], [other[1]])
    assert not torch.isfinite(found[-1][0])


@on_kernels
def test_tanh_is_exact_but_for_rounding():
    """Through a layer of one unit; from denormal numbers to far beyond saturation, both sides of its branches."""
    x = torch.cat([torch.logspace(-310, 2, 2000), torch.linspace(0, 3, 2000)]).double()
    x = torch.cat([x, -x, torch.tensor([0.0, float("inf"), -float("inf")], dtype=torch.float64)]).view(-1, 1, 1)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    layer, x = moved(Layer(one, 0 * one[0], 0 * one[0], one, 0 * one[0], activation="tanh"), x)
    found = TritonLayer().outputs(layer, x, torch.tensor([True])).flatten()
    torch.testing.assert_close(found, torch.tanh(x.flatten()), rtol=4e-15, atol=0.0)


@pytest.mark.skipif(GPU, reason="the tests above run on the GPU itself")
@pytest.mark.skipif(INTERPRETED, reason="this is the process that it starts")
def test_the_interpreter_runs_the_kernels():
    said = interpret(__file__)
    assert "run by test_the_interpreter" not in said, "the kernels' tests were skipped"
    assert "passed" in said


@pytest.mark.skipif(not GPU, reason="there is no GPU")
@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_gpu_runs_ordinary_sizes_and_gives_the_same_bits_twice(dense, dtype):
    arguments = case((6, 64, 1, 1, 200, 100), ("tanh", "linear", 1.0), dense)
    found, again = (found_by_kernels(*arguments, dtype=dtype) for _ in range(2))
    assert all(map(torch.equal, found, again))
    assert_close(found, found_by_the_loop(*arguments), 1e-10 if dtype == torch.float64 else 1e-3)


@pytest.mark.skipif(not GPU, reason="there is no GPU")
@pytest.mark.parametrize("width", [33, 64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_widest_dense_layer_fits_a_program(width, dtype):
    arguments = case((1, width, 1, 1, 20, 5), ("tanh", "linear", 1.0), True)
    found = found_by_kernels(*arguments, dtype=dtype)
    assert_close(found, found_by_the_loop(*arguments), 1e-10 if dtype == torch.float64 else 1e-3)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_what_a_program_does_not_hold_is_left_to_torch():
    x = data_of(ODD)[0]
    for shape, dense, inputs, held in [
        (ODD, True, x, True),
        (ODD, True, x.repeat(1, 1, 30), False),
        ((1, 65, 1, 1, 1, 1), True, x[:, :, :1], False),
        ((1, 1024, 1, 1, 1, 1), False, x[:, :, :1], True),
        ((1, 1025, 1, 1, 1, 1), False, x[:, :, :1], False),
    ]:
        assert triton_knows(layer_of(shape, ("tanh", "linear", 1.0), dense), inputs) == held
