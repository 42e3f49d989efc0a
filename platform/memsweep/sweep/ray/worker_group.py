"""The workers of one pack: Ray Train starts them with the first assignment and ends them with the pack."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.ray.coordinator import Assignment, Coordinator, GroupState, WorkerResult
from memsweep.sweep.ray.group_worker import run_assignments
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
    """The workers of a pack; a context manager at whose end they end, too.

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
        self._end(done=error is None)

    def __call__(
        self, names: Collection[str], configs: list[TrialConfig], progress: Callable[[float], None], *, padded: bool
    ) -> tuple[list[TrialResult], dict[str, Any]]:
        """Trials of one program, computed by all workers together; see ``memsweep.sweep.worker.execute.Together``.

        Raises:
            GroupFailedError: one of the workers raised an error.
            WorkerGroupLostError: one of them died.
        """
        from memsweep.trial import results_of

        assignment = Assignment(tuple(names), tuple(to_dict(config) for config in configs), padded)
        try:
            results = self._results(assignment, progress)
        except BaseException:
            self._end(done=False)
            raise
        measurements = [measurement for result in results for measurement in result.measurements]
        return results_of(configs, measurements), _joined_origin([result.origin for result in results])

    def _results(self, assignment: Assignment, progress: Callable[[float], None]) -> list[WorkerResult]:
        if self._run is None:
            self._run = _TrainRun(self._job, self._resources)
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
                return [state.results[rank] for rank in sorted(state.results)]
            if ended:
                raise WorkerGroupLostError(run.why())
            progress(state.fraction)

    def _end(self, done: bool) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end(done)


class _TrainRun:
    """One run of Ray Train, in a thread of its own, and the coordinator of its workers."""

    def __init__(self, job: PackJob, resources: ResourcesConfig) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._coordinator = ray.remote(num_cpus=0, scheduling_strategy=here)(Coordinator).remote(job.workers)
        self._error: BaseException | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="memsweep-train-")
        self._thread = threading.Thread(target=self._fit, args=(job, resources), name="Ray Train", daemon=True)
        self._thread.start()

    def _fit(self, job: PackJob, resources: ResourcesConfig) -> None:
        try:
            _trainer(job, resources, self._coordinator, self._folder.name).fit()
        except BaseException as error:
            self._error = error

    @property
    def ended(self) -> bool:
        """Whether all workers have ended."""
        return not self._thread.is_alive()

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
        self._folder.cleanup()


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
