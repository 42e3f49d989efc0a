"""Shared by the checks: the machine, differences from the oracle, times, launches, waits and memory."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-3}
"""Of the largest number of the oracle's tensor. The oracle is float64 on the processor, from the same rounded data."""
ROUNDS, ROUND = 3, 0.03
"""Rounds of a time, and seconds that a round lasts at least; the median counts."""


def machine(device: str) -> dict[str, Any]:
    """The GPU and the versions."""
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    found |= {"cuda": torch.version.cuda, "cpu": _processor(), "cudnn": None}
    for name in ("triton", "jax", "scipy", "pandas"):
        found[name] = importlib.import_module(name).__version__ if name == "triton" and has(name) else has(name)
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        found |= {"gpu": about.name, "multiprocessors": about.multi_processor_count, "memory": about.total_memory}
        found |= {"cudnn": torch.backends.cudnn.version(), "capability": f"{about.major}.{about.minor}"}
    return found


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def prepare() -> None:
    """Stand-ins for scipy where it is missing, by which units draw weights, and for a fault of Triton's interpreter."""
    if not has("scipy"):
        from memsweep.models import initialization
        from memsweep.models.deep import unit_rnn

        initialization.truncated_normal = _truncated_normal
        unit_rnn.truncated_normal = _truncated_normal  # type: ignore[attr-defined]  # a name that it imports
    if os.environ.get("TRITON_INTERPRET") == "1":
        from triton.runtime import interpreter

        before = interpreter._patch_lang_tensor

        def patched(tensor: Any, scope: Any) -> None:
            before(tensor, scope)  # Triton 3.6 reads a scalar as numpy before 2.5 allowed it
            scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

        interpreter._patch_lang_tensor = patched


def _truncated_normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """As ``initialization.truncated_normal``, by torch's functions where scipy is missing: nearly the same numbers."""
    low = torch.special.ndtr(torch.tensor(-2.0, dtype=torch.float64))
    drawn = torch.special.ndtri(low + (1.0 - 2.0 * low) * torch.from_numpy(rng.uniform(size=shape)))
    return drawn.numpy()


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def is_well(device: str) -> bool:
    """Whether the device still answers: an error of CUDA stays until its process ends."""
    try:
        synchronize(device)
        return device != "cuda" or float(torch.ones(1, device=device).sum()) == 1.0
    except RuntimeError:
        return False


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def difference(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> float:
    """The largest difference of a pair of tensors, by the largest number of the expected one; NaN is infinite.

    A tensor that is nothing but roundings, such as the gradient of a weight that changes nothing, counts by the others.
    """
    pairs = [(one, other) for one, other in zip(found, expected, strict=True) if one is not None and other is not None]
    if len(pairs) < len(found) or any(one.shape != other.shape for one, other in pairs):
        return float("inf")
    wide = [tuple(_wide(each) for each in pair) for pair in pairs if pair[0].numel()]
    sizes = [float(other.abs().max()) for _, other in wide]
    least, worst = 1e-4 * max(sizes, default=1.0), 0.0
    for (one, other), size in zip(wide, sizes, strict=True):
        share = float((one - other).abs().max()) / max(size, least, 1e-30)
        worst = max(worst, share if share == share else float("inf"))
    return worst


def _wide(values: Tensor) -> Tensor:
    return values.detach().cpu().to(torch.complex128 if values.is_complex() else torch.float64)


def same_bits(found: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, others, strict=True))


def milliseconds(work: Callable[[], object], device: str, longest: float = 1.0) -> float:
    """Of one call, on the clock: calls follow one another, and the device is waited for at the end of a round.

    Args:
        work: called once before, which compiles.
        device: cuda or cpu.
        longest: seconds of all rounds: a long call is timed fewer times.
    """
    work()
    synchronize(device)
    once = _round(work, device, 1)
    repeats = max(1, int(ROUND / max(once, 1e-6)))
    rounds = max(1, min(ROUNDS, int(longest / max(once * repeats, 1e-6))))
    times = sorted([_round(work, device, repeats) for _ in range(rounds)] if once < longest else [once])
    return round(1e3 * times[len(times) // 2], 5)


def _round(work: Callable[[], object], device: str, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    synchronize(device)
    return (time.perf_counter() - start) / repeats


def launches(work: Callable[[], object], device: str) -> int | None:
    """Kernels, copies and fills that one call sends to the GPU; None on a processor."""
    if device != "cuda":
        return None
    from torch.profiler import ProfilerActivity, profile

    work()
    synchronize(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        synchronize(device)
    starts = ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphLaunch")
    return sum(event.count for event in seen.key_averages() if event.key.startswith(starts))


def waits(work: Callable[[], object], device: str) -> int | None:
    """How often one call waits for the GPU; None on a processor."""
    if device != "cuda":
        return None
    work()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(each.message) for each in told)


def peak_mib(work: Callable[[], object], device: str) -> float | None:
    """The largest memory, in MiB, of the tensors that one call makes; None on a processor."""
    if device != "cuda":
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    synchronize(device)
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 3)


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers on the processor."""
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
