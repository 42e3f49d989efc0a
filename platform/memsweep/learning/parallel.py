"""One pack on several workers: replicas or data are divided, and sums keep the order of the parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble


class WorkerLostError(RuntimeError):
    """A worker of the process group does not answer: it died, or is at another step."""


class ProcessGroup:
    """The processes of torch's default process group, which must be initialized; all run the same training.

    All of them call every method, in the same order.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
    """

    def __init__(self) -> None:
        from torch import distributed

        self._distributed = distributed
        self.rank: int = distributed.get_rank()
        self.size: int = distributed.get_world_size()
        # gloo gathers tensors in main memory only; NCCL those of a GPU only
        self._device = "cuda" if distributed.get_backend() == "nccl" else "cpu"

    def gather(self, own: Tensor) -> list[Tensor]:
        """The tensors of all processes, of one shape and type, in the order of the ranks."""
        sent = own.to(self._device).contiguous()
        tensors = [torch.empty_like(sent) for _ in range(self.size)]
        with _lost_worker_reported():
            self._distributed.all_gather(tensors, sent)
        return [tensor.to(own.device) for tensor in tensors]

    def broadcast(self, content: bytes | None) -> bytes | None:
        """The content that rank 0 gives; the others' contents are ignored."""
        contents = [content if self.rank == 0 else None]
        with _lost_worker_reported():
            self._distributed.broadcast_object_list(contents, src=0, device=torch.device(self._device))
        return contents[0]


@contextmanager
def _lost_worker_reported() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # all of torch's backends raise it
        raise WorkerLostError(f"a worker of the process group does not answer: {error}") from error


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
