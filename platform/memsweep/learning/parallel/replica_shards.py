"""Replicas shared out over workers, without a change of any number: every ensemble keeps its shape and its rows.

A worker computes the ensembles that hold replicas of its own, in the shape that one worker would use; the rows of
other workers' replicas are dummies to it. A row's bits do not depend on the other rows of its shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble

Shard = list[tuple[int, range]]
"""Replicas of one worker: positions of ensembles, and rows in each."""


def shard_replicas(sizes: Sequence[int], workers: int, dummies_are_free: bool) -> list[Shard]:
    """The replicas of each worker.

    Args:
        sizes: replicas of each ensemble.
        workers: number of workers.
        dummies_are_free: kernels skip rows that are no replica of the worker, so an ensemble may be cut anywhere.
            Otherwise a part of an ensemble takes as long as all of it: workers get whole ensembles where there are
            enough, and as few of them as possible.
    """
    if dummies_are_free:
        return _cut(list(enumerate(map(range, sizes))), workers)
    if len(sizes) >= workers:
        indices = torch.arange(len(sizes)).tensor_split(workers)
        return [[(int(index), range(sizes[index])) for index in own] for own in indices]
    counts = _workers_per_ensemble(sizes, workers)
    return [
        own
        for index, (size, count) in enumerate(zip(sizes, counts, strict=True))
        for own in _cut([(index, range(size))], count)
    ]


def _cut(rows: Shard, workers: int) -> list[Shard]:
    """Cut rows in order into shards whose sizes differ by at most one."""
    total = sum(len(own) for _, own in rows)
    ends = [total * (rank + 1) // workers for rank in range(workers)]
    shards: list[Shard] = []
    for begin, end in zip([0, *ends], ends, strict=False):
        shards.append([])
        start = 0
        for index, own in rows:
            piece = own[max(0, begin - start) : max(0, end - start)]
            if len(piece):
                shards[-1].append((index, piece))
            start += len(own)
    return shards


def _workers_per_ensemble(sizes: Sequence[int], workers: int) -> list[int]:
    """One worker for each ensemble; each further one where a worker has the most replicas."""
    counts = [1] * len(sizes)
    for _ in range(workers - len(sizes)):
        fullest = max(range(len(sizes)), key=lambda index: sizes[index] / counts[index])
        counts[fullest] += 1
    return counts


def restrict(ensemble: Ensemble, rows: range) -> Ensemble:
    """The ensemble in which all rows but these are dummies."""
    indices = torch.arange(ensemble.rows, device=ensemble.real.device)
    own: Tensor = (indices >= rows.start) & (indices < rows.stop)
    return replace(ensemble, real=ensemble.real & own)
