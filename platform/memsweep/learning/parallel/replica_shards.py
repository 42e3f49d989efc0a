"""Replicas shared out over workers, without any other numbers: every ensemble keeps its shape and its rows.

A worker computes the ensembles that hold replicas of its own, as they are for one worker; the rows of the others' are
dummies to it. A row's bits do not depend on the other rows of its shape, so they are those of one worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble


def shared_out(sizes: Sequence[int], workers: int, dummies_are_free: bool) -> list[list[tuple[int, range]]]:
    """For each worker, its rows of ensembles: (position of the ensemble, rows).

    Args:
        sizes: replicas of each ensemble.
        workers: how many share them.
        dummies_are_free: what is no replica of the worker's own is passed over, so that an ensemble may be cut
            anywhere. Else whole ensembles are shared out as far as there are enough, and no worker touches more of
            them than it must: a part of an ensemble takes as long as all of it.
    """
    if dummies_are_free:
        return _cut(list(enumerate(map(range, sizes))), workers)
    if len(sizes) >= workers:
        places = torch.arange(len(sizes)).tensor_split(workers)
        return [[(int(place), range(sizes[place])) for place in own] for own in places]
    counts = _dealt(sizes, workers)
    return [
        own
        for place, (size, count) in enumerate(zip(sizes, counts, strict=True))
        for own in _cut([(place, range(size))], count)
    ]


def _cut(rows: Sequence[tuple[int, range]], workers: int) -> list[list[tuple[int, range]]]:
    """As many rows for each worker, give or take one, in order."""
    whole = sum(len(own) for _, own in rows)
    ends = [whole * (rank + 1) // workers for rank in range(workers)]
    found: list[list[tuple[int, range]]] = []
    for begin, end in zip([0, *ends], ends, strict=False):
        found.append([])
        start = 0
        for place, own in rows:
            piece = own[max(0, begin - start) : max(0, end - start)]
            if len(piece):
                found[-1].append((place, piece))
            start += len(own)
    return found


def _dealt(sizes: Sequence[int], workers: int) -> list[int]:
    """Workers for each ensemble: one for all, and each more where most replicas are left to one worker."""
    counts = [1] * len(sizes)
    for _ in range(workers - len(sizes)):
        fullest = max(range(len(sizes)), key=lambda place: sizes[place] / counts[place])
        counts[fullest] += 1
    return counts


def restricted(ensemble: Ensemble, rows: range) -> Ensemble:
    """The ensemble in which all rows but these are dummies."""
    places = torch.arange(ensemble.rows, device=ensemble.real.device)
    mine: Tensor = (places >= rows.start) & (places < rows.stop)
    return replace(ensemble, real=ensemble.real & mine)
