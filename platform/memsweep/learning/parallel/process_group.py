"""Workers that train one pack in step: messages reach all processes, in the order of their ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


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
