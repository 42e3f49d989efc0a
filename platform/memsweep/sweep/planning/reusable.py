"""Which rows of a study have a result already, here or in another study, and which of these are damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store, find_elsewhere

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan import PlannedTrial


@dataclass(frozen=True)
class Reuse:
    """Which results need no work.

    Attributes:
        here: identities stored in this study, whole.
        elsewhere: identities that another study of the results folder holds -> its folder.
        damaged: identities stored in this study whose files are not what was written -> what is wrong.
    """

    here: frozenset[str]
    elsewhere: dict[str, Location]
    damaged: dict[str, str]

    @property
    def all(self) -> frozenset[str]:
        """Every identity that needs no work."""
        return self.here | self.elsewhere.keys()


def reusable(trials: Sequence[PlannedTrial], store: Store, results: Location, *, no_reuse: bool = False) -> Reuse:
    """What is stored of these rows; every file of what is to be reused is read and checked."""
    if no_reuse:
        return Reuse(frozenset(), {}, {})
    wanted = {trial.identity for trial in trials}
    stored = wanted & store.identities()
    damaged = store.check(stored)
    here = stored - damaged.keys()
    return Reuse(frozenset(here), find_elsewhere(results, wanted - here), damaged)
