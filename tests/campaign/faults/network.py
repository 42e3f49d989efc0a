"""The bucket of the results refuses, fails, is slow, or breaks its connections."""

from __future__ import annotations

import random
import threading
from typing import ClassVar

from fault_proxy import NO_FAULT
from fault_proxy import Fault as Broken
from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site

_ERROR = (
    "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{}</Code><Message>a fault was injected here</Message></Error>"
)


class _Bucket(Fault):
    """A proxy treats some requests as ``broken`` says.

    Attributes:
        share: of the requests, which are drawn.
        word: in the request's path; else it passes.
    """

    broken: ClassVar[Broken]
    share: ClassVar[float] = 1.0
    word: ClassVar[str] = ""
    seconds = (2.0, 10.0)

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store == "bucket" and not scenario.hosts

    def inject(self, site: Site, luck: random.Random) -> bool:
        seed = luck.random()

        def rule(number: int, method: str, path: str) -> Broken:
            hit = random.Random(f"{seed} {number}").random() < self.share and self.word in path
            return self.broken if hit else NO_FAULT

        site.bench.bucket.rule = rule
        return True


class Denied(_Bucket):
    name, broken = "bucket refuses (403)", Broken(status=403, body=_ERROR.format("AccessDenied").encode())


class DeniedWrites(_Bucket):
    """As a quota that is used up: it can be read."""

    name = "bucket refuses to be written (403)"

    def inject(self, site: Site, luck: random.Random) -> bool:
        denied = Broken(status=403, body=_ERROR.format("QuotaExceeded").encode())
        site.bench.bucket.rule = lambda number, method, path: denied if method in ("PUT", "POST") else NO_FAULT
        return True


class ServerError(_Bucket):
    name, broken = "bucket fails (500)", Broken(status=500, body=_ERROR.format("InternalError").encode())


class HalfServerError(_Bucket):
    name, share = "bucket fails at every second request (503)", 0.5
    broken = Broken(status=503, body=_ERROR.format("SlowDown").encode())


class Slow(_Bucket):
    name, broken = "bucket is slow (1 s)", Broken(after=1.0)


class Cut(_Bucket):
    name, broken, share = "bucket cuts answers", Broken(cut=True), 0.5


class Reset(_Bucket):
    name, broken = "bucket resets connections", Broken(reset=True)


class ListsLate(_Bucket):
    name, broken, word = "bucket lists late (3 s)", Broken(before=3.0), "list-type"


class PowerCutInUpload(_Bucket):
    """All processes are killed when the bucket gets, or has just stored, a file of a result."""

    name, ends, alone = "power cut in the middle of an upload", True, True

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


KINDS = (Denied, DeniedWrites, ServerError, HalfServerError, Slow, Cut, Reset, ListsLate, PowerCutInUpload)
