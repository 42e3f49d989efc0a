"""Workers that train one pack in step: what each says reaches all, in the order of their ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from memsweep.learning.state.checkpoints import Slot


class ProcessGroup(Protocol):
    """Processes that run the same training side by side; every method is called by all of them, in the same order.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
    """

    rank: int
    size: int

    def gathered(self, mine: Tensor) -> list[Tensor]:
        """Everybody's tensor, of one shape and type, in the order of the ranks."""

    def told(self, said: bytes | None) -> bytes | None:
        """What the process of rank 0 said; the others' words do not count."""


class CrewLostError(RuntimeError):
    """A worker of the crew does not answer: it died, or is not where the others are."""


class GroupCrew:
    """The processes of torch's default process group; it has to be there."""

    def __init__(self) -> None:
        from torch import distributed

        self._distributed = distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        # gloo gathers tensors in main memory only; NCCL those of a card only
        self._carrier = "cuda" if distributed.get_backend() == "nccl" else "cpu"

    def gathered(self, mine: Tensor) -> list[Tensor]:
        sent = mine.to(self._carrier).contiguous()
        found = [torch.empty_like(sent) for _ in range(self.size)]
        with _answered():
            self._distributed.all_gather(found, sent)
        return [tensor.to(mine.device) for tensor in found]

    def told(self, said: bytes | None) -> bytes | None:
        box = [said if self.rank == 0 else None]
        with _answered():
            self._distributed.broadcast_object_list(box, src=0, device=torch.device(self._carrier))
        return box[0]


@contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of torch's backends, all of them
        raise CrewLostError(f"a worker of the crew does not answer: {error}") from error


class ProcessGroupSlot:
    """A checkpoint's place for a whole crew: rank 0 reads it for all, and is the only one that writes."""

    def __init__(self, slot: Slot, crew: ProcessGroup) -> None:
        self._slot, self._crew = slot, crew

    def __str__(self) -> str:
        return str(self._slot)

    def read(self, most: int) -> bytes | None:
        """See ``Slot``. A fault of the place is rank 0's to raise: the others hear that nothing is kept.

        They must not go on from different steps, so what rank 0 could not read is not there for it, either.
        """
        said, fault = None, None
        if self._crew.rank == 0:
            try:
                said = self._slot.read(most)
            except Exception as error:  # the others wait for word, whatever happened here
                fault = error
        heard = self._crew.told(said)
        if fault is not None:
            raise fault
        return heard

    def write(self, data: bytes) -> None:
        if self._crew.rank == 0:
            self._slot.write(data)

    def delete(self) -> None:
        if self._crew.rank == 0:
            self._slot.delete()
