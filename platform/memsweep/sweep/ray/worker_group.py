"""The workers of one pack: Ray Train's, started with the first order, and at home when the pack is done or fails."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.ray.coordinator import Delivery, Desk, Order
from memsweep.sweep.ray.group_worker import work
from memsweep.sweep.worker.execute import PackJob, Progress
from memsweep.sweep.worker.failure import StoppedError
from memsweep.sweep.worker.guards import ShareFailedError

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.trial import TrialResult

_PATIENCE = 1.0  # seconds between two looks at the desk where nothing is settled
_ENVIRONMENT = {
    # seconds in which all workers of a team must have a place: there is room, or it would not have been started
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process more for each team; what is taken away is made up for
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
}
"""Ray Train's settings, where nobody has set others."""
_IN_STEP_TIMEOUT = 1800  # seconds that a worker waits for the others in the middle of a step


class TeamLostError(StoppedError):
    """A worker died, or the team never came together; what they have done is in their checkpoints.

    Attributes:
        cause: what Ray says.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Team:
    """The workers of a pack; to be used as a context, whose end they do not outlive.

    Args:
        job: the pack.
        resources: what each of its workers asks for.
    """

    def __init__(self, job: PackJob, resources: ResourcesConfig) -> None:
        self._job, self._resources = job, resources
        self._run: _Run | None = None
        self.peak_memory = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end(wanted=error is None)

    def __call__(
        self, names: Collection[str], configs: list[TrialConfig], progress: Progress, *, padded: bool
    ) -> tuple[list[TrialResult], dict[str, Any]]:
        """Trials of one program, computed by all workers together; see ``memsweep.sweep.worker.execute.Together``.

        Raises:
            ShareFailedError: what one of the workers ran raised something.
            TeamLostError: one of them is gone.
        """
        from memsweep.trial import results_of

        order = Order(tuple(names), tuple(to_dict(config) for config in configs), padded)
        try:
            deliveries = self._computed(order, progress)
        except BaseException:
            self._end(wanted=False)
            raise
        found = [finding for delivery in deliveries for finding in delivery.findings]
        return results_of(configs, found), _origin([delivery.origin for delivery in deliveries])

    def _computed(self, order: Order, progress: Progress) -> list[Delivery]:
        if self._run is None:
            self._run = _Run(self._job, self._resources)
        run = self._run
        run.give(order)
        while True:
            ended = run.ended  # before the look: what a worker said at last is on the desk then
            look = run.look()
            self.peak_memory = look.peak_memory
            for delivery in look.deliveries.values():
                if delivery.failure is not None:
                    raise ShareFailedError(delivery.failure, delivery.can_go_on)
            if len(look.deliveries) == self._job.workers:
                return [look.deliveries[rank] for rank in sorted(look.deliveries)]
            if ended:
                raise TeamLostError(run.why())
            progress(look.fraction)

    def _end(self, wanted: bool) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end(wanted)


class _Run:
    """One run of Ray Train, in a thread of its own, and the desk at which its workers take their orders."""

    def __init__(self, job: PackJob, resources: ResourcesConfig) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._desk = ray.remote(num_cpus=0, scheduling_strategy=here)(Desk).remote(job.workers)
        self._error: BaseException | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="memsweep-train-")
        self._thread = threading.Thread(target=self._fit, args=(job, resources), name="Ray Train", daemon=True)
        self._thread.start()

    def _fit(self, job: PackJob, resources: ResourcesConfig) -> None:
        try:
            _trainer(job, resources, self._desk, self._folder.name).fit()
        except BaseException as error:
            self._error = error

    @property
    def ended(self) -> bool:
        """Whether no worker is there any more."""
        return not self._thread.is_alive()

    def give(self, order: Order | None) -> None:
        import ray

        ray.get(self._desk.give.remote(order))

    def look(self) -> Any:
        import ray

        return ray.get(self._desk.look.remote(_PATIENCE))

    def why(self) -> BaseException:
        """Why the workers are gone."""
        return _cause(self._error) if self._error else RuntimeError("the workers ended before their work was done")

    def end(self, wanted: bool) -> None:
        """Send the workers home and wait until what they held is free: the next team will ask for it.

        Args:
            wanted: they have done their work; else whatever they are at is broken off.
        """
        import ray
        from ray.exceptions import RayError

        with contextlib.suppress(RayError):  # where the desk is lost, its workers end without it
            if not wanted:
                ray.get(self._desk.close.remote())
            self.give(None)
        self._thread.join()
        ray.kill(self._desk)
        self._folder.cleanup()


def _trainer(job: PackJob, resources: ResourcesConfig, desk: Any, folder: str) -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from ray import train
    from ray.train.torch import TorchConfig, TorchTrainer

    each = {"CPU": resources.cpus} | ({"GPU": resources.gpus_per_worker} if resources.gpus_per_worker else {})
    return TorchTrainer(
        work,
        train_loop_config={"desk": desk, "job": job},
        scaling_config=train.ScalingConfig(
            num_workers=job.workers, use_gpu=bool(resources.gpus_per_worker), resources_per_worker=each
        ),
        # NCCL wants a card for each worker
        torch_config=TorchConfig(
            backend="nccl" if resources.gpus_per_worker == 1 else "gloo", timeout_s=_IN_STEP_TIMEOUT
        ),
        run_config=train.RunConfig(
            name="team",
            storage_path=folder,  # of this node alone: workers never write to it
            failure_config=train.FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0),
        ),
    )


def _cause(error: BaseException) -> BaseException:
    """What was at the bottom of Ray Train's error: the death of a worker as Ray itself tells it, where there is one."""
    from ray.exceptions import OutOfMemoryError, RayActorError

    failures = list(getattr(error, "worker_failures", {}).values())
    for failure in [error, *failures]:
        below: BaseException | None = failure
        while below is not None:
            if isinstance(below, OutOfMemoryError | RayActorError):
                return below
            below = below.__cause__ or getattr(below, "health_check_failure", None)
    return error


def _origin(origins: list[dict[str, Any]]) -> dict[str, Any]:
    """The provenance of what several processes made: the slowest one's, and on which hosts they ran."""
    slowest = max(origins, key=lambda origin: float(origin["seconds"]))
    return slowest | {"workers": [origin["host"] for origin in origins], "processor": _all_of(origins, "processor")}


def _all_of(origins: Iterable[dict[str, Any]], name: str) -> dict[str, str]:
    """What the workers' processors are, word by word: of one kind, that kind's; else each kind's, joined."""
    kinds = [origin[name] for origin in origins]
    return {key: " + ".join(dict.fromkeys(kind.get(key, "") for kind in kinds)) for key in kinds[0]}
