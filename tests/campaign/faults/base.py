"""The base of every kind of fault."""

from __future__ import annotations

import random
from typing import ClassVar

from tests.campaign.bench import Bench
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class Fault:
    """One fault; a kind is a subclass. ``inject``, ``felt`` and ``heal`` of one fault belong together.

    Attributes:
        name: of the kind.
        at_rest: it hits files between two commands, not a command.
        ends: the command that it hits ends by it.
        fails: a trial that it hits may count as failed.
        finishes: the study is done afterwards.
        early: it may hit a command at any moment from its first, before it has trained anything.
        alone: no other fault may hit the same command.
        from_start: it is there when its command starts; a command meets one of the kind.
        seconds: how long it lasts, at least and at most; another fault may join one that lasts.
        how: what was drawn within the kind, for the round's line.
    """

    name: ClassVar[str]
    at_rest: ClassVar[bool] = False
    ends: ClassVar[bool] = False
    fails: ClassVar[bool] = False
    finishes: ClassVar[bool] = False
    early: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    from_start: ClassVar[bool] = False
    seconds: ClassVar[tuple[float, float]] = (0.5, 2.0)
    how: str = ""

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        """Whether it can hit this scenario here."""
        return not scenario.hosts

    @classmethod
    def ends_in(cls, scenario: Scenario) -> bool:
        """Whether the command that it hits ends by it in this scenario."""
        return cls.ends

    def prepare(self, site: Site, luck: random.Random) -> None:
        """Before the command that it is to hit starts."""

    def inject(self, site: Site, luck: random.Random) -> bool:
        """Do harm; False where there was nothing to harm."""
        raise NotImplementedError

    def felt(self, site: Site) -> bool:
        """Whether anything has met it since; asked before ``heal``."""
        return True

    def heal(self, site: Site) -> None:
        """End it, where ``Site.heal`` does not."""
