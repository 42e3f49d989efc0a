"""Packs on Ray: each pack is one Tune trial, and workers are reused from pack to pack."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memsweep.config.schema import ResourcesConfig
from memsweep.sweep.backend import Events, Work
from memsweep.sweep.job import PackJob
from memsweep.sweep.ray_session import nodes, ray_session
from memsweep.sweep.resources import slots
from memsweep.sweep.throttle import throttled


@contextmanager
def ray_backend(
    work: Work, resources: ResourcesConfig, address: str | None, *, dashboard: bool = False
) -> Iterator[RayBackend]:
    """A Ray session and the backend on it.

    Raises:
        ConfigError: no node of the cluster can ever hold one pack.
        MemsweepError: Ray cannot start or be joined.
    """
    with ray_session(address, dashboard=dashboard):
        yield RayBackend(work, resources, slots(resources, nodes()))


class RayBackend:
    """Runs jobs as the trials of a Tune experiment, one experiment per call of ``run``."""

    def __init__(self, work: Work, resources: ResourcesConfig, slots: int) -> None:
        self._work, self._resources, self.slots = work, resources, slots

    def run(self, jobs: Sequence[PackJob], at_once: int, events: Events) -> None:
        if not jobs:
            return
        from ray import tune

        from memsweep.sweep.ray_relay import Relay

        by_pack = {job.pack: job for job in jobs}
        relay = Relay(by_pack, events)
        # Bytes, not objects: a worker unpickles the one job that it runs.
        blobs = {pack: pickle.dumps(job) for pack, job in by_pack.items()}
        trainable = tune.with_resources(
            tune.with_parameters(_run_job, blobs=blobs, work=self._work),
            {"cpu": self._resources.cpus, "gpu": self._resources.gpus},
        )
        # Tune's own state is of no use afterwards: the store is the truth.
        with tempfile.TemporaryDirectory(prefix="memsweep-tune-") as scratch:
            tune.Tuner(
                trainable,
                param_space={"pack": tune.grid_search(list(by_pack))},
                tune_config=tune.TuneConfig(max_concurrent_trials=min(at_once, len(jobs)), reuse_actors=True),
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
            raise KeyboardInterrupt


def _run_job(config: dict[str, Any], blobs: dict[str, bytes], work: Work) -> None:
    """The Tune trainable: runs in a worker process."""
    from ray import tune

    job: PackJob = pickle.loads(blobs[config["pack"]])
    report = work(job, throttled(lambda fraction: tune.report({"fraction": float(fraction)})))
    tune.report({"fraction": 1.0, "report": report.to_json()})
