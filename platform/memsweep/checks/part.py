"""A check as a part of the audit: a module of one of the sub-rooms that holds a ``CHECK``; nothing else names it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from memsweep.checks.finding import Finding
from memsweep.checks.subject import Subject


@dataclass(frozen=True)
class Check:
    """One look at a module.

    Attributes:
        name: of its finding.
        look: makes the finding, from the module and from the seconds that it may take.
        place: among all checks, in increasing order.
        share: of the time, against the shares of the checks that follow; what one leaves over goes to the others.
        needs: the checks whose fault makes this one meaningless; it compares calls, which says nothing where two equal
            ones differ.
    """

    name: str
    look: Callable[[Subject, float], Finding]
    place: int
    share: float
    needs: tuple[str, ...] = ("shapes", "determinism")


@cache
def checks() -> tuple[Check, ...]:
    """The checks of all modules below this package, in their order."""
    room = __name__.rpartition(".")[0]
    found = []
    for entry in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
        if entry.name.count(".") > room.count(".") + 1:  # a module of a sub-room
            found.append(getattr(importlib.import_module(entry.name), "CHECK", None))
    return tuple(sorted((each for each in found if each is not None), key=lambda check: check.place))
