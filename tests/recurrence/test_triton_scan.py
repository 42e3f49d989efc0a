"""The scan's Triton kernels: by Triton's interpreter where there is no GPU, and on the GPU where there is one.

Triton comes with torch's CUDA builds; on other machines ``pip install triton`` lets the interpreter run.
"""

from __future__ import annotations

import pytest
import torch

from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.scan import linear_scan, scan
from memsweep.recurrence.triton.scan import TritonScan, triton_knows
from processes import INTERPRETED, interpret

pytest.importorskip("triton", reason="Triton is not installed (it comes with torch's CUDA builds)")
GPU = torch.cuda.is_available()
RECURRENCES = [
    *((kind, activation, leak) for kind in ("diagonal", "dense") for activation in ("hardtanh", "tanh", "relu")
      for leak in (0.0, 1.0)),
    *((kind, "linear", 0.0) for kind in ("diagonal", "dense", "complex")),
]  # fmt: skip


def rand(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def arguments(kind: str, leak: float, dtype: torch.dtype, shape: tuple[int, int, int, int]):
    models, _, _, width = shape
    if kind == "complex":
        dtype = {torch.float64: torch.complex128, torch.float32: torch.complex64}[dtype]
    matrix = rand(models, *[width] * (2 if kind == "dense" else 1), seed=1, dtype=dtype)
    matrix = 0.4 * matrix / width**0.5 if kind == "dense" else 0.6 * torch.tanh(matrix)
    if leak:
        matrix = matrix - (0.8 * torch.eye(width, dtype=dtype) if kind == "dense" else 0.8)
    return rand(*shape, seed=2, dtype=dtype), matrix, rand(*shape, seed=3, dtype=dtype)


@pytest.mark.skipif(not GPU and not INTERPRETED, reason="run by the test below")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("kind", "activation", "leak"), RECURRENCES)
@pytest.mark.parametrize("shape", [(2, 5, 9, 3), (1, 140, 4, 8)], ids=str)
def test_states_and_gradients_are_those_of_the_loop(kind, activation, leak, dtype, shape, monkeypatch):
    drive, matrix, outer = arguments(kind, leak, dtype, shape)
    device = "cuda" if GPU else "cpu"
    states = TritonScan().states(drive.to(device), matrix.to(device), activation, leak)
    found = states, *TritonScan().gradients(outer.to(device), states, matrix.to(device), activation, leak)
    monkeypatch.setenv(KERNELS, "plain")
    live = drive.requires_grad_(), matrix.requires_grad_()
    expected = linear_scan(live[1], live[0]) if activation == "linear" and kind != "dense" else scan(
        *live, activation, leak
    )  # fmt: skip
    relative = 1e-12 if dtype == torch.float64 else 1e-4
    for one, other in zip(found, (expected.detach(), *torch.autograd.grad(expected, live, outer)), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=relative, atol=relative * float(other.abs().max()))


@pytest.mark.more  # its sharper neighbour: test_triton_layer.py
@pytest.mark.skipif(GPU, reason="the test above runs on the GPU itself")
def test_the_interpreter_runs_the_kernels():
    assert f"{4 * len(RECURRENCES)} passed" in interpret(__file__, "-k", "loop")


@pytest.mark.skipif(not GPU, reason="there is no GPU")
def test_tensors_on_a_gpu_are_scanned_by_triton():
    drive, matrix, _ = arguments("dense", 1.0, torch.float64, (2, 5, 9, 3))
    assert triton_knows(drive)
    torch.testing.assert_close(scan(drive.cuda(), matrix.cuda(), "tanh", 1.0).cpu(), scan(drive, matrix, "tanh", 1.0))
