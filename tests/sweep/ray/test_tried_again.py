"""A job whose worker died comes back to the backend, and gets again what jobs of its kind get."""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.backend import Events
from memsweep.sweep.ray.backend import ray_backend
from memsweep.sweep.store.record import Failure
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress
from paths import python_path

ASKED = ResourcesConfig()
JOB = PackJob("0" * 32, "study", "folder", "workspace", (), resources=ASKED)


class Heard(Events):
    """Notes which jobs died, and which ended."""

    def __init__(self) -> None:
        self.dead: list[PackJob] = []
        self.ended: list[PackJob] = []

    def may_start(self) -> bool:
        return True

    def first(self, packs: Collection[str]) -> str | None:
        return next(iter(packs), None)

    def free(self, packs: Collection[str]) -> int:
        return len(packs)

    def started(self, job: PackJob) -> None:
        """Nothing is noted."""

    def advanced(self, job: PackJob, fraction: float, doing: str = "") -> None:
        """Nothing is noted."""

    def finished(self, job: PackJob, report: PackReport) -> None:
        self.ended.append(job)

    def died(self, job: PackJob, failure: Failure) -> None:
        self.dead.append(job)


def work(mark: Path, job: PackJob, progress: Progress) -> PackReport:
    """Kills its process the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    assert job.resources.node_memory == 0.01
    return PackReport()


@pytest.mark.more
def test_a_job_whose_worker_died_is_fitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{python_path()}{os.pathsep}{Path(__file__).parent}")
    heard = Heard()
    fits = {ASKED: (replace(ASKED, node_memory=0.01), 0)}  # a kind that nobody asked for has none
    with ray_backend(
        functools.partial(work, tmp_path / "mark"), lambda: Counter({ASKED: 1}), fits.__getitem__, None
    ) as on:
        on.run([JOB], heard)
        assert heard.dead == [JOB]
        on.run(heard.dead, heard)
    assert heard.ended == [JOB]
