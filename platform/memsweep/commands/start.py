"""What a verb begins with: the rows of a study, what of them is there already, and the plan of the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsweep.sweep.planning.reuse import Reuse, find_reusable
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import Row

if TYPE_CHECKING:
    from memsweep.commands.search_run import Searching
    from memsweep.config.schema.study import SweepConfig
    from memsweep.sweep.planning.plan import Plan, PlannedTrial
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.results import Store


@dataclass(frozen=True)
class Intent:
    """What a verb wants.

    Attributes:
        sweep: the study.
        trials: its rows; of a search, which makes them as it goes, none.
        only: run none but these; None for all that have no result.
        poisoned_too: run also what has failed in the same way too often.
        no_reuse: compute every row anew.
        tracking: params and tags of the sweep's own run in MLflow; None for those of a new one.
        plan: the stored plan that this goes on with; None where there need be none.
    """

    sweep: SweepConfig
    trials: tuple[PlannedTrial, ...]
    only: frozenset[str] | None = None
    poisoned_too: bool = False
    no_reuse: bool = False
    tracking: Mapping[str, Any] | None = None
    plan: StoredPlan | None = None


@dataclass(frozen=True)
class Start:
    """The state of a study before anything runs.

    Attributes:
        plan: the rows, and packs of what is to run.
        reuse: what has a result.
        left_alone: rows that have failed in the same way so often that another try would be in vain.
        not_now: rows without a result that the verb does not run.
        searching: the search that makes more rows; None for a grid.
    """

    plan: Plan
    reuse: Reuse
    left_alone: frozenset[str]
    not_now: int
    searching: Searching | None = None

    @property
    def whole(self) -> Plan:
        """The plan with the rows that came to it while it ran."""
        return dataclasses.replace(self.plan, trials=self.searching.trials) if self.searching else self.plan

    @property
    def goes_on(self) -> bool:
        """Whether a search has rounds before it that it has not come to."""
        return self.searching is not None and not self.searching.study_search.ended

    def ended(self, stored: Collection[str]) -> bool:
        """Whether nothing is left to compute, with these results.

        A search has ended when its winners are confirmed; suggestions that failed are part of it.
        """
        if self.searching is None:
            return {trial.identity for trial in self.plan.trials} <= set(stored)
        return not self.goes_on and all(
            trial.identity in stored for trial in self.searching.study_search.current_trials
        )


def begin(intent: Intent, store: Store, results: Location, rows: Mapping[str, Row]) -> Start:
    """Look at what is stored, and plan the rest; a search goes through the rounds that are over.

    Args:
        intent: what the verb wants.
        store: the study's results.
        results: the folder of all studies.
        rows: what the journal knows.

    Raises:
        StoreError: the storage cannot be read.
        MemsweepError: the rows of the stored plan are other trials to what is installed now.
    """
    return _search(intent, store, results, rows) if intent.sweep.search else _grid(intent, store, results, rows)


def _grid(intent: Intent, store: Store, results: Location, rows: Mapping[str, Row]) -> Start:
    from memsweep.sweep.planning.plan import make_plan

    reuse = Reuse() if intent.no_reuse else find_reusable(intent.trials, store, results)
    left_alone = _left_alone(intent, rows, reuse)
    unwanted = _unwanted(intent, intent.trials)
    made = make_plan(intent.sweep, intent.trials, reuse.all, left_alone | unwanted)
    return Start(made, reuse, left_alone, len(unwanted - reuse.all))


def _search(intent: Intent, store: Store, results: Location, rows: Mapping[str, Row]) -> Start:
    from memsweep.commands.search_run import Searching

    goes_on = intent.plan is not None
    searching = Searching(intent.sweep, store, results, same_code=goes_on, no_reuse=intent.no_reuse)
    poisoned = frozenset(name for name, row in rows.items() if row.poisoned)
    left_alone = frozenset() if intent.poisoned_too or intent.no_reuse else poisoned
    searching.grow(left_alone)
    unwanted = _unwanted(intent, searching.trials)
    made = searching.plan(left_alone | unwanted, intent.only or ())
    left_alone &= searching.study_search.trials.keys() - searching.reuse.all
    return Start(made, searching.reuse, left_alone, len(unwanted - made.done), searching)


def _unwanted(intent: Intent, trials: tuple[PlannedTrial, ...]) -> frozenset[str]:
    return frozenset(t.identity for t in trials if intent.only is not None and t.identity not in intent.only)


def _left_alone(intent: Intent, rows: Mapping[str, Row], reuse: Reuse) -> frozenset[str]:
    if intent.poisoned_too or intent.no_reuse:
        return frozenset()
    names = (trial.identity for trial in intent.trials)
    return frozenset(n for n in names if n not in reuse.all and n in rows and rows[n].poisoned)


def settle(start: Start, store: Store, *, anew: bool) -> None:
    """Make the study's folder what the plan says: copy what is reused, set aside what is damaged or computed anew.

    A search has done so on its way: its later rounds follow from what is there.
    """
    if start.searching is not None:
        return
    made = start.plan
    start.reuse.apply(store)
    if anew:
        for identity in store.identities() & {trial.identity for trial in made.trials}:
            store.set_aside(identity)
        store.forget_checkpoints()
