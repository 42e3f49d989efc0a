"""A study to be broken on several hosts: a task that is slow where a gate is, and tells who trained what, and where."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hosts import Host, Process
from ray_hosts import RayHosts

from drill_study import STUDY, TASK, Outcome, study_text
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import TABLES
from sweeping import memsweep

STEP = 0.75
"""Seconds that a step takes, where the gate is; but of the first horizon's pack, of which a drill sees the result."""

FIRST = 1000

# The same task; but it finds its folder on any host, takes longer, and tells the time and the host, too.
_TASK = TASK
for _old, _new in (
    ('Path(os.environ["MEMSWEEP_TEST_DRILL"])', "Path(__file__).parents[1]"),
    ("os.getpid()", "time.time()} {os.uname().nodename} {os.getpid()"),
    ("time.sleep(0.1)", f"time.sleep({STEP} if self.config.horizon > {FIRST} else 0.0)"),
):
    assert _old in _TASK
    _TASK = _TASK.replace(_old, _new)


class Asked(NamedTuple):
    """Who asked for which batch of which training, where, and when (Unix time)."""

    when: float
    host: str
    pid: int
    horizon: int
    step: int


class Moment(NamedTuple):
    """How far a study is.

    Attributes:
        whole: identity -> files of each result.
        asked: number of batches that have been asked for.
        ended: horizons all of whose rows have a result.
    """

    whole: dict[str, list[bytes] | None]
    asked: int
    ended: frozenset[int]


@dataclass(frozen=True)
class NetworkStudy:
    """A workspace with the study, whose results lie in a bucket.

    Attributes:
        folder: of ``tasks/`` and ``search_spaces/``, and of the batches that were asked for.
        results: place of the results as the hosts give it.
        rows: how many the study has.
    """

    folder: Path
    results: str
    rows: int

    @classmethod
    def make(cls, folder: Path, results: str, horizons: list[int]) -> NetworkStudy:
        """A fresh workspace."""
        for name, file, content in (
            ("tasks", "watched.py", _TASK),
            ("search_spaces", f"{STUDY}.yaml", study_text(horizons)),
        ):
            (folder / name).mkdir(parents=True)
            (folder / name / file).write_text(content)
        (folder / "gate").touch()
        return cls(folder, results, 2 * len(horizons))

    @property
    def store(self) -> Store:
        """The study's results."""
        return Store(Location.at(self.results) / STUDY)

    def sweep(self, cluster: RayHosts, verb: str = "sweep") -> Process:
        """The real command line on the head."""
        words = (sys.executable, "-m", "memsweep", verb, STUDY, "--address", "auto", "--results", self.results)
        env = cluster.environment(MLFLOW_HTTP_REQUEST_MAX_RETRIES="1")
        return cluster.head.start(*words, env=env, log=self.folder / f"{verb}.log", cwd=self.folder)

    def asked(self) -> list[Asked]:
        """All batches that any process has asked for, in order."""
        log = self.folder / "batches"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [Asked(float(t), host, int(pid), int(horizon), int(step)) for t, host, pid, horizon, step in lines]

    def training(self, host: str, within: float = 3 * STEP) -> Asked | None:
        """The batch that a host asked for just now."""
        recent = [batch for batch in self.asked() if batch.host == host and batch.when > time.time() - within]
        return recent[-1] if recent else None

    def quick(self) -> None:
        """From now on steps take no time."""
        (self.folder / "gate").unlink(missing_ok=True)

    def now(self) -> Moment:
        """What is whole, and what has been asked for."""
        store, names = self.store, self.store.identities()
        horizons = [store.record(name)["config"]["task"]["horizon"] for name in names]
        ended = frozenset(horizon for horizon in horizons if horizons.count(horizon) == 2)
        return Moment({name: self._files(name) for name in names}, len(self.asked()), ended)

    def cost_since(self, before: Moment) -> tuple[int, int]:
        """(results that were there and are not any more what they were, results that were computed again)."""
        lost = sum(self._files(name) != files for name, files in before.whole.items())
        trained = {batch.horizon for batch in self.asked()[before.asked :]} & before.ended
        return lost, 2 * len(trained)

    def _files(self, identity: str) -> list[bytes] | None:
        place, paths = self.store.location, [f"{name}/{identity}.parquet" for name in TABLES]
        try:
            return [place.read(path) for path in [f"records/{identity}.json", *paths]]
        except FileNotFoundError:
            return None

    def all_asked_since(self, when: float, hosts: list[Host]) -> bool:
        """Whether every one of these hosts has asked for a batch since then."""
        return {host.name for host in hosts} <= {batch.host for batch in self.asked() if batch.when > when}

    def stored_since(self, when: float) -> bool:
        """Whether a result has been stored since then."""
        from pyarrow.fs import FileSelector

        place = self.store.location
        found = place.files.get_file_info(FileSelector(place.path("records"), allow_not_found=True))
        return any(info.mtime is not None and info.mtime.timestamp() > when for info in found)

    def places(self) -> dict[int, set[tuple[str, int]]]:
        """Which processes, on which hosts, have trained for each horizon."""
        found: dict[int, set[tuple[str, int]]] = {}
        for batch in self.asked():
            found.setdefault(batch.horizon, set()).add((batch.host, batch.pid))
        return found

    def failures_counted(self) -> int:
        """The highest count of failures that the journal has held against any row."""
        place = self.store.location
        lines = [line for name in place.names("journal") for line in place.read(f"journal/{name}").splitlines()]
        return max(json.loads(line)["failures"] for line in lines)


def quiet_outcome(folder: Path, horizons: list[int]) -> Outcome:
    """What the study gives in one process, on a disk."""
    study = NetworkStudy.make(folder, str(folder / "results"), horizons)
    study.quick()
    ended = memsweep("sweep", STUDY, "--inline", cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Outcome.of(study)
