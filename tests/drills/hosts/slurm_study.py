"""A study to be requeued: a task that is slow where a gate is, and tells which host asked for which batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from drill_study import STUDY, TASK, Outcome, study_text
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from sweeping import memsweep

FIRST = 1_000_000
"""The horizon whose batches take no time, so that a drill sees a result early."""

# The same task; but it finds its folder on any host, takes longer, and tells the host, too.
_TASK = TASK
for _old, _new in (
    ('Path(os.environ["MEMSWEEP_TEST_DRILL"])', "Path(__file__).parents[1]"),
    ("os.getpid()", "os.uname().nodename"),
    ("time.sleep(0.1)", f"time.sleep(0.75 if self.config.horizon > {FIRST} else 0.0)"),
):
    assert _old in _TASK
    _TASK = _TASK.replace(_old, _new)


class Asked(NamedTuple):
    """Which host asked for which batch of which training."""

    host: str
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
class SlurmStudy:
    """A workspace with the study, its results in ``results``.

    Attributes:
        folder: of ``tasks/`` and ``search_spaces/``, and of the batches that were asked for.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path, horizons: list[int]) -> SlurmStudy:
        """A fresh workspace."""
        for name, file, content in (
            ("tasks", "watched.py", _TASK),
            ("search_spaces", f"{STUDY}.yaml", study_text(horizons)),
        ):
            (folder / name).mkdir(parents=True)
            (folder / name / file).write_text(content)
        (folder / "gate").touch()
        return cls(folder)

    @property
    def store(self) -> Store:
        """The study's results."""
        return Store(self.folder / "results" / STUDY)

    def asked(self) -> list[Asked]:
        """All batches that any process has asked for, in order."""
        log = self.folder / "batches"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [Asked(host, int(horizon), int(step)) for host, horizon, step in lines]

    def quick(self) -> None:
        """From now on steps take no time."""
        (self.folder / "gate").unlink(missing_ok=True)

    def now(self) -> Moment:
        """The results that are whole, and those that have been asked for."""
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
        place = self.store.location
        try:
            record = place.read(f"records/{identity}.json")
            tables = [name for name in table_names() if name in json.loads(record)["files"]]
            return [record, *(place.read(f"{name}/{identity}.parquet") for name in tables)]
        except FileNotFoundError:
            return None

    def failures_counted(self) -> int:
        """The highest count of failures that the journal has held against any row."""
        place = self.store.location
        lines = [line for name in place.names("journal") for line in place.read(f"journal/{name}").splitlines()]
        return max(json.loads(line)["failures"] for line in lines)


def quiet_outcome(folder: Path, horizons: list[int]) -> Outcome:
    """The results of the study in one process."""
    study = SlurmStudy.make(folder, horizons)
    study.quick()
    ended = memsweep("sweep", STUDY, "--inline", cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Outcome.of(study)
