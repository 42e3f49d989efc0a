"""The Triton kernels of GRU and LSTM: by Triton's interpreter where there is no GPU, and on the GPU where there is one.

Triton comes with torch's CUDA builds; on other machines ``pip install triton`` lets the interpreter run.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.gated import gru, lstm
from memsweep.recurrence.triton import gated
from memsweep.recurrence.triton.gated import triton_knows, triton_states
from processes import INTERPRETED, interpret

pytest.importorskip("triton", reason="Triton is not installed (it comes with torch's CUDA builds)")
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
on_kernels = pytest.mark.skipif(not GPU and not INTERPRETED, reason="run by test_the_interpreter_runs_the_kernels")
cells = pytest.mark.parametrize("cell", ["gru", "lstm"])
GATES = {"gru": 3, "lstm": 4}


def rand(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def arguments(cell: str, models: int, batch: int, horizon: int, width: int, dtype=torch.float64) -> list[Tensor]:
    """Drive, matrix and, of a GRU, what it recalls."""
    gates = GATES[cell] * width
    tensors = [rand(models, batch, horizon, gates, seed=1), rand(models, gates, width, seed=2) / width**0.5]
    if cell == "gru":
        tensors.append(rand(models, width, seed=3))
    return [tensor.to(DEVICE, dtype).requires_grad_() for tensor in tensors]


def by_torch(cell: str, *tensors: Tensor) -> Tensor:
    loop = gru._GatedScan if cell == "gru" else lstm._Scan
    return loop.apply(*tensors)


def found(states: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """The states, and their gradient by all that made them."""
    outer = rand(*states.shape, seed=4).to(states)
    return [states.detach(), *torch.autograd.grad(states, tensors, outer)]


def assert_close(ours: list[Tensor], theirs: list[Tensor], relative: float = 1e-13) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=relative, atol=relative * float(other.abs().max()))


@on_kernels
@cells
@pytest.mark.parametrize("shape", [(2, 5, 7, 3), (1, 1, 1, 1), (1, 40, 3, 17), (3, 16, 5, 16)], ids=str)
def test_states_and_gradients_are_those_of_the_loop(cell, shape):
    tensors = arguments(cell, *shape)
    assert_close(found(triton_states(*tensors), tensors), found(by_torch(cell, *tensors), tensors))


@on_kernels
@cells
def test_float32_is_float64_but_for_rounding(cell):
    tensors = arguments(cell, 2, 5, 7, 3, dtype=torch.float32)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    ours = found(triton_states(*tensors), tensors)
    assert {tensor.dtype for tensor in ours} == {torch.float32}
    assert_close([tensor.double() for tensor in ours], found(by_torch(cell, *exact), exact), 1e-5)


@on_kernels
@cells
def test_what_is_kept_for_a_gradient_changes_no_state(cell):
    tensors = arguments(cell, 2, 5, 7, 3)
    with torch.no_grad():
        free = triton_states(*tensors)
    assert torch.equal(free, triton_states(*tensors).detach())


@on_kernels
@cells
def test_a_model_knows_nothing_of_the_others(cell):
    tensors = arguments(cell, 3, 5, 7, 4)
    whole = found(triton_states(*tensors), tensors)
    alone = [tensor[2:].detach().requires_grad_() for tensor in tensors]
    states = triton_states(*alone)
    outer = rand(*whole[0].shape, seed=4).to(states)[2:]
    assert torch.equal(states[0].detach(), whole[0][2])
    assert torch.equal(torch.autograd.grad(states, alone[0], outer)[0][0], whole[1][2])


@on_kernels
@cells
def test_what_is_not_finite_stays_with_its_sequence(cell):
    tensors = arguments(cell, 2, 5, 7, 3)
    usual = triton_states(*tensors).detach()
    with torch.no_grad():
        tensors[0][1, 3, 2] = float("nan")
    states = triton_states(*tensors).detach()
    assert torch.isnan(states[1, 3, 2:]).all()
    states[1, 3, 2:] = usual[1, 3, 2:]
    assert torch.equal(states, usual)


@on_kernels
@cells
def test_gates_that_are_saturated_are_exact(cell):
    tensors = arguments(cell, 1, 4, 6, 2)
    with torch.no_grad():
        tensors[0].mul_(1e3)
    assert_close(found(triton_states(*tensors), tensors), found(by_torch(cell, *tensors), tensors))


@on_kernels
@cells
def test_layers_use_them(cell, monkeypatch):
    """The interpreter's tensors are on the processor, where they would not."""
    monkeypatch.setenv(KERNELS, "plain")
    width, features, batch = 3, 2, 5
    rows, module = GATES[cell] * width, gru if cell == "gru" else lstm
    shapes = [(2, batch, 7, features), (2, rows, features), (2, rows), (2, rows, width), (2, width)]
    tensors = [rand(*shape, seed=seed).to(DEVICE).requires_grad_() for seed, shape in enumerate(shapes)]
    if cell == "lstm":
        tensors.pop()
    layer = getattr(module, f"{cell}_states")
    monkeypatch.setattr(module, "triton_knows", lambda *_: False)
    plain = found(layer(*tensors), tensors)
    calls = []
    monkeypatch.setattr(module, "triton_knows", lambda *seen: calls.append(seen) or True)
    assert_close(found(layer(*tensors), tensors), plain)
    ((drive, seen),) = calls
    assert (*drive.shape, seen) == (2, batch, 7, rows, width)


@cells
def test_a_processor_and_odd_numbers_have_other_ways(cell):
    drive = arguments(cell, 1, 2, 3, 4)[0]
    assert triton_knows(drive, 4) == GPU
    for other, width in [(drive, gated._WIDEST + 1), (drive.half(), 4), (drive[:, :0], 4), (drive[:, :, :0], 4)]:
        assert not triton_knows(other, width)


@pytest.mark.skipif(GPU, reason="the tests above run on the GPU itself")
@pytest.mark.skipif(INTERPRETED, reason="this is the process that it starts")
def test_the_interpreter_runs_the_kernels():
    said = interpret(__file__)
    assert "run by test_the_interpreter" not in said, "the kernels' tests were skipped"
    assert "passed" in said


@pytest.mark.skipif(INTERPRETED, reason="an interpreter compiles nothing")
@pytest.mark.parametrize("width", [1, 64, gated._WIDEST])
@pytest.mark.parametrize("numbers", ["fp32", "fp64"])
@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile_and_need_no_more_than_any_card_has(capability, numbers, width):
    """For an A100 and an H100, without either: the compiler needs no card."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from memsweep.recurrence.triton import gated_kernels

    constants = {**gated._sizes(torch.empty(1, 1, 1, width)), "KEEP": True}
    for name in ("gru_forward", "gru_backward", "lstm_forward", "lstm_backward"):
        kernel = getattr(gated_kernels, name)
        own = {key: value for key, value in constants.items() if key in kernel.arg_names}
        types = {
            each: "constexpr" if each in own else "i32" if each in gated_kernels._COUNTS else f"*{numbers}"
            for each in kernel.arg_names
        }
        source = ASTSource(fn=kernel, signature=types, constexprs=own)
        made = compile(source, target=GPUTarget("cuda", capability, 32))
        assert made.metadata.shared < 48_000
        assert len(made.asm["cubin"]) > 0


@pytest.mark.skipif(not GPU, reason="there is no GPU")
@cells
@pytest.mark.parametrize("width", [64, gated._WIDEST])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_gpu_runs_ordinary_sizes_and_gives_the_same_bits_twice(cell, width, dtype):
    tensors = arguments(cell, 3, 64, 100, width, dtype)
    ours, again = (found(triton_states(*tensors), tensors) for _ in range(2))
    assert all(map(torch.equal, ours, again))
    assert_close(ours, found(by_torch(cell, *tensors), tensors), 1e-10 if dtype == torch.float64 else 1e-3)
