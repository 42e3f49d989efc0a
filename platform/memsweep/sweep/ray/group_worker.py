"""One of several workers of a pack: takes orders from the desk, computes its share of each, delivers what it found."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.sweep.ray.coordinator import Delivery, Order
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.retry import patient
from memsweep.sweep.worker import provenance
from memsweep.sweep.worker.failure import TimeLimitError, failure_of
from memsweep.sweep.worker.guards import ShareFailedError, can_go_on, computing
from memsweep.sweep.worker.memory import memory_limit, peak_memory
from memsweep.sweep.worker.throttle import throttled
from memsweep.sweep.worker.timing import Phases

if TYPE_CHECKING:
    from memsweep.sweep.worker.execute import PackJob
    from memsweep.trial import WorkerRank


def work(config: dict[str, Any]) -> None:
    """Ray Train's function: runs in every worker process, until the desk has no more orders.

    Args:
        config: ``desk``, the actor; ``job``, the pack.
    """
    import ray
    import ray.train

    desk, job = config["desk"], config["job"]
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    threading.Thread(target=_end_with, args=(desk,), name="memsweep desk", daemon=True).start()
    registry.discover(Path(job.workspace))
    number = 0
    with memory_limit(job.memory), patient():
        while (order := ray.get(desk.order.remote(number))) is not None:
            number += 1
            delivery = _delivery(job, order, rank, workers, desk)
            ray.get(desk.deliver.remote(rank, delivery))
            if delivery.failure is not None:
                raise ShareFailedError(delivery.failure, delivery.can_go_on)  # the whole team is to end


def _end_with(desk: Any) -> None:
    """End this process when the desk closes while it computes: nobody wants what it would find."""
    import ray
    from ray.exceptions import RayError

    with contextlib.suppress(RayError):  # the desk is gone, and so is, or will be, everything about it
        ray.get(desk.closed.remote())
        os._exit(1)


def _delivery(job: PackJob, order: Order, rank: int, workers: int, desk: Any) -> Delivery:
    def hung(error: TimeLimitError, stack: str) -> None:
        """The end of this process, which does not hear that its time is over; the desk is told why."""
        try:
            ray.get(desk.deliver.remote(rank, _failed(error, rank, workers, stack)), timeout=10)
        finally:
            os._exit(1)

    def told(fraction: float) -> None:
        desk.tell.remote(rank, float(fraction), peak_memory())

    import ray

    from memsweep.learning.parallel.process_group import WorkerLostError
    from memsweep.trial import RunOptions, run_replicas

    phases, slots = Phases(), job.slots(order.names)
    try:
        with computing(job, len(order.names), hung) as undisturbed:
            options = RunOptions(
                worker=_worker_rank(job, rank, workers),
                shards=job.arithmetic.shards,
                checkpoint=Store(job.folder).slot(slots[rank % len(slots)]),
                progress=undisturbed(throttled(told)),
                padded=order.padded,
                device=job.arithmetic.device,
                phase=phases.phase,
            )
            findings = run_replicas([trial_from_dict(config) for config in order.configs], options)
    except WorkerLostError:  # another worker's end, which is its own to explain; the team starts anew
        raise
    except BaseException as error:  # foreign code may raise anything
        return _failed(error, rank, workers)
    origin = provenance.collect(
        job.revision, seconds=phases.seconds, pack=list(order.names), device=job.arithmetic.device
    )
    return Delivery(findings, origin | {"threads": job.threads})


def _worker_rank(job: PackJob, rank: int, workers: int) -> WorkerRank:
    from memsweep.trial import WorkerRank

    if job.arithmetic.shards == 1:
        return WorkerRank(rank, workers)
    from memsweep.learning.parallel.process_group import TorchProcessGroup

    return WorkerRank(rank, workers, TorchProcessGroup())


def _failed(error: BaseException, rank: int, workers: int, stack: str = "") -> Delivery:
    hint = f"in worker {rank + 1} of {workers}, on {socket.gethostname()}"
    return Delivery(failure=failure_of(error, hint=hint, stack=stack), can_go_on=can_go_on(error))
