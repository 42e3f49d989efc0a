"""One study that is being broken: its workspace, its results, and the real commands on it."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hosts import Host

import drill_study
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from processes import carriers_of
from sweeping import environment
from tests.campaign.bench import BUCKET, Bench, mount, unmount
from tests.campaign.places import WORKSPACE
from tests.campaign.scenarios import STUDIES, Scenario

STUDY = "drill"
LONGEST = 600.0
"""Seconds after which a command counts as hanging."""
_QUIET = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg",
    "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
}  # fmt: skip


class TooLongError(Exception):
    """Something that had to happen did not."""


class Asked(NamedTuple):
    """Who asked for which batch of which training, on which host, and when (Unix time)."""

    pid: int
    horizon: int
    step: int
    host: str
    when: float


class Command(NamedTuple):
    """A command that has ended."""

    words: tuple[str, ...]
    code: int
    said: str

    @property
    def gave_up(self) -> bool:
        """Whether it left trials alone that have failed three times, as faults can make them, and said what to do."""
        return f"memsweep retry {STUDY} --force" in self.said


@dataclass
class Site:
    """A workspace with one study.

    Attributes:
        folder: of ``tasks/``, ``search_spaces/``, and the logs of commands.
        results: what ``--results`` is given.
        environment: what commands have more in theirs; a fault may change it for one command.
        cwd: where commands run; a fault may change it for one command.
        process: the command that runs, or ran last; on a host, what waits for it here.
        ended: all commands that have ended.
        overrides: what ``memsweep sweep`` is given more.
        promises: what must hold after each command; each gives what does not, in words, or nothing.
        output: where the standard output of one command goes, in place of its log.
        words, log: of the command that runs, or ran last, and what it writes.
    """

    folder: Path
    scenario: Scenario
    bench: Bench
    results: str
    token: str = field(default_factory=lambda: f"memsweep-campaign-{uuid.uuid4().hex}")
    environment: dict[str, str] = field(default_factory=dict)
    cwd: Path = Path()
    process: subprocess.Popen[bytes] | None = None
    ended: list[Command] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    promises: list[Callable[[], str]] = field(default_factory=list)
    output: Path | None = None
    words: tuple[str, ...] = ()
    log: Path = Path()
    _logs: int = 0

    @classmethod
    @contextmanager
    def make(cls, folder: Path, scenario: Scenario, bench: Bench) -> Iterator[Site]:
        """A fresh one; nothing of its commands is left running afterwards."""
        (folder / "tasks").mkdir(parents=True)
        (folder / "search_spaces").mkdir()
        shutil.copy(WORKSPACE / "watched.py", folder / "tasks")
        (folder / "search_spaces" / f"{STUDY}.yaml").write_text(STUDIES[scenario.study])
        results = str(folder / "results")
        if scenario.store == "mount":
            mount(Path(results))
        if scenario.store == "bucket":
            assert bench.s3
            results = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        site = cls(folder, scenario, bench, results, cwd=folder)
        try:
            yield site
        finally:
            site.kill_all()
            for ended in site.ended:  # a report in a bucket has a copy here
                for copy in re.findall(r"^report: +(\S+)/report/index.html \(a copy", ended.said, re.MULTILINE):
                    shutil.rmtree(copy, ignore_errors=True)
            if scenario.store == "mount":
                unmount(Path(results))

    @property
    def location(self) -> Location:
        """The study's folder."""
        return Location.at(self.results) / STUDY

    @property
    def store(self) -> Store:
        """The study's results."""
        return Store(self.location)

    # Commands

    def start(self, verb: str, *more: str, inline: bool = False) -> None:
        """Start ``memsweep VERB`` on the study; ``inline``: without Ray, where the study and its scenario allow it."""
        how = self.scenario.alone if inline else self.scenario.words
        words = [verb, STUDY, "--results", self.results, "--workspace", str(self.folder), *how, *more]
        if verb == "sweep":
            words += self.overrides
        python = [sys.executable, "-m", "memsweep", *words]
        self._logs += 1
        self.log = self.folder / f"command.{self._logs}.log"
        log = self.log.open("wb")
        if self.scenario.hosts:
            cluster = self.bench.hosts
            env = cluster.environment(**self._environment())
            head = cluster.head
            self.process = head.start(*python, env=env, log=self.log, cwd=self.cwd).entered
        else:
            self.process = subprocess.Popen(
                [*self.bench.prefix, *python],
                cwd=self.cwd,
                env=environment(**self._environment()),
                stdin=subprocess.DEVNULL,
                stdout=log if self.output is None else self.output.open("wb"),
                stderr=log,
                start_new_session=True,
            )
        log.close()
        self.words = tuple(words)

    def _environment(self) -> dict[str, str]:
        more = {**_QUIET, "MEMSWEEP_TEST_TOKEN": self.token}
        if self.scenario.tracking == "server":
            more["MLFLOW_TRACKING_URI"] = self.bench.tracking.uri
        if self.scenario.store == "bucket" and not self.scenario.hosts:
            more |= self.bench.s3.environment() | {"AWS_ENDPOINT_URL": self.bench.bucket.uri}
        return more | self.environment

    @property
    def pid(self) -> int:
        """The driver's number; 0 when it has ended."""
        assert self.process is not None
        if self.process.poll() is not None:
            return 0
        if not self.scenario.hosts:
            return self.process.pid
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with contextlib.suppress(OSError):
            return int((children.read_text().split() or ["0"])[0])
        return 0

    @property
    def running(self) -> bool:
        """Whether the command still runs."""
        return self.process is not None and self.process.poll() is None

    def wait(self, seconds: float = LONGEST) -> Command:
        """Wait for the command's end."""
        self.until(lambda: not self.running, "the command ends", seconds)
        assert self.process is not None
        self.ended.append(Command(self.words, self.process.returncode, self.log.read_text(errors="replace")))
        return self.ended[-1]

    def beside(self, verb: str) -> Command:
        """Run another command from start to end while one runs already."""
        first = self.process, self.words, self.log
        self.start(verb)
        try:
            return self.wait()
        finally:
            self.process, self.words, self.log = first

    def until(self, condition: Callable[[], object], what: str, seconds: float = LONGEST, pause: float = 0.05) -> None:
        """Wait for something.

        Raises:
            TooLongError: it did not come.
        """
        last = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > last:
                raise TooLongError(f"waited {seconds:.0f} s in vain until {what}")
            time.sleep(pause)

    # Processes

    def processes(self) -> list[int]:
        """All living processes of the site's commands on this machine."""
        return carriers_of(self.token)

    def kill_all(self) -> None:
        """SIGKILL for every process, as a power cut would."""
        last = time.monotonic() + 60
        while (found := self.processes()) and time.monotonic() < last:
            for pid in found:
                drill_study.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if self.process is not None:
            self.process.wait(timeout=60)

    def left(self) -> list[str]:
        """Processes that outlive their command, but for Ray's two agents, which touch nothing of the study's."""
        return [name for pid in self.processes() if (name := title(pid)) and "Agent" not in name]

    def parts(self, word: str) -> list[int]:
        """Processes whose command has this word: ``raylet/raylet``, ``gcs_server``."""
        return [pid for pid in self.processes() if word in title(pid)]

    def workers(self) -> list[int]:
        """Ray's workers that have asked for a batch and live, the last one last."""
        recent = dict.fromkeys(asked.pid for asked in self.asked()[-20:])
        return [pid for pid in recent if pid != self.pid and title(pid)]

    def training(self, host: Host) -> bool:
        """Whether a host has asked for a batch just now."""
        return any(asked.host == host.name and asked.when > time.time() - 2.0 for asked in self.asked()[-40:])

    # Progress

    def slow(self, seconds: float = 0.1) -> None:
        """From now on every batch takes so long, but 0.05 s at least and 2 s at most."""
        (self.folder / "gate.new").write_text(str(min(2.0, max(0.05, seconds))))
        (self.folder / "gate.new").rename(self.folder / "gate")

    def quick(self) -> None:
        """From now on batches take no time."""
        (self.folder / "gate").unlink(missing_ok=True)

    def asked(self) -> list[Asked]:
        """All batches that any process has asked for, in order."""
        log = self.folder / "batches"
        lines = log.read_text().splitlines() if log.exists() else []
        return [Asked(int(p), int(h), int(s), n, float(t)) for p, h, s, n, t in (line.split() for line in lines)]

    def whole(self) -> dict[str, bytes]:
        """The files of all results whose record is there and undamaged, by the trial's identity."""
        store = self.store
        names = store.identities()
        sound = sorted(names - store.check(names).keys())
        kept = {
            n: [f"{table}/{n}.parquet" for table in table_names() if table in store.record(n)["files"]] for n in sound
        }
        return {n: b"".join(map(self.location.read, [f"records/{n}.json", *paths])) for n, paths in kept.items()}

    def journal(self) -> dict[str, bytes]:
        """The journal's segments."""
        found = {}
        for name in self.location.names("journal"):
            with contextlib.suppress(FileNotFoundError):
                found[name] = self.location.read(f"journal/{name}")
        return found

    # Faults

    def heal(self) -> None:
        """End every fault that lasts."""
        self.bench.heal()
        self.environment, self.cwd, self.overrides, self.output = {}, self.folder, [], None
        (self.folder / "poison").unlink(missing_ok=True)
        if self.scenario.hosts:
            self.bench.heal_hosts()


def title(pid: int) -> str:
    """A process's command; empty when it is gone, or a zombie."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return " ".join(text.split())  # a process that names itself pads its name with blanks
    return ""
