"""What every kind of fault has."""

from __future__ import annotations

import random
from typing import ClassVar

from tests.campaign.bench import Bench
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class Fault:
    """One fault; a kind is a subclass. ``inject`` and ``heal`` of one fault belong together.

    Attributes:
        name: of the kind.
        at_rest: it hits files between two commands, not a command.
        ends: the command that it hits ends by it.
        finishes: the study is done afterwards.
        early: it may hit a command at any moment from its first, before it has trained anything.
        alone: no other fault may hit the same command.
        rare: where it is drawn, there is often nothing to harm, and so it is drawn twice as often.
        seconds: how long it lasts, at least and at most.
    """

    name: ClassVar[str]
    at_rest: ClassVar[bool] = False
    ends: ClassVar[bool] = False
    finishes: ClassVar[bool] = False
    early: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    rare: ClassVar[bool] = False
    seconds: ClassVar[tuple[float, float]] = (1.0, 4.0)

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        """Whether it can hit this scenario here."""
        return not scenario.hosts

    def prepare(self, site: Site, luck: random.Random) -> None:
        """Before the command that it is to hit starts."""

    def inject(self, site: Site, luck: random.Random) -> bool:
        """Do harm; False where there was nothing to harm."""
        raise NotImplementedError

    def heal(self, site: Site) -> None:
        """End it, where ``Site.heal`` does not."""
