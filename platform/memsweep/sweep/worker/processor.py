"""The class of a processor: processors of one class compute the same bits with the same software versions."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

_DECIDING = frozenset(
    {"avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd", "avx512_vnni"}
    | {"avx512_bf16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm"}
)
"""Instruction sets by which torch, its matrix libraries, numpy and our kernels choose their code."""


@functools.cache
def processor() -> dict[str, str]:
    """The properties of this processor by which libraries choose their code.

    Returns:
        ``model`` (with family, model and stepping, by which matrix libraries choose), ``instructions`` (those that
        decide), and ``torch`` (the set that torch has chosen, which ``ATEN_CPU_CAPABILITY`` may lower).
    """
    import torch

    info = _cpuinfo()
    numbers = " ".join(info[key] for key in ("cpu family", "model", "stepping") if key in info)
    flags = _DECIDING.intersection(info.get("flags", info.get("Features", "")).split())
    return {
        "model": f"{model_name()} {numbers}".strip(),
        "instructions": " ".join(sorted(flags)),
        "torch": torch.backends.cpu.get_cpu_capability(),
    }


def model_name() -> str:
    """The name that the processor gives itself: ``AMD EPYC ...``."""
    return _cpuinfo().get("model name") or platform.machine()


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """The description of the first processor by Linux; empty on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


@functools.cache
def kernel_build(real: str) -> str:
    """The compiled library for numbers of this C++ type, as a hash of its sources, compiler and target."""
    from memsweep.recurrence.compiled.build import library_path

    return library_path(real).stem.rpartition("-")[2]
