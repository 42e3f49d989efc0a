"""The bucket of the results refuses, fails, is slow, or breaks its connections."""

from __future__ import annotations

import random
import threading
from typing import ClassVar

from fault_proxy import NO_FAULT, healthy
from fault_proxy import Fault as Broken
from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site

_ERROR = (
    "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{}</Code><Message>a fault was injected here</Message></Error>"
)


def _answers(status: int, *codes: str) -> dict[str, Broken]:
    return {code: Broken(status=status, body=_ERROR.format(code).encode()) for code in codes}


class _Bucket(Fault):
    """A proxy treats some requests as ``broken`` says; felt by the first of them.

    Attributes:
        broken: by name; one is drawn.
        share: of the requests, which are drawn.
        word: in the request's path; else it passes.
    """

    broken: ClassVar[dict[str, Broken]]
    share: ClassVar[float] = 1.0
    word: ClassVar[str] = ""
    seconds = (1.0, 5.0)
    _injected = 0

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store == "bucket" and not scenario.hosts

    def inject(self, site: Site, luck: random.Random) -> bool:
        self._injected = site.bench.bucket.injected
        seed, how = luck.random(), luck.choice(list(self.broken))
        self.how, broken = how if len(self.broken) > 1 else "", self.broken[how]

        def rule(number: int, method: str, path: str) -> Broken:
            return broken if self.meets(method, path, random.Random(f"{seed} {number}")) else NO_FAULT

        site.bench.bucket.rule = rule
        return True

    def meets(self, method: str, path: str, luck: random.Random) -> bool:
        """Whether it hits a request."""
        return luck.random() < self.share and self.word in path

    def felt(self, site: Site) -> bool:
        return site.bench.bucket.injected > self._injected

    def heal(self, site: Site) -> None:
        site.bench.bucket.rule = healthy


class Denied(_Bucket):
    name, broken = "bucket refuses (403)", _answers(403, "AccessDenied")


class DeniedWrites(_Bucket):
    """As a quota that is used up: it can be read."""

    name = "bucket refuses to be written (403, quota used up)"
    broken = _answers(403, "AccessDenied", "QuotaExceeded")

    def meets(self, method: str, path: str, luck: random.Random) -> bool:
        return method in ("PUT", "POST")


class ServerError(_Bucket):
    """Every second request, or so, of which the client tries most again."""

    name, share = "bucket fails (500, 503)", 0.6
    broken = _answers(500, "InternalError") | _answers(503, "SlowDown")


class Slow(_Bucket):
    name, broken = "bucket is slow (1 s)", {"slow": Broken(after=1.0)}


class Broke(_Bucket):
    name, share = "bucket resets connections, or cuts answers", 0.6
    broken: ClassVar[dict[str, Broken]] = {"reset": Broken(reset=True), "cut": Broken(cut=True)}


class ListsLate(_Bucket):
    name, broken, word = "bucket lists late (3 s)", {"late": Broken(before=3.0)}, "list-type"


class PowerCutInUpload(_Bucket):
    """All processes are killed when the bucket gets, or has just stored, a file of a result."""

    name, ends = "power cut in the middle of an upload", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        count, word, before = (
            luck.randrange(1, 4),
            luck.choice(["curves", "records", "journal", ""]),
            luck.random() < 0.5,
        )
        reached = threading.Event()

        def rule(number: int, method: str, path: str) -> Broken:
            nonlocal count
            if method == "PUT" and word in path:
                count -= 1
                if count == 0:
                    reached.set()
                    return Broken(reset=True) if before else Broken(after=0.5)
            return NO_FAULT

        site.bench.bucket.rule = rule
        site.until(lambda: reached.is_set() or not site.running, "the bucket gets a file", pause=0.005)
        alive = site.running
        site.kill_all()
        return alive


KINDS = (Denied, DeniedWrites, ServerError, Slow, Broke, ListsLate, PowerCutInUpload)
