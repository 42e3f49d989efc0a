"""The workers of a pack: Ray Train starts them with the first assignment, and they wait a moment for the next pack.

A group that waits keeps its resources. It ends after a few seconds whatever others do, and no process asks for a group
before its last one has ended. So nothing waits for ever for what a group without a pack holds.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.ray.coordinator import Assignment, Coordinator, GroupState, WorkerResult
from memsweep.sweep.ray.group_worker import run_assignments
from memsweep.sweep.ray.private import draining_nodes, placement_groups
from memsweep.sweep.ray.scratch import scratch_folder
from memsweep.sweep.worker.execute import PackJob
from memsweep.sweep.worker.failure import GroupFailedError, StoppedError

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.trial import TrialResult

_STATE_INTERVAL = 1.0  # seconds between two questions for the state of an assignment
_ENVIRONMENT = {
    # seconds in which all workers must have started: their pack starts only if there is room for them
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # it costs a process; a lost worker is replaced anyway
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
}
"""Ray Train's settings, unless they are set already."""
_KEPT_SECONDS = 5.0  # for which a group without a pack keeps its resources; it takes half a minute to start another
_IN_STEP_TIMEOUT = 1800  # seconds that a worker waits for the others in the middle of a step


class WorkerGroupLostError(StoppedError):
    """A worker died, or the group could not start; its progress is in the checkpoints.

    Attributes:
        cause: Ray's error.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class WorkerGroup:
    """The workers of a pack; a context manager at whose end they wait for the next pack of this process.

    Args:
        job: the pack.
        resources: what each of its workers asks for.
    """

    def __init__(self, job: PackJob, resources: ResourcesConfig) -> None:
        self._job, self._resources = job, resources
        self._run: _TrainRun | None = None
        self.peak_memory = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None and self._run is not None:
            _KEPT.put(self._run)
        else:
            self._end()

    def __call__(
        self, names: Collection[str], configs: list[TrialConfig], progress: Callable[[float], None], *, padded: bool
    ) -> tuple[list[TrialResult], dict[str, Any]]:
        """Trials of one program, computed by all workers together; see ``memsweep.sweep.worker.execute.Together``.

        Raises:
            GroupFailedError: one of the workers raised an error.
            WorkerGroupLostError: one of them died.
        """
        from memsweep.trial import results_of

        assignment = Assignment(self._job, tuple(names), tuple(to_dict(config) for config in configs), padded)
        try:
            results = self._results(assignment, progress)
        except BaseException:
            self._end()
            raise
        measurements = [measurement for result in results for measurement in result.measurements]
        return results_of(configs, measurements), _joined_origin([result.origin for result in results])

    def _results(self, assignment: Assignment, progress: Callable[[float], None]) -> list[WorkerResult]:
        if self._run is None:
            self._run = _KEPT.take(self._job) or _TrainRun(self._job, self._resources)
        run = self._run
        run.assign(assignment)
        while True:
            ended = run.ended  # asked before the state, which then holds the last reports of the workers
            state = run.state()
            self.peak_memory = state.peak_memory
            for result in state.results.values():
                if result.failure is not None:
                    raise GroupFailedError(result.failure, result.can_resume)
            if len(state.results) == self._job.workers:
                run.nodes = {result.node for result in state.results.values()}
                return [state.results[rank] for rank in sorted(state.results)]
            if ended:
                raise WorkerGroupLostError(run.why())
            progress(state.fraction)

    def _end(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end(done=False)


class _TrainRun:
    """One run of Ray Train, in a thread of its own, and the coordinator of its workers.

    Attributes:
        nodes: identities of the nodes of its workers, once they have reported.
    """

    def __init__(self, job: PackJob, resources: ResourcesConfig) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._coordinator = ray.remote(num_cpus=0, scheduling_strategy=here)(Coordinator).remote(job.workers)
        self.nodes = set[str]()
        self._alike = _alike(job)
        self._error: BaseException | None = None
        self._scratch = contextlib.ExitStack()
        folder = str(self._scratch.enter_context(scratch_folder()))
        self._thread = threading.Thread(target=self._fit, args=(job, resources, folder), name="Ray Train", daemon=True)
        self._thread.start()

    def _fit(self, job: PackJob, resources: ResourcesConfig, folder: str) -> None:
        try:
            _trainer(job, resources, self._coordinator, folder).fit()
        except BaseException as error:
            self._error = error

    @property
    def ended(self) -> bool:
        """Whether all workers have ended."""
        return not self._thread.is_alive()

    def serves(self, job: PackJob) -> bool:
        """Whether it may compute this pack: one of the same request, and nobody waits for what it holds."""
        with contextlib.suppress(Exception):  # without an answer nobody knows: a group that is not used has to end
            if self.ended or _alike(job) != self._alike or self.nodes & draining_nodes():
                return False
            groups = placement_groups().values()
            return not any(group.cores and group.state not in ("CREATED", "REMOVED") for group in groups)
        return False

    def assign(self, assignment: Assignment | None) -> None:
        import ray

        ray.get(self._coordinator.assign.remote(assignment))

    def state(self) -> GroupState:
        import ray

        state: GroupState = ray.get(self._coordinator.state.remote(_STATE_INTERVAL))
        return state

    def why(self) -> BaseException:
        """Why the workers have ended."""
        return _cause(self._error) if self._error else RuntimeError("the workers ended before their work was done")

    def end(self, done: bool) -> None:
        """End the workers and wait until their resources are free for the next group.

        Args:
            done: their work is done; else it is broken off.
        """
        import ray
        from ray.exceptions import RayError

        with contextlib.suppress(RayError):  # without the coordinator its workers end by themselves
            if not done:
                ray.get(self._coordinator.abort.remote())
            self.assign(None)
        self._thread.join()
        ray.kill(self._coordinator)
        self._scratch.close()


class _Kept:
    """The group of this process that has no pack: for a few seconds, or until the next pack comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run: _TrainRun | None = None
        self._timer = threading.Timer(0.0, lambda: None)

    def put(self, run: _TrainRun) -> None:
        """Keeps a group whose pack is done."""
        with self._lock:
            self._run, self._timer = run, threading.Timer(_KEPT_SECONDS, self._release, [run])
            self._timer.daemon = True
            self._timer.start()

    def take(self, job: PackJob) -> _TrainRun | None:
        """The kept group, if it serves this pack; one that does not has ended, and its resources are free."""
        with self._lock:
            self._timer.cancel()
            run, self._run = self._run, None
            if run is None or run.serves(job):
                return run
            run.end(done=True)
        return None

    def _release(self, run: _TrainRun) -> None:
        with self._lock:  # until its resources are free: whoever takes a group waits so long
            if self._run is run:
                self._run = None
                run.end(done=True)


_KEPT = _Kept()


def _alike(job: PackJob) -> PackJob:
    """The job with that alone which packs of one request have in common."""
    return replace(job, pack="", members=(), after=(), trained={}, whole="")


def _trainer(job: PackJob, resources: ResourcesConfig, coordinator: Any, folder: str) -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from ray import train
    from ray.train.torch import TorchConfig, TorchTrainer

    return TorchTrainer(
        run_assignments,
        train_loop_config={"coordinator": coordinator, "job": job},
        scaling_config=train.ScalingConfig(
            num_workers=job.workers,
            use_gpu=bool(resources.gpus_per_worker),
            resources_per_worker=resources.bundle,
            label_selector=resources.selector or None,
        ),
        # NCCL needs a GPU for each worker
        torch_config=TorchConfig(
            backend="nccl" if resources.gpus_per_worker == 1 else "gloo", timeout_s=_IN_STEP_TIMEOUT
        ),
        run_config=train.RunConfig(
            name="group",
            storage_path=folder,  # of this node alone: workers never write to it
            failure_config=train.FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0),
        ),
    )


def _cause(error: BaseException) -> BaseException:
    """The cause of Ray Train's error: the death of a worker, if there is one."""
    from ray.exceptions import OutOfMemoryError, RayActorError

    failures = list(getattr(error, "worker_failures", {}).values())
    for failure in [error, *failures]:
        below: BaseException | None = failure
        while below is not None:
            if isinstance(below, OutOfMemoryError | RayActorError):
                return below
            below = below.__cause__ or getattr(below, "health_check_failure", None)
    return error


def _joined_origin(origins: list[dict[str, Any]]) -> dict[str, Any]:
    """The provenance of several processes: the slowest one's, with the hosts of all."""
    slowest = max(origins, key=lambda origin: float(origin["seconds"]))
    kinds = [origin["processor"] for origin in origins]
    processor = {key: " + ".join(dict.fromkeys(kind.get(key, "") for kind in kinds)) for key in kinds[0]}
    return slowest | {"workers": [origin["host"] for origin in origins], "processor": processor}
