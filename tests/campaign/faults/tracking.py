"""MLflow's server or database fails."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
from pathlib import Path
from typing import ClassVar

from fault_proxy import NO_FAULT, healthy
from fault_proxy import Fault as Broken
from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class _Server(Fault):
    """Felt by the first request."""

    seconds = (1.0, 5.0)
    _requests = 0

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.tracking == "server"

    def harm(self, site: Site, luck: random.Random) -> None:
        """Harms the server, or its answers."""
        raise NotImplementedError

    def inject(self, site: Site, luck: random.Random) -> bool:
        self._requests = site.bench.tracking.requests
        self.harm(site, luck)
        return True

    def felt(self, site: Site) -> bool:
        return site.bench.tracking.requests > self._requests


class ServerKilled(_Server):
    """It comes back when the fault is over."""

    name = "MLflow's server killed"

    def harm(self, site: Site, luck: random.Random) -> None:
        site.bench.mlflow.kill()

    def heal(self, site: Site) -> None:
        if not site.bench.mlflow.running:
            site.bench.mlflow.start()


class ServerFrozen(_Server):
    name = "MLflow's server frozen"

    def harm(self, site: Site, luck: random.Random) -> None:
        site.bench.mlflow.signal(signal.SIGSTOP)

    def heal(self, site: Site) -> None:
        with contextlib.suppress(ProcessLookupError):
            site.bench.mlflow.signal(signal.SIGCONT)


class _Answers(_Server):
    """Felt by the first request that meets it."""

    broken: ClassVar[Broken]
    share: ClassVar[float] = 1.0
    _injected = 0

    def harm(self, site: Site, luck: random.Random) -> None:
        self._injected = site.bench.tracking.injected
        seed = luck.random()

        def rule(number: int, method: str, path: str) -> Broken:
            return self.broken if random.Random(f"{seed} {number}").random() < self.share else NO_FAULT

        site.bench.tracking.rule = rule

    def felt(self, site: Site) -> bool:
        return site.bench.tracking.injected > self._injected

    def heal(self, site: Site) -> None:
        site.bench.tracking.rule = healthy


class ServerError(_Answers):
    name, broken = "MLflow answers 500", Broken(status=500)


class Slow(_Answers):
    name, broken = "MLflow is slow (2 s)", Broken(after=2.0)


class CutAfterCommit(_Answers):
    name, broken, share = "MLflow's answers cut after the commit", Broken(cut=True), 0.5


class AwayAtStart(_Answers):
    """From before the command starts until some time after its first batches."""

    name, broken, from_start = "MLflow away at the start", Broken(reset=True), True

    def prepare(self, site: Site, luck: random.Random) -> None:
        self.harm(site, luck)

    def inject(self, site: Site, luck: random.Random) -> bool:
        return True


class Locked(Fault):
    """Another program holds MLflow's database."""

    name, seconds = "MLflow's database locked", (2.0, 6.0)
    _held: sqlite3.Connection | None = None

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.tracking == "sqlite" and scenario.store != "bucket"

    def inject(self, site: Site, luck: random.Random) -> bool:
        path = Path(site.results) / "mlflow.db"
        if not path.exists():
            return False
        self._held = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        with contextlib.suppress(sqlite3.DatabaseError):  # locked already; or damaged by an earlier fault
            self._held.execute("BEGIN EXCLUSIVE")
            return True
        return False

    def heal(self, site: Site) -> None:
        if self._held is not None:
            self._held.close()


KINDS = (ServerKilled, ServerFrozen, ServerError, Slow, CutAfterCommit, AwayAtStart, Locked)
