"""The most that this core can do: multiply-adds in registers, and a copy, by loops of our own in C++.

They share no code with any library or kernel that is measured. A matrix product of a library is no peak: it may use
shorter vectors than the core has, and then kernels seem to do more than is possible.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from memsweep.recurrence.compiled.compiler import compiler

CHAINS = 24
"""Vectors that the loop works on in turn: more than latency times units, and they fit the registers."""
_ALL = range(CHAINS)
_SOURCE = f"""
#include <cstddef>
#if defined(__AVX512F__)
constexpr size_t WIDE = 64;
#elif defined(__AVX__)
constexpr size_t WIDE = 32;
#else
constexpr size_t WIDE = 16;
#endif
template <typename real> static long multiply_adds(long rounds, real* out) {{
    typedef real vector __attribute__((vector_size(WIDE)));
    vector scale, shift;
    for (size_t i = 0; i < WIDE / sizeof(real); ++i) {{ scale[i] = out[0]; shift[i] = out[1]; }}
    vector {", ".join(f"s{k} = shift" for k in _ALL)};
    for (long round = 0; round < rounds; ++round) {{
        {" ".join(f's{k} = s{k} * scale + shift; asm volatile("" : "+v"(s{k}));' for k in _ALL)}
    }}
    vector sum = {" + ".join(f"s{k}" for k in _ALL)};
    for (size_t i = 0; i < WIDE / sizeof(real); ++i) out[0] += sum[i];
    return rounds * {CHAINS} * long(WIDE / sizeof(real)) * 2;
}}
extern "C" long run_double(long rounds, double* out) {{ return multiply_adds(rounds, out); }}
extern "C" long run_float(long rounds, float* out) {{ return multiply_adds(rounds, out); }}
extern "C" void copy(const double* from, double* to, long count) {{
    for (long i = 0; i < count; ++i) to[i] = from[i];
}}
"""


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="memsweep-roof-") as name:
        source, built = Path(name) / "roof.cpp", Path(name) / "roof.so"
        source.write_text(_SOURCE, encoding="utf-8")
        flags = ("-O3", "-march=native", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC")
        subprocess.run([compiler(), *flags, str(source), "-o", str(built)], check=True)
        return ctypes.CDLL(str(built))


def multiply_adds(dtype: torch.dtype, rounds: int) -> int:
    """Runs so many rounds of multiply-adds in registers.

    Returns:
        How many operations they are; one multiply and add are two.

    Raises:
        RuntimeError: the loop did not compute what it should.
    """
    real = "double" if dtype == torch.float64 else "float"
    function = getattr(_library(), f"run_{real}")
    function.restype, function.argtypes = ctypes.c_long, (ctypes.c_long, ctypes.c_void_p)
    values = torch.tensor([0.5, 1.0], dtype=dtype)
    operations = int(function(rounds, values.data_ptr()))
    lanes = operations // (2 * rounds)
    if rounds > 64 and abs(float(values[0]) - 0.5 - 2.0 * lanes) > 1e-3 * lanes:  # x = x / 2 + 1 ends at 2
        raise RuntimeError(f"the sum of {lanes} numbers is {float(values[0])}")
    return operations


def copy(source: Tensor, target: Tensor) -> None:
    """Copies float64 numbers, one after another, as the compiler makes it of a plain loop."""
    function = _library().copy
    function.restype, function.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    function(source.data_ptr(), target.data_ptr(), source.numel())
