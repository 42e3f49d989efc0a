"""Time and memory by length, and the lengths that a time budget allows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from memsweep.checks.finding import Curve, Finding, finding, show
from memsweep.checks.part import Check
from memsweep.checks.subject import NAMES, SINGLE, Subject, first
from memsweep.models.contracts import default_dtype

_REPEATS, _QUICK = 3, 0.1  # runs, and the seconds within which another one begins
_FEWEST, _LAST = 3, 4  # an exponent needs three lengths, and is fitted over the four longest


def cost(subject: Subject, seconds: float) -> Finding:
    """Seconds of a forward and of a training pass over one sequence, and the bytes that the latter keeps, by length."""
    dtype = SINGLE
    lengths, forward, training, kept = [], [], [], []
    for length in subject.affordable(_doubling(subject), seconds):
        inputs = subject.cast(subject.noise(1, length), dtype)
        lengths.append(length)
        forward.append(_forward(subject, inputs, dtype))
        passed, size = _training(subject, inputs, dtype)
        training.append(passed)
        kept.append(size)
    time_growth, memory_growth = _growth(lengths, training), _growth(lengths, kept)
    numbers = {
        "dtype": NAMES[dtype],
        "lengths": lengths,
        "forward_seconds": forward,
        "training_seconds": training,
        "kept_bytes": kept,
        "time_exponent": time_growth,
        "memory_exponent": memory_growth,
    }
    curves = [
        Curve("seconds", "forward", tuple(lengths), tuple(forward)),
        Curve("seconds", "forward and backward", tuple(lengths), tuple(training)),
        Curve("bytes", "kept for the backward pass", tuple(lengths), tuple(kept)),
    ]
    well = (
        f"{lengths[-1]} steps: {show(forward[-1])} s forward, {show(training[-1])} s with gradients, which keep "
        f"{_bytes(kept[-1])}"
    )
    if time_growth is not None and memory_growth is not None:
        over = f"from {lengths[-_LAST:][0]} to {lengths[-1]} steps"
        well += f"; {over} time grows as T^{round(time_growth, 1) + 0.0:.1f}, memory as T^{memory_growth:.1f}"
    well += "."
    notes = []
    if lengths[-1] < subject.horizon:
        notes.append(f"{well} Longer sequences did not fit into its time: measured up to {lengths[-1]} steps.")
    return finding("cost", well, numbers, notes=notes, curves=curves)


def _doubling(subject: Subject) -> list[int]:
    if subject.fixed:
        return [subject.horizon]
    return sorted({max(1, subject.horizon >> power) for power in range(7)})


def _forward(subject: Subject, inputs: Tensor, dtype: torch.dtype) -> float:
    with torch.no_grad(), default_dtype(dtype):
        return _timed(lambda: first(subject.at(dtype)(inputs)), subject.device)


def _training(subject: Subject, inputs: Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """Seconds of a forward and a backward pass; bytes of the tensors that autograd keeps between them."""
    module = subject.at(dtype)
    kept: dict[int, int] = {}
    held: list[Tensor] = []  # so that no storage is given away again and counted once only

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)
        return tensor

    weights = {weight.untyped_storage().data_ptr() for weight in module.parameters()}

    def both() -> None:
        with default_dtype(dtype), torch.enable_grad():
            answer = first(module(inputs))
            if answer.requires_grad:
                answer.sum().backward()

    with default_dtype(dtype), torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        answer = first(module(inputs))
    del answer
    held.clear()
    passed = _timed(both, subject.device)
    module.zero_grad(set_to_none=True)
    return passed, float(sum(size for pointer, size in kept.items() if pointer not in weights))


def _timed(call: Callable[[], object], device: str) -> float:
    """The shortest of a few runs, or of one that takes long."""
    best, begun = math.inf, time.perf_counter()
    for again in range(_REPEATS):
        if again and time.perf_counter() - begun > _QUICK:
            break
        start = time.perf_counter()
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def _growth(lengths: list[int], values: list[float]) -> float | None:
    """The exponent of the length over the last four lengths, by least squares; None of fewer than three."""
    known = [(math.log(length), math.log(value)) for length, value in zip(lengths, values, strict=True) if value > 0]
    if len(known) < _FEWEST:
        return None
    across, up = np.array(known[-_LAST:]).T
    return float(np.polyfit(across, up, 1)[0])


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(value)


CHECK = Check("cost", cost, place=160, share=0.12, needs=("shapes",))
