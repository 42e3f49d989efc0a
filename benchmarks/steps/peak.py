"""The share of the core's measured peak that the kernels reach.

The peak is measured in the same run by loops of our own: multiply-adds in registers, in float64 and float32, and a copy
of 256 MiB (``benchmarks.roof``). The library's product of large matrices is measured against it like a kernel. A
kernel's work is counted by formula (``Work``), from the arithmetic of its mathematics, a fused multiply and add as two
operations; its time is that of loss and gradient, or of value and gradient, of a pack of models.
Traffic is counted only for the kernels that are bound by it: every byte of the powers' table, once written and three
times read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from benchmarks import harness, roof
from benchmarks.harness import Options, Row
from memsweep.recurrence.layer import Layer
from memsweep.recurrence.layer_outputs import layer_outputs, squared_loss
from memsweep.recurrence.linear.gram import Gram
from memsweep.recurrence.linear.impulse import diagonal_response
from memsweep.recurrence.linear.krylov import dense_response
from memsweep.recurrence.padding import aligned

VALUES: Final = {
    torch.float64: {"linear": 0, "hardtanh": 2, "tanh": 38},
    torch.float32: {"linear": 0, "hardtanh": 2, "tanh": 26},
}
"""Operations of an activation's value: tanh by range reduction, a polynomial of degree 13 or 7, and a division."""
SLOPES: Final = {"linear": 0, "hardtanh": 2, "tanh": 4}
"""Operations of an activation's derivative, from its answer, and of the product with it."""
SAMPLED: Final = ((False, "linear"), (False, "hardtanh"), (False, "tanh"), (True, "hardtanh"), (True, "tanh"))
"""Dense or not, and the activation, of the layers that run over the sequences."""
CHANNELS: Final = 2
"""Of a response: the input, and the bias as one more."""


@dataclass(frozen=True)
class Work:
    """Operations, and bytes where the kernel is bound by memory."""

    operations: float
    traffic: float = 0.0


def gram_work(batch: int, horizon: int) -> Work:
    """x'x of the batch, and the product of the temporal weights with its diagonals: 2 B T^2 + 2 T^3."""
    return Work(2 * batch * horizon**2 + 2 * horizon**3)


def response_work(models: int, width: int, horizon: int, size: int) -> Work:
    """M T powers; a product with them forward and two backward, 2 C M T each."""
    powers = models * width * horizon
    return Work(powers * (1 + 6 * CHANNELS), 4 * powers * size)


def krylov_work(models: int, width: int, horizon: int) -> Work:
    """Squarings at 2 M^3, vectors and rows at 2 M^2 each, their products at 2 M each; backward twice that."""
    lags = aligned(horizon)
    inner = 1 << round(math.log2(lags) / 2)
    outer = -(-lags // inner)
    squarings = round(math.log2(inner)) + math.floor(math.log2(outer - 1))
    ends = (inner - 1) * CHANNELS + outer - 1
    forward = squarings * 2 * width**3 + ends * 2 * width**2 + CHANNELS * inner * outer * 2 * width
    return Work(3.0 * models * forward)


def layer_work(states: int, width: int, activation: str, dense: bool, dtype: torch.dtype) -> Work:
    """Operations of loss and gradient of so many states (models x sequences x steps x width).

    Forward: u x + b (2), A h (2, dense 2 M), sigma, the carried state (1, not linear), c h (2). Backward: c dy and what
    comes from later (2), sigma', gradients of c, u, b (2, 2, 1), A' e (2, dense 2 M), e h' (2, dense 2 M), the carried
    gradient (1, not linear).
    """
    recurrence = 2 * width if dense else 2
    carried = 0 if activation == "linear" else 1
    forward = 4 + recurrence + VALUES[dtype][activation] + carried
    backward = 7 + 2 * recurrence + SLOPES[activation] + carried
    return Work(float(states * (forward + backward)))


@dataclass(frozen=True)
class Kernel:
    """One measured thing: its name and sizes, what it does, and how much that is."""

    name: str
    width: int | None
    dtype: torch.dtype
    run: Callable[[], object]
    work: Work


def noise(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def random_layer(models: int, width: int, activation: str, dense: bool, dtype: torch.dtype = torch.float64) -> Layer:
    """Stable layers whose states are of order 1: an Euler step of rates between 0.01 and 1; linear ones folded."""
    rates = torch.logspace(-2, 0, width, dtype=dtype).expand(models, width)
    linear = activation == "linear"
    diagonal = 1.0 - rates if linear else -rates
    if dense:
        basis = torch.linalg.qr(noise(models, width, width, dtype=dtype)).Q
        matrix = basis.mT @ (diagonal.unsqueeze(-1) * basis)
    else:
        matrix = diagonal.clone()
    return Layer(
        encoder=0.3 * noise(models, width, 1, dtype=dtype, seed=1),
        bias=0.1 * noise(models, width, dtype=dtype, seed=2),
        matrix=matrix,
        readout=noise(models, 1, width, dtype=dtype, seed=3) / math.sqrt(width),
        offset=noise(models, 1, dtype=dtype, seed=4),
        activation=activation,
        leak=0.0 if linear else 1.0,
    )


def layer_step(layer: Layer, x_BTI: Tensor, y_BTO: Tensor, weights_T: Tensor) -> None:
    """Loss and gradient of all models."""
    live = layer.with_tensors(*(tensor.detach().requires_grad_() for tensor in layer.tensors().values()))
    loss = squared_loss(live, x_BTI, y_BTO, weights_T)
    if loss is None:  # no compiled kernel here: the loop over time
        loss = (weights_T[:, None] * (layer_outputs(live, x_BTI) - y_BTO).square()).sum((-1, -2, -3))
    loss.sum().backward()


def pulled(response: Callable[..., Tensor], tensors: tuple[Tensor, ...], horizon: int) -> None:
    """Value and gradient of a response."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    answer = response(*leaves, horizon)
    answer.backward(torch.ones_like(answer))


def kernels(models: int, batch: int, horizon: int, widths: tuple[int, ...]) -> list[Kernel]:
    """All that are measured, at these sizes."""
    real = torch.float64
    x_BT, weights_T = noise(batch, aligned(horizon)), torch.linspace(0, 2, aligned(horizon), dtype=real)
    found = [Kernel("gram", None, real, partial(Gram.of_batch, x_BT, weights_T), gram_work(*x_BT.shape))]
    for width in widths:
        rates = torch.logspace(-2, 0, width, dtype=real).expand(models, width)
        ends = noise(models, CHANNELS, width, seed=1), (1.0 - rates).clone()
        run = partial(pulled, diagonal_response, ends, horizon)
        found.append(Kernel("diagonal response", width, real, run, response_work(models, width, aligned(horizon), 8)))
        linear = random_layer(models, width, "linear", True)
        run = partial(pulled, dense_response, (linear.readout, linear.matrix, noise(models, width, CHANNELS)), horizon)
        found.append(Kernel("krylov", width, real, run, krylov_work(models, width, horizon)))
    for dense, activation in SAMPLED:
        for width in widths:
            for dtype in (real, torch.float32) if (activation, width) == ("tanh", widths[-1]) else (real,):
                few = max(1, models // 8)  # of sampled layers: they do not know of one another
                layer = random_layer(few, width, activation, dense, dtype)
                data = noise(batch, horizon, 1, dtype=dtype), noise(batch, horizon, 1, dtype=dtype, seed=5)
                run = partial(layer_step, layer, *data, torch.ones(horizon, dtype=dtype))
                work = layer_work(few * batch * horizon * width, width, activation, dense, dtype)
                found.append(Kernel(f"{'dense' if dense else 'diagonal'} {activation}", width, dtype, run, work))
    return found


def peaks(rounds: int, copied: int) -> list[Kernel]:
    """So many rounds of multiply-adds in registers, in both types, and a copy of so many float64 numbers."""
    found = []
    for dtype in (torch.float64, torch.float32):
        done = Work(roof.multiply_adds(dtype, rounds))
        found.append(Kernel("multiply-adds", None, dtype, partial(roof.multiply_adds, dtype, rounds), done))
    source, target = torch.ones(copied, dtype=torch.float64), torch.ones(copied, dtype=torch.float64)
    found.append(Kernel("copy", None, torch.float64, partial(roof.copy, source, target), Work(0, 16 * copied)))
    return found


def products(size: int) -> list[Kernel]:
    """The library's products of square matrices of this size."""
    found = []
    for dtype in (torch.float64, torch.float32):
        a, b, c = (torch.ones(size, size, dtype=dtype) for _ in range(3))
        found.append(Kernel("matrix product", size, dtype, partial(torch.matmul, a, b, out=c), Work(2 * size**3)))
    return found


def run(options: Options) -> None:
    """Measure, print and write ``peak.json``."""
    harness.one_thread()
    quick = options.quick
    limits = peaks(20_000, 1 << 16) if quick else peaks(100_000, 1 << 24)
    kept = products(128 if quick else 1024)
    kept += kernels(8, 32, 20, (8,)) if quick else kernels(64, 512, 100, (8, 64))
    rows = []
    for kernel in [*limits, *kept]:
        if options.wants({"kernel": kernel.name}):
            rows.append(_row(kernel, limits, quick))
            harness.tell(rows[-1])
    settings = {
        "clock": "CPU time of the process, one thread; each kernel alternates with the three peaks",
        "sizes": "8 models, 32 sequences, 20 steps"
        if quick
        else "64 models (sampled layers 8), 512 sequences, 100 steps",
        "gflops": "operations by formula; one multiply and add are two",
        "of_peak": "by multiply-adds in registers in the same dtype, in the same rounds",
        "of_copy": "bytes by formula, by those of the copy (read and written)",
    }
    harness.publish("peak", settings, rows, options)


def _row(kernel: Kernel, limits: list[Kernel], quick: bool) -> Row:
    adds = next(limit for limit in limits if limit.dtype == kernel.dtype)
    copy = limits[-1]
    sides = {"kernel": kernel.run, "peak": adds.run, "copy": copy.run}
    times = harness.alternate(sides, pairs=2 if quick else harness.PAIRS, shortest=0.002 if quick else harness.SHORTEST)
    seconds, work = harness.median(times["kernel"]), kernel.work
    row: Row = {
        "kernel": kernel.name,
        "width": kernel.width,
        "dtype": str(kernel.dtype).removeprefix("torch."),
        "milliseconds": 1e3 * seconds,
        "gflops": work.operations / seconds / 1e9 if work.operations else None,
        "of_peak": None,
        "gigabytes_per_second": work.traffic / seconds / 1e9 if work.traffic else None,
        "of_copy": None,
    }
    if work.operations:
        row["of_peak"] = harness.ratio(times["peak"], times["kernel"]) * work.operations / adds.work.operations
    if work.traffic:
        row["of_copy"] = harness.ratio(times["copy"], times["kernel"]) * work.traffic / copy.work.traffic
    return row
