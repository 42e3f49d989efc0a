"""What a process does around the computation of trials, whether it computes them whole or a share of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memsweep.errors import StoreError
from memsweep.sweep.worker.failure import Failure, TimeLimitError, is_memory
from memsweep.sweep.worker.gpu_memory import hold_to
from memsweep.sweep.worker.isolation import isolated, original_only
from memsweep.sweep.worker.memory import forget_peak
from memsweep.sweep.worker.time_limit import OnHang, Report, time_limit

if TYPE_CHECKING:
    from memsweep.sweep.worker.execute import PackJob


class ShareFailedError(Exception):
    """What a worker of a team ran has failed; its failure is known as plain data.

    Attributes:
        failure: what it was.
        can_go_on: see ``can_go_on``.
    """

    def __init__(self, failure: Failure, can_go_on: bool) -> None:
        super().__init__(failure, can_go_on)
        self.failure, self.can_go_on = failure, can_go_on


def can_go_on(error: BaseException) -> bool:
    """Whether a checkpoint may help the next try: time, memory or storage were lacking, and the code was not wrong."""
    if isinstance(error, ShareFailedError):
        return error.can_go_on
    return isinstance(error, TimeLimitError | StoreError | OSError) or is_memory(error)


@contextmanager
def computing(job: PackJob, trials: int, on_hang: OnHang) -> Iterator[Callable[[Report], Report]]:
    """The body computes trials of a pack: its settings are put back, and it is watched.

    Args:
        job: the pack: threads, time limit of one trial, and room on the GPU.
        trials: how many there are.
        on_hang: the end of this process where nobody hears that its time is over; see
            ``memsweep.sweep.worker.time_limit``.

    Returns:
        A function that makes a callback one that the time limit does not interrupt.
    """
    import torch

    forget_peak()
    with isolated():
        torch.set_num_threads(job.threads)
        hold_to(job.card_bytes)
        with time_limit(job.time_limit, trials, on_hang) as undisturbed, original_only():
            yield undisturbed
