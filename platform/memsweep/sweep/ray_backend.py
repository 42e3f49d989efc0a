"""Packs on Ray: each pack is one Tune trial, and workers are reused from pack to pack."""

from __future__ import annotations

import bisect
import pickle
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema import ResourcesConfig
from memsweep.sweep.backend import ClusterLost, Events, Work
from memsweep.sweep.failure import StoppedError
from memsweep.sweep.footprint import peak_memory
from memsweep.sweep.job import PackJob
from memsweep.sweep.ray_session import nodes, ray_session
from memsweep.sweep.resources import slots
from memsweep.sweep.throttle import throttled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memsweep.sweep.ray_watch import Watch


@contextmanager
def ray_backend(
    work: Work, resources: ResourcesConfig, address: str | None, *, dashboard: bool = False
) -> Iterator[RayBackend]:
    """A Ray session and the backend on it.

    Raises:
        ConfigError: no node of the cluster can ever hold one pack.
        MemsweepError: Ray cannot start or be joined.
    """
    with ray_session(address, dashboard=dashboard) as watch:
        yield RayBackend(work, resources, slots(resources, nodes()), watch)


class RayBackend:
    """Runs jobs as the trials of a Tune experiment, one experiment per call of ``run``."""

    def __init__(self, work: Work, resources: ResourcesConfig, slots: int, watch: Watch) -> None:
        self._work, self._resources, self.slots, self._watch = work, resources, slots, watch

    def run(self, jobs: Sequence[PackJob], at_once: int, events: Events) -> None:
        if not jobs:
            return
        from ray import tune

        from memsweep.sweep.ray_relay import Relay

        by_pack = {job.pack: job for job in jobs}
        relay = Relay(by_pack, events)
        # Not a grid: Tune copies a grid's whole list for every one of its trials.
        names = iter(list(by_pack))
        trainable = tune.with_resources(
            tune.with_parameters(_run_job, shelf=Shelf.of(by_pack), work=self._work),
            {"cpu": self._resources.cpus, "gpu": self._resources.gpus},
        )
        # Tune's own state is of no use afterwards: the store is the truth.
        with tempfile.TemporaryDirectory(prefix="memsweep-tune-") as scratch:
            tune.Tuner(
                trainable,
                param_space={"pack": tune.sample_from(lambda: next(names))},
                tune_config=tune.TuneConfig(
                    num_samples=len(jobs), max_concurrent_trials=min(at_once, len(jobs)), reuse_actors=True
                ),
                run_config=tune.RunConfig(
                    name="packs",
                    storage_path=str(Path(scratch).resolve()),
                    verbose=0,
                    failure_config=tune.FailureConfig(max_failures=0),
                    callbacks=[relay],
                ),
            ).fit()
        if relay.open:
            # On SIGINT fit() stops its workers and returns as if all were well.
            if self._watch.died:
                cause = f"its {self._watch.died} was killed (often for lack of memory) or crashed"
                raise ClusterLost(f"Ray on this machine is gone: {cause}")
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Shelf:
    """All jobs of an experiment, as every worker is given them anew with each job that it runs.

    Arrays, because Ray lends a worker the memory of an array where it would copy every entry of a dict: what a job
    costs must not grow with the number of jobs.

    Attributes:
        packs: (J, 32) uint8, the jobs' identities in ascending order.
        ends: (J,) int64, where each job's bytes end.
        data: uint8, the pickled jobs one after the other.
    """

    packs: NDArray[np.uint8]
    ends: NDArray[np.int64]
    data: NDArray[np.uint8]

    @classmethod
    def of(cls, jobs: Mapping[str, PackJob]) -> Shelf:
        """The jobs by their packs' identities."""
        import numpy as np

        names = sorted(jobs)
        blobs = [pickle.dumps(jobs[name]) for name in names]
        packs = np.frombuffer("".join(names).encode(), np.uint8).reshape(len(names), -1)
        return cls(packs, np.cumsum([len(blob) for blob in blobs]), np.frombuffer(b"".join(blobs), np.uint8))

    def job(self, pack: str) -> PackJob:
        """The job of a pack.

        Raises:
            KeyError: no such job.
        """
        place = bisect.bisect_left(range(len(self.packs)), pack, key=lambda row: bytes(self.packs[row]).decode())
        if place == len(self.packs) or bytes(self.packs[place]).decode() != pack:
            raise KeyError(pack)
        begin = int(self.ends[place - 1]) if place else 0
        job: PackJob = pickle.loads(self.data[begin : int(self.ends[place])].tobytes())
        return job


def _run_job(config: dict[str, Any], shelf: Shelf, work: Work) -> None:
    """The Tune trainable: runs in a worker process."""
    from ray import tune

    def told(fraction: float) -> None:
        try:
            tune.report({"fraction": float(fraction), "peak_memory": peak_memory()})
        except SystemExit as end:  # Tune's way of ending a function; a task's own would be a fault of the task
            raise StoppedError from end

    try:
        report = work(shelf.job(config["pack"]), throttled(told))
    except StoppedError:
        sys.exit(0)
    tune.report({"fraction": 1.0, "report": report.to_json()})
