"""The recurrences of matrix states alone, forward and backward: compiled, in chunks of torch, and beside a copy.

A number is one of the state. Copies are of as many numbers in memory as the state has in all steps: what a recurrence
that keeps its states would at least take. The compiled one keeps them in the cache. Rows of few heads and sequences
also have chunks in JAX (the extra ``bench``), compiled whole by XLA; keys that fade by themselves are left out there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.steps import peers_jax
from memsweep.recurrence.matrix.chunks import CHUNK, generalised_in_chunks, states_in_chunks
from memsweep.recurrence.matrix.states import generalised_delta, matrix_states

HORIZON, HEADS = 256, 32
SIZES = (8, 32, 128)
FEW, FEW_SIZES = (1, 2, 4, 16), (16, 32, 64)
"""Heads and sequences beside JAX, and their keys."""
DECAYS = ("none", "head", "key")
PLAIN, DELTA, GENERAL = "nothing", "the key's", "generalised"
"""The share that a step erases."""
COMPILED, CHUNKS, COPY, JAX = "compiled", "chunks", "copy", "jax"


def drawn(decay: str, erases: str, horizon: int, size: int, heads: int = HEADS) -> list[Any]:
    """Arguments of the recurrence in their order, float32, with unit keys."""
    generator = torch.Generator().manual_seed(0)
    series = [torch.randn(heads, horizon, size, generator=generator) for _ in range(4)]
    query, key, value, erased = series
    key, read = torch.nn.functional.normalize(key, dim=-1), torch.nn.functional.normalize(erased, dim=-1)
    log_decay = -0.1 * torch.rand(heads, horizon, size if decay == "key" else 1, generator=generator)
    given: list[Any] = [query, key, value, None if decay == "none" else log_decay]
    if erases == GENERAL:
        given += [read, 0.5 * read]
    else:
        given += [torch.rand(heads, horizon, 1, generator=generator) if erases == DELTA else None]
    return [None if part is None else part.requires_grad_() for part in (*given, torch.zeros(heads, size, size))]


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


def in_chunks_of_jax(
    query: Any, key: Any, value: Any, log_decay: Any, rate: Any, start: Any, *, length: int = CHUNK
) -> Any:
    """Answers of ``states_in_chunks`` with at most one decay of a head, by the same equations."""
    import jax
    import jax.numpy as jnp

    def cut(series: Any) -> Any:
        return series.reshape(len(series), -1, length, series.shape[-1])

    queries, keys, values = cut(query), cut(key), cut(value)
    total = jnp.zeros_like(queries[..., :1]) if log_decay is None else cut(log_decay).cumsum(2)
    below = jnp.tril(jnp.ones((length, length), bool))
    fading = jnp.exp(jnp.where(below, total - total.mT, -jnp.inf))
    shown, faded = (queries @ keys.mT) * fading, jnp.exp(total)
    kept, seen = keys * jnp.exp(total[:, :, -1:] - total), jnp.zeros_like(keys)
    if rate is not None:
        given = jnp.concatenate([values, keys * faded], -1) * cut(rate)
        system = jnp.tril((keys @ keys.mT) * fading, -1) * cut(rate)
        solved = jax.scipy.linalg.solve_triangular(system, given, lower=True, unit_diagonal=True)
        values, seen = jnp.split(solved, [values.shape[-1]], -1)

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        new, gone, show, keep, recall, fade = now
        if rate is not None:
            new = new - gone @ state.mT
        return new.mT @ keep + state * fade, show @ new + recall @ state.mT

    series = (values, seen, shown, kept, queries * faded, faded[:, :, -1:])
    _, answers = jax.lax.scan(step, start, tuple(each.swapaxes(0, 1) for each in series))
    return answers.swapaxes(0, 1).reshape(value.shape)


def by_jax(given: list[Any]) -> Callable[[], list[Any]]:
    """``work_of`` in JAX."""
    import jax
    import jax.numpy as jnp

    arrays = [None if part is None else jnp.asarray(part.detach().numpy()) for part in given]
    outer = jnp.asarray(torch.randn(given[2].shape, generator=torch.Generator().manual_seed(1)).numpy())
    live = [index for index, part in enumerate(given) if part is not None]
    derived = jax.jit(jax.grad(lambda *parts: (outer * in_chunks_of_jax(*parts)).sum(), argnums=live))
    return lambda: jax.block_until_ready(derived(*arrays))


def few(decay: str, erases: str, size: int, heads: int, horizon: int, pairs: int) -> Row:
    """One row of few heads and sequences; gradients of all sides are found equal first."""
    given = drawn(decay, erases, horizon, size, heads)
    sides: dict[str, Callable[[], Any]] = {
        COMPILED: work_of(matrix_states, given),
        CHUNKS: work_of(states_in_chunks, given),
        JAX: by_jax(given),
    }
    for peer in (CHUNKS, JAX):
        for one, other in zip(sides[COMPILED](), sides[peer](), strict=True):
            expected = torch.from_numpy(np.array(other))
            torch.testing.assert_close(one, expected, rtol=0.0, atol=1e-3 * float(expected.abs().max()))
    times = harness.alternate(sides, pairs=pairs)
    row: Row = {"keys": size, "decay": decay, "erases": erases, "heads_and_sequences": heads}
    row["milliseconds"] = 1e3 * harness.median(times[COMPILED])
    return row | {f"of_{peer}": harness.ratio(times[peer], times[COMPILED]) for peer in (CHUNKS, JAX)}


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
    if peers_jax.installed():
        horizon, sizes, heads = (32, (8,), (2,)) if options.quick else (HORIZON, FEW_SIZES, FEW)
        for decay, erases, size, many in product(DECAYS[:2], (PLAIN, DELTA), sizes, heads):
            if options.wants({"keys": size, "decay": decay, "erases": erases, "heads_and_sequences": many}):
                rows.append(few(decay, erases, size, many, horizon, pairs))
                harness.tell(rows[-1])
    harness.publish("matrix_states", settings, rows, options)
