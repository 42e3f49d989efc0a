"""A study to be broken: a workspace of its own, whose task can be slowed down and tells who asked for which batch."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
import pyarrow as pa

from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from processes import carriers_of, wait_for
from sweeping import PERTURBATION, end, environment, memsweep, start

STUDY = "drill"
STEPS, CHECKPOINT_EVERY = 60, 5

TASK = '''
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from memsweep.config.core.fields import setting
from memsweep.data.api import LinearFunctionalTask
from memsweep.data.contract import SEQUENCES
from memsweep.data.meaning import MANY
from memsweep.registry import register_task
from memsweep.streams import TRAIN


@register_task("watched")
class Watched(LinearFunctionalTask):
    """An exponential memory whose batches are counted, and slow while a gate is there."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How long; the planner takes it at its word, and so every length is a pack of its own."""

        horizon: int = setting(1_000_000, "a hundred thousand times the sequence length", at_least=200_000)
        mood: int = setting(0, "13 is one too many")

    weight_power = 0.0
    variance = 1.0

    @property
    def horizon(self):
        return self.config.horizon // 100_000

    def kernel(self):
        if self.config.mood == 13:
            raise ZeroDivisionError("a mood of 13")
        return torch.exp(-torch.arange(self.horizon, dtype=torch.float64))

    def white_noise(self, stream, index, size):
        if stream.name == TRAIN and size not in (SEQUENCES, MANY):  # a look at the task is no training
            folder = Path(os.environ["MEMSWEEP_TEST_DRILL"])
            line = f"{os.getpid()} {self.config.horizon} {index}\\n".encode()
            log = os.open(folder / "batches", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(log, line)
            os.close(log)
            if (folder / "gate").exists():
                time.sleep(0.1)
        return super().white_noise(stream, index, size)
'''

TRAINING = (
    f"training: {{seeds: 2, steps: {STEPS}, batch_size: 8, validation_size: 16, validate_every: 10, "
    f"checkpoint_every: {CHECKPOINT_EVERY}}}"
)


def study_text(horizons: list[int], grid: str = "model.width: [2, 3]") -> str:
    """The study: one pack for each horizon, with the trials of the other axes."""
    return (
        f"task: {{name: watched}}\nmodel: {{name: diagonal_rnn}}\n{TRAINING}\n{PERTURBATION}\n"
        f"grid: {{task.horizon: {horizons}, {grid}}}\n"
    )


class Asked(NamedTuple):
    """Which process asked for which batch of which training."""

    pid: int
    horizon: int
    step: int


Files = dict[str, tuple[bytes, int]]


@dataclass(frozen=True)
class Moment:
    """How far a study is.

    Attributes:
        whole: identity -> files of each undamaged result.
        asked: number of batches that have been asked for.
        ended: horizons all of whose rows have a result.
    """

    whole: Files
    asked: int
    ended: frozenset[int]


@dataclass(frozen=True)
class Drill:
    """A workspace with one study, and the real command line on it.

    Attributes:
        folder: of ``tasks/`` and ``search_spaces/``, and of the batches that were asked for.
        results: of its commands, ``results`` in the folder.
        token: what every process of its commands carries in its environment.
    """

    folder: Path
    results: Path
    token: str

    @classmethod
    def make(cls, folder: Path, text: str) -> Drill:
        """A fresh workspace."""
        for name, file, content in (("tasks", "watched.py", TASK), ("search_spaces", f"{STUDY}.yaml", text)):
            (folder / name).mkdir(parents=True)
            (folder / name / file).write_text(content)
        return cls(folder, folder / "results", f"memsweep-drill-{uuid.uuid4().hex}")

    @property
    def store(self) -> Store:
        """The study's results."""
        return Store(self.results / STUDY)

    def store_configs(self) -> dict[str, dict[str, Any]]:
        """The config of each stored result."""
        return {record["identity"]: record["config"] for record in self.store.records()}

    @cached_property
    def environment(self) -> dict[str, str]:
        """Two slots, whatever the machine has."""
        return environment(MEMSWEEP_TEST_DRILL=str(self.folder), MEMSWEEP_TEST_TOKEN=self.token)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``memsweep WORDS`` from start to end."""
        return memsweep(*words, cwd=self.folder, env=self.environment)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """``memsweep WORDS`` on the way; nothing of it is left afterwards."""
        process = start(*words, cwd=self.folder, env=self.environment)
        try:
            yield process
        finally:
            self.kill_all()
            end(process)

    def slow(self) -> None:
        """From now on every batch takes a tenth of a second."""
        (self.folder / "gate").touch()

    def quick(self) -> None:
        """From now on batches take no time."""
        (self.folder / "gate").unlink(missing_ok=True)

    def asked(self) -> list[Asked]:
        """All batches that any process has asked for, in order."""
        log = self.folder / "batches"
        return [Asked(*map(int, line.split())) for line in log.read_text().splitlines()] if log.exists() else []

    def now(self) -> Moment:
        """The results that are whole and those asked for, now that nothing of the drill runs."""
        whole, rows = self.whole(), self._rows()
        ended = {horizon for horizon, names in rows.items() if names <= whole.keys()}
        return Moment(whole, len(self.asked()), frozenset(ended))

    def cost_since(self, before: Moment) -> tuple[int, int]:
        """(results that were whole and are gone, results that were whole and were computed or written again)."""
        after = self.whole()
        lost = sum(after.get(name, (b"", 0))[0] != files[0] for name, files in before.whole.items())
        rewritten = sum(after.get(name) != files for name, files in before.whole.items()) - lost
        trained = {asked.horizon for asked in self.asked()[before.asked :]} & before.ended
        return lost, max(rewritten, sum(len(self._rows()[horizon]) for horizon in trained))

    def _rows(self) -> dict[int, set[str]]:
        """The rows of the plan by the horizon that they are trained on together."""
        plan = read_plan(self.store.location)
        found: dict[int, set[str]] = {}
        for name, config in plan.rows.items() if plan else ():
            found.setdefault(int(config["task"]["horizon"]), set()).add(name)
        return found

    def whole(self) -> Files:
        """The files of all results whose record is there and undamaged, as they are now: content and time."""
        store = self.store
        names = store.identities()
        return {name: kept for name in sorted(names - store.check(names).keys()) for kept in [self._files(name)]}

    def _files(self, identity: str) -> tuple[bytes, int]:
        paths = [self.store.folder / name / f"{identity}.parquet" for name in table_names()]
        paths.append(self.store.folder / "records" / f"{identity}.json")
        paths = [path for path in paths if path.exists()]  # a table without rows has no file
        return b"".join(path.read_bytes() for path in paths), max(path.stat().st_mtime_ns for path in paths)

    def processes(self) -> list[int]:
        """Living processes of this drill."""
        return carriers_of(self.token)

    def kill_all(self) -> None:
        """SIGKILL for every process of the drill, as a power cut would."""
        last = time.monotonic() + 60
        while found := self.processes():
            for pid in found:
                kill(pid, signal.SIGKILL)
            assert time.monotonic() < last, f"processes that cannot be killed: {found}"
            time.sleep(0.05)

    def all_end(self, seconds: float = 60.0) -> None:
        """All processes of the drill end by themselves, but for two helpers of Ray.

        Its agents now and then outlive a raylet that was killed. They touch nothing of the study's.
        """
        wait_for(lambda: not [pid for pid in self.processes() if not _is_agent(pid)], seconds=seconds)

    def reach(self, process: subprocess.Popen[str], condition: Callable[[], object]) -> None:
        """Wait until a command has come so far."""
        wait_for(condition, process.poll, seconds=120.0)


def _is_agent(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith((b"ray::DashboardAgent", b"ray::RuntimeEnvAgent"))
    except OSError:
        return True  # it is gone


def kill(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class HasStore(Protocol):
    """A study whose results lie in a store."""

    @property
    def store(self) -> Store: ...


@dataclass(frozen=True)
class Outcome:
    """The results of a sweep, without when, where and by whom they were computed."""

    tables: dict[str, pd.DataFrame]
    summaries: dict[str, str]
    verdicts: bytes

    @classmethod
    def of(cls, drill: HasStore, names: Iterable[str] | None = None) -> Outcome:
        """Of a finished study; of these trials of it, if they are given."""
        store = drill.store
        records = [store.record(name) for name in sorted(store.identities() if names is None else names)]
        return cls(
            {
                name: pa.concat_tables([store.arrow(name, record) for record in records]).to_pandas()
                for name in table_names()
            },
            {record["identity"]: repr((record["outcome"], record["summary"])) for record in records},
            store.location.read("report/verdicts.csv"),
        )

    def equals(self, other: Outcome) -> bool:
        """Bit for bit."""
        return (
            self.summaries == other.summaries
            and self.verdicts == other.verdicts
            and all(_same(frame, other.tables[name]) for name, frame in self.tables.items())
        )


def _same(one: pd.DataFrame, two: pd.DataFrame) -> bool:
    try:
        pd.testing.assert_frame_equal(one, two, check_exact=True)
    except AssertionError:
        return False
    return True
