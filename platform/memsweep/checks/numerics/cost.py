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

_REPEATS, _QUICK = 7, 0.1  # runs at most, and the seconds within which another one begins, after the first two
_AGREE, _SHOWN = 0.5, 0.05  # the spread of an exponent up to which it is told, and from which it is told with it
_FEWEST, _LAST = 3, 4  # an exponent needs three lengths, and is fitted over the four longest


def cost(subject: Subject, seconds: float) -> Finding:
    """Seconds of a forward and of a training pass over one sequence, and the bytes that the latter keeps, by length."""
    dtype = SINGLE
    lengths, forward, training, kept, works = [], [], [], [], []
    for length in subject.affordable(_doubling(subject), seconds):
        inputs = subject.cast(subject.noise(1, length), dtype)
        lengths.append(length)
        forward.append(_forward(subject, inputs, dtype))
        passed, work, size = _training(subject, inputs, dtype)
        training.append(passed)
        works.append(work)
        kept.append(size)
    (work_growth, spread), (memory_growth, _) = _growth(lengths, works), _growth(lengths, [[size] for size in kept])
    agree = spread is not None and spread <= _AGREE
    numbers = {
        "dtype": NAMES[dtype],
        "lengths": lengths,
        "forward_seconds": forward,
        "training_seconds": training,
        "kept_bytes": kept,
        "time_exponent": work_growth if agree else None,
        "time_exponent_spread": spread,
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
    if work_growth is not None and memory_growth is not None:
        over = f"from {lengths[-_LAST:][0]} to {lengths[-1]} steps"
        power = f"T^{round(work_growth, 1) + 0.0:.1f}" + (f" ± {spread:.1f}" if spread and spread >= _SHOWN else "")
        grows = f"work grows as {power}" if agree else "runs of one length differ too much to say how work grows"
        well += f"; {over} {grows}, memory{' grows' if not agree else ''} as T^{memory_growth:.1f}"
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


def _training(subject: Subject, inputs: Tensor, dtype: torch.dtype) -> tuple[float, list[float], float]:
    """Seconds of a forward and a backward pass, its work in several runs, and the bytes that autograd keeps for it."""
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
    work, passed = _worked(both, subject.device), _timed(both, subject.device)
    module.zero_grad(set_to_none=True)
    return passed, work, float(sum(size for pointer, size in kept.items() if pointer not in weights))


def _timed(call: Callable[[], object], device: str) -> float:
    """The shortest of a few runs by the clock."""
    return min(_runs(call, device, time.perf_counter))


def _worked(call: Callable[[], object], device: str) -> list[float]:
    """The work of a few runs: seconds of the processor on one thread, or of a device's clock.

    Whatever else runs on the machine lengthens a run by the clock, and hardly by the processor's time. That is a sum
    over threads, those that wait too, and torch takes several from some size on: linear work would look steeper.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _runs(call, device, time.perf_counter if device.startswith("cuda") else time.process_time)
    finally:
        torch.set_num_threads(threads)


def _runs(call: Callable[[], object], device: str, clock: Callable[[], float]) -> list[float]:
    """The seconds of each of a few runs by a clock."""
    found, begun = list[float](), time.perf_counter()
    for again in range(_REPEATS):
        if again > 1 and time.perf_counter() - begun > _QUICK:
            break
        start = clock()
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        found.append(clock() - start)
    return found


def _growth(lengths: list[int], runs: list[list[float]]) -> tuple[float | None, float | None]:
    """The exponent of the length over the last four lengths, by least squares of the least value of each.

    And how far it may be off where the two least values of each length differ; None of fewer than three lengths.
    """
    known = [(math.log(length), sorted(values)[:2]) for length, values in zip(lengths, runs, strict=True)]
    known = [(at, values) for at, values in known if values[0] > 0][-_LAST:]
    if len(known) < _FEWEST:
        return None, None
    across = np.array([at for at, _ in known])
    up = np.log([values[0] for _, values in known])
    apart = np.log([values[-1] for _, values in known]) - up
    weights = (across - across.mean()) / np.square(across - across.mean()).sum()
    return float(weights @ up), float(np.abs(weights) @ apart)


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(value)


CHECK = Check("cost", cost, place=160, share=0.12, needs=("shapes",))
