"""The recurrences of matrix states alone, forward and backward: compiled, in chunks of torch, and beside a copy.

A number is one of the state. Copies are of as many numbers in memory as the state has in all steps: what a recurrence
that keeps its states would at least take. The compiled one keeps them in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.harness import Options, Row
from memsweep.recurrence.matrix.chunks import generalised_in_chunks, states_in_chunks
from memsweep.recurrence.matrix.states import generalised_delta, matrix_states

HORIZON, HEADS = 256, 32
SIZES = (8, 32, 128)
DECAYS = ("none", "head", "key")
PLAIN, DELTA, GENERAL = "nothing", "the key's", "generalised"
"""The share that a step erases."""
COMPILED, CHUNKS, COPY = "compiled", "chunks", "copy"


def drawn(decay: str, erases: str, horizon: int, size: int) -> list[Any]:
    """Arguments of the recurrence in their order, float32, with unit keys."""
    generator = torch.Generator().manual_seed(0)
    series = [torch.randn(HEADS, horizon, size, generator=generator) for _ in range(4)]
    query, key, value, erased = series
    key, read = torch.nn.functional.normalize(key, dim=-1), torch.nn.functional.normalize(erased, dim=-1)
    log_decay = -0.1 * torch.rand(HEADS, horizon, size if decay == "key" else 1, generator=generator)
    given: list[Any] = [query, key, value, None if decay == "none" else log_decay]
    if erases == GENERAL:
        given += [read, 0.5 * read]
    else:
        given += [torch.rand(HEADS, horizon, 1, generator=generator) if erases == DELTA else None]
    return [None if part is None else part.requires_grad_() for part in (*given, torch.zeros(HEADS, size, size))]


def work_of(way: Callable[..., tuple[Tensor, Tensor]], given: list[Any]) -> Callable[[], object]:
    """One pass forward and backward."""
    live = [part for part in given if part is not None]
    outer = torch.randn(given[2].shape, generator=torch.Generator().manual_seed(1))
    return lambda: torch.autograd.grad(way(*given)[0], live, outer)


def row_of(decay: str, erases: str, size: int, horizon: int, pairs: int) -> Row:
    given = drawn(decay, erases, horizon, size)
    compiled, chunks = (
        (generalised_delta, generalised_in_chunks) if erases == GENERAL else (matrix_states, states_in_chunks)
    )
    torch.testing.assert_close(compiled(*given)[0], chunks(*given)[0], rtol=1e-3, atol=1e-4)
    source = torch.zeros(HEADS * min(horizon, 4096 * 256 // size**2) * size**2)  # large, and far from all of memory
    target = torch.empty_like(source)
    sides = {COMPILED: work_of(compiled, given), CHUNKS: work_of(chunks, given), COPY: partial(target.copy_, source)}
    times = harness.alternate(sides, pairs=pairs)
    numbers = HEADS * horizon * size**2
    row: Row = {"keys": size, "decay": decay, "erases": erases, "milliseconds": 1e3 * harness.median(times[COMPILED])}
    copies = harness.ratio(times[COMPILED], times[COPY]) * len(source) / numbers
    return row | {"of_chunks": harness.ratio(times[CHUNKS], times[COMPILED]), "copies": copies}


def run(options: Options) -> None:
    """Print and write the table."""
    harness.one_thread()
    sizes, horizon, pairs = ((8,), 16, 1) if options.quick else (SIZES, HORIZON, harness.PAIRS)
    cases = [(decay, erases) for erases in (PLAIN, DELTA) for decay in DECAYS] + [("key", GENERAL)]
    rows = [
        row_of(decay, erases, size, horizon, pairs)
        for size in sizes
        for decay, erases in cases
        if options.wants({"keys": size, "decay": decay, "erases": erases})
    ]
    settings: Row = {"horizon": horizon, "heads_and_sequences": HEADS, "dtype": "float32", "values": "as many as keys"}
    harness.publish("matrix_states", settings, rows, options)
