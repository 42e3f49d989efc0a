"""The trials of one run: those of a grid, known before it, or those of a search, which grow round by round."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsweep.studies.extension import with_kept_states
from memsweep.sweep.planning.plan import Plan, PlannedTrial, make_plan
from memsweep.sweep.planning.reuse import Reuse, find_reusable, with_stored_training
from memsweep.sweep.store.filesystem import Location, storage_errors

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.results import Store


@dataclass(frozen=True)
class Request:
    """The request for a run.

    Attributes:
        sweep: the study.
        trials: its trials; empty for a search, which makes them round by round.
        only: identities to run; None for all that have no result.
        retry_all: also run trials that failed in the same way too often.
        no_reuse: recompute everything.
        begun: with ``no_reuse``: an earlier command, which was stopped, has begun with it; this one goes on.
        tracking: params and tags of the sweep's run in MLflow; None for those of a new run.
        plan: the stored plan that the command continues; None where it needs none.
        measures: train nothing: every trial's trained weights are stored.
        extended: what ``extend`` added to the study, as of ``StoredPlan``; None: as the stored plan says.
        drop_extended: a plan without what ``extend`` added may replace one that has it.
        command: as it was typed, for the report; empty where none was.
        overrides: in which the study differs from its file.
        source: the study as the command named it, by its name or its file; empty where none did.
    """

    sweep: SweepConfig
    trials: tuple[PlannedTrial, ...]
    only: frozenset[str] | None = None
    retry_all: bool = False
    no_reuse: bool = False
    begun: bool = False
    tracking: Mapping[str, Any] | None = None
    plan: StoredPlan | None = None
    measures: bool = False
    extended: tuple[str, ...] | None = None
    drop_extended: bool = False
    command: str = ""
    overrides: tuple[str, ...] = ()
    source: str = ""

    def postponed(self, trials: Collection[PlannedTrial]) -> frozenset[str]:
        """Identities of trials that the command does not run now."""
        return frozenset(t.identity for t in trials if self.only is not None and t.identity not in self.only)


class GridTrials:
    """The trials of a grid.

    Args:
        request: what is asked for.
        store: the study's results.
        results: the folder of all studies.
        failed_often: identities that failed so often in the same way that they are not tried again.

    Attributes:
        plan: all trials so far, with packs of those to run next.
        stored: identities that had a result before the run.
        reuse: the results that need no work.
        gave_up: the identities of ``failed_often`` that lack a result of this study.
        postponed: number of trials without a result that the command does not run.
        rounds: rounds of the search so far.
        complete: no trials will be added.
    """

    rounds = 0
    complete = True

    def __init__(self, request: Request, store: Store, results: Location, failed_often: frozenset[str]) -> None:
        self._store, self._anew = store, request.no_reuse and not request.begun
        self.reuse = Reuse()
        if not self._anew:
            self.reuse = find_reusable(request.trials, store, None if request.no_reuse else results)
        missing = frozenset(trial.identity for trial in request.trials) - self.reuse.all
        self.gave_up = failed_often & missing
        postponed = request.postponed(request.trials)
        self.postponed = len(postponed & missing)
        trials = request.trials
        if not request.no_reuse:
            trials = with_stored_training(trials, self.reuse.all, results)
            trials = with_kept_states(trials, self.reuse.all, store)
        self.plan = make_plan(
            request.sweep, trials, self.reuse.all, self.gave_up | postponed, measures=request.measures
        )
        self.stored = self.plan.done

    @property
    def all(self) -> tuple[PlannedTrial, ...]:
        """Every trial so far."""
        return self.plan.trials

    def restart(self) -> None:
        """Sets aside what is recomputed, before the plan says that this has begun."""
        if self._anew:
            for identity in self._store.identities() & {trial.identity for trial in self.plan.trials}:
                self._store.set_aside(identity)
            self._store.forget_checkpoints()

    def prepare_folder(self) -> None:
        """Brings the study's folder in line with the plan: copies reused results, sets damaged ones aside."""
        self.reuse.apply(self._store)

    def next_plan(self, failed: Collection[str]) -> Plan | None:
        """No plan follows the one of a grid."""
        return None

    def news(self) -> list[str]:
        """A grid has no rounds to report."""
        return []

    def ended(self, stored: Collection[str]) -> bool:
        """Whether nothing is left to compute, with these results."""
        return {trial.identity for trial in self.plan.trials} <= set(stored)


class SearchTrials:
    """The trials of a study with a search; attributes and methods as of ``GridTrials``.

    Args:
        request: what is asked for.
        store: the study's results.
        results: the folder of all studies.
        failed_often: identities that failed so often in the same way that they are not tried again.

    Raises:
        MemsweepError: the trials of the stored rounds differ from those of the installed code, though the request
            continues a stored plan.
        StoreError: the storage cannot be read or written.
    """

    def __init__(self, request: Request, store: Store, results: Location, failed_often: frozenset[str]) -> None:
        from memsweep.search.study_search import StudySearch

        self._sweep, self._store, self._anew = request.sweep, store, request.no_reuse and not request.begun
        self._results = None if request.no_reuse else results
        self._checked: set[str] = set()
        self.reuse = Reuse()
        if self._anew:
            _restart_search(store)
        self._search = StudySearch(request.sweep, store, same_code=request.plan is not None)
        self._advance(failed_often)
        postponed = request.postponed(self.all)
        self.plan = self._plan(failed_often | postponed, request.only or ())
        self.stored = self.plan.done
        self.gave_up = failed_often & (self._search.trials.keys() - self.reuse.all)
        self.postponed = len(postponed - self.stored)

    @property
    def all(self) -> tuple[PlannedTrial, ...]:
        return tuple(self._search.ordered_trials)

    @property
    def rounds(self) -> int:
        return self._search.rounds

    @property
    def complete(self) -> bool:
        return self._search.ended

    def restart(self) -> None:
        """Nothing is left to do: the search has started again before its first round."""

    def prepare_folder(self) -> None:
        """Nothing is left to do: each round prepared its results, because the next round follows from them."""

    def next_plan(self, failed: Collection[str]) -> Plan | None:
        """The plan of the next round; None when nothing is left to run. ``failed``: identities that get no result."""
        unfinished = self._advance({*self.gave_up, *failed})
        self.plan = self._plan(self.gave_up)
        return self.plan if unfinished else None

    def news(self) -> list[str]:
        """Lines for the person when a round begins: how far the search is, its best values."""
        return self._search.summary()

    def ended(self, stored: Collection[str]) -> bool:
        """Whether the winners are confirmed; suggestions that failed are part of a search."""
        return self.complete and all(trial.identity in stored for trial in self._search.current_trials)

    def _advance(self, failed: Collection[str]) -> bool:
        """Goes through the rounds as far as results allow; whether the present round has trials to run."""
        while self._search.advance(failed):
            new = [trial for trial in self._search.current_trials if trial.identity not in self._checked]
            self._checked |= {trial.identity for trial in new}
            reuse = Reuse() if self._anew else find_reusable(new, self._store, self._results)
            reuse.apply(self._store)
            self.reuse |= reuse
        missing = {trial.identity for trial in self._search.current_trials} - self.reuse.all - set(failed)
        return any(not self._store.has(identity) for identity in missing)

    def _plan(self, excluded: Collection[str], again: Collection[str] = ()) -> Plan:
        """All trials so far, with packs of the present round and of the trials ``again`` of earlier rounds."""
        earlier = [self._search.trials[name] for name in sorted(again) if name in self._search.trials]
        present = {trial.identity: trial for trial in (*self._search.current_trials, *earlier)}
        done = frozenset(self._store.identities() & self._search.trials.keys())
        plan = make_plan(self._sweep, list(present.values()), present.keys() & done, excluded)
        return dataclasses.replace(plan, trials=self.all, done=done)


Trials = GridTrials | SearchTrials


def _restart_search(store: Store) -> None:
    """Sets every result aside and deletes the log of the rounds, so that the search starts again."""
    from memsweep.search.round_log import FOLDER

    for identity in store.identities():
        store.set_aside(identity)
    store.forget_checkpoints()
    store.forget_states()
    with storage_errors("write", store.location):
        (store.location / FOLDER).delete_all()
