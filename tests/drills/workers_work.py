"""One worker of a group of two: trains a trial on its part of every batch, and keeps the weights of every step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from engine import trial
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.loss.batch_sharding import WorkersDisagreeError
from memsweep.learning.parallel import ProcessGroup
from memsweep.trial import RunOptions, WorkerRank, results_of, run_replicas

TRAINING = {"seeds": 2, "steps": 9, "batch_size": 7, "validation_size": 16, "validate_every": 3, "checkpoint_every": 1}


def config(activation: str) -> TrialConfig:
    """The trial."""
    return trial(
        task={"horizon": 8},
        model={"activation": activation},
        training=TRAINING,
        perturbation={"starts": 0, "ascent_steps": 2, "test_size": 16},
    )


class Kept:
    """A checkpoint's place: a folder with a file for every state that was written, the last of which can be read.

    Args:
        most: states after which the process is to fail; 0 for never.
    """

    def __init__(self, folder: Path, most: int = 0) -> None:
        self.folder, self.most = folder, most

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.pt"))

    def read(self, most: int) -> bytes | None:
        files = self._files()
        return files[-1].read_bytes() if files else None

    def write(self, data: bytes) -> None:
        (self.folder / f"{len(self._files()):03}.pt").write_bytes(data)
        if len(self._files()) == self.most:
            raise SystemExit("the power is off")

    def delete(self) -> None:
        """It keeps them."""


class Drifting(ProcessGroup):
    """A worker whose numbers are those of another kind of processor from the fifth sum on."""

    sums = 0

    def gather(self, own: torch.Tensor) -> list[torch.Tensor]:
        self.sums += 1
        if self.rank and self.sums == 5:
            own = own.clone()
            own[-1:].view(torch.int64)[0] += 1
        return super().gather(own)


def main(rank: int, folder: Path, activation: str, how: str) -> None:
    torch.set_num_threads(1)
    backend, device = {"nccl": ("nccl", "cuda"), "shared card": ("gloo", "cuda")}.get(how, ("gloo", "cpu"))
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    distributed.init_process_group(backend, init_method=f"file://{folder}/meet.{how}", rank=rank, world_size=2)
    options: dict[str, Any] = {"shards": 2, "checkpoint": Kept(folder, 4 if how == "cut off" and rank == 0 else 0)}
    options["device"] = device
    group = Drifting() if how == "apart" else ProcessGroup()
    try:
        found = run_replicas([config(activation)], RunOptions(worker=WorkerRank(rank, 2, group), **options))
        torch.save(found, folder / f"found.{rank}")
    except WorkersDisagreeError as error:
        (folder / f"apart.{rank}").write_text(str(error))
    finally:
        distributed.destroy_process_group()  # else gloo's threads may abort the process on its way out


def results(folder: Path, activation: str) -> Any:
    """The trial's result, from what both workers found."""
    found = [finding for rank in (0, 1) for finding in torch.load(folder / f"found.{rank}", weights_only=False)]
    return results_of([config(activation)], found)[0]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
