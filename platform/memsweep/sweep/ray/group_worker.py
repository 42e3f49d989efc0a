"""One of several workers of a pack: takes assignments from the coordinator, computes its share, reports the result."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.models.module.in_memory import put_all
from memsweep.sweep.planning.reuse import stored_trainings
from memsweep.sweep.ray.coordinator import Assignment, WorkerResult
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.retry import storage_retries
from memsweep.sweep.worker import provenance
from memsweep.sweep.worker.execute import PackJob, guarded
from memsweep.sweep.worker.failure import GroupFailedError, can_resume, failure_of
from memsweep.sweep.worker.limits import TimeLimitError, memory_limit, peak_memory
from memsweep.sweep.worker.timing import Phases, telling, throttled

if TYPE_CHECKING:
    from memsweep.trial import WorkerRank


def run_assignments(config: dict[str, Any]) -> None:
    """Ray Train's function: runs in every worker process, until the coordinator has no more assignments.

    Args:
        config: ``coordinator``, the actor; ``job``, the first pack, whose request those that follow share.
    """
    import ray
    import ray.train

    coordinator, job = config["coordinator"], config["job"]
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    threading.Thread(target=_exit_on_abort, args=(coordinator,), name="memsweep abort", daemon=True).start()
    registry.discover(Path(job.workspace))
    number = 0
    with memory_limit(job.memory), storage_retries():
        while (assignment := ray.get(coordinator.assignment.remote(number))) is not None:
            number += 1
            put_all(assignment.job.code)
            result = _result(assignment, rank, workers, coordinator)
            ray.get(coordinator.report_result.remote(rank, result))
            if result.failure is not None:
                raise GroupFailedError(result.failure, result.can_resume)  # ends the whole group


def _exit_on_abort(coordinator: Any) -> None:
    """End this process in the middle of a computation whose result is no longer needed."""
    import ray
    from ray.exceptions import RayError

    with contextlib.suppress(RayError):  # without its actor the group ends, too
        ray.get(coordinator.wait_for_abort.remote())
        os._exit(1)


def _result(assignment: Assignment, rank: int, workers: int, coordinator: Any) -> WorkerResult:
    import ray

    from memsweep.learning.parallel import WorkerLostError
    from memsweep.trial import RunOptions, run_replicas

    def on_hang(error: TimeLimitError, stack: str) -> None:
        """End this process, whose own thread does not react to its time limit, after a report."""
        try:
            ray.get(coordinator.report_result.remote(rank, _failed(error, rank, workers, stack)), timeout=10)
        finally:
            os._exit(1)

    def report(fraction: float) -> None:
        coordinator.report_progress.remote(rank, float(fraction), peak_memory())

    job = assignment.job
    phases, slots = Phases(), job.slots(assignment.names)
    try:
        with guarded(job, len(assignment.names), on_hang) as undisturbed:
            options = RunOptions(
                worker=_worker_rank(job, rank, workers),
                shards=job.arithmetic.shards,
                trained=stored_trainings(job.trained, assignment.names),
                checkpoint=Store(job.folder).slot(slots[rank % len(slots)]),
                progress=undisturbed(throttled(report)),
                padded=assignment.padded,
                device=job.arithmetic.device,
                phase=telling(phases.phase, undisturbed(report)),
            )
            measurements = run_replicas([trial_from_dict(config) for config in assignment.configs], options)
    except WorkerLostError:  # another worker died and reports why; the group starts again
        raise
    except BaseException as error:  # code of tasks and models may raise anything
        return _failed(error, rank, workers)
    origin = provenance.collect(
        job.revision, seconds=phases.seconds, pack=list(assignment.names), device=job.arithmetic.device
    )
    node = ray.get_runtime_context().get_node_id()
    return WorkerResult(measurements, origin | {"threads": job.threads}, node=node)


def _worker_rank(job: PackJob, rank: int, workers: int) -> WorkerRank:
    from memsweep.trial import WorkerRank

    if job.arithmetic.shards == 1:
        return WorkerRank(rank, workers)
    from memsweep.learning.parallel import ProcessGroup

    return WorkerRank(rank, workers, ProcessGroup())


def _failed(error: BaseException, rank: int, workers: int, stack: str = "") -> WorkerResult:
    hint = f"in worker {rank + 1} of {workers}, on {socket.gethostname()}"
    return WorkerResult(failure=failure_of(error, hint=hint, stack=stack), can_resume=can_resume(error))
