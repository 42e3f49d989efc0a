"""A search as a verb carries it out: rounds of rows, whatever of them is stored already, and the plan of the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from memsweep.search.round_log import FOLDER
from memsweep.search.study_search import Results, StudySearch
from memsweep.sweep.planning.plan import Plan, PlannedTrial, make_plan
from memsweep.sweep.planning.reuse import Reuse, find_reusable
from memsweep.sweep.store.filesystem import Location, storage_errors

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.search.warm_start import EarlierStudy
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.store.results import Store


class Searching:
    """The rows of a study with a search, as far as they are known.

    Args:
        sweep: the study.
        store: its results.
        results: the folder of all studies.
        same_code: go on with the rounds that are stored, and with no other code than theirs.
        no_reuse: compute every row anew.

    Attributes:
        study_search: the search.
        reuse: which of its rows had a result.
        warmth: what an earlier study had to say, in a sentence; empty where none was asked.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        store: Store,
        results: Location,
        *,
        same_code: bool = False,
        no_reuse: bool = False,
    ) -> None:
        self._sweep, self._store, self._results, self._no_reuse = sweep, store, results, no_reuse
        self._looked_at: set[str] = set()
        self.reuse = Reuse()
        if no_reuse:
            _set_aside(store)
        earlier = _earlier(sweep, results)
        self.study_search = StudySearch(sweep, store, earlier or _nothing, same_code=same_code)
        self.warmth = earlier.summary() if earlier else ""

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """Every row so far."""
        return tuple(self.study_search.ordered_trials)

    def grow(self, failed: Collection[str]) -> bool:
        """Go through the rounds as far as results allow.

        Args:
            failed: identities that have no result and will get none now.

        Returns:
            Whether there is something to run.

        Raises:
            MemsweepError: the rows of the stored rounds are other trials to what is installed now, and should not be.
            StoreError: the storage cannot be read or written.
        """
        while self.study_search.advance(failed):
            self._reuse()
        missing = {trial.identity for trial in self.study_search.current_trials} - self.reuse.all - set(failed)
        return any(not self._store.has(identity) for identity in missing)

    def plan(self, apart: Collection[str], again: Collection[str] = ()) -> Plan:
        """All rows so far, with the packs of the present round.

        Args:
            apart: identities without a result that are not to be run now.
            again: identities of earlier rounds that are to be run nevertheless.
        """
        present = list({t.identity: t for t in (*self.study_search.current_trials, *self._named(again))}.values())
        done = self._store.identities() & self.study_search.trials.keys()
        made = make_plan(self._sweep, present, {t.identity for t in present} & done, apart)
        return dataclasses.replace(made, trials=self.trials, done=frozenset(done))

    def _named(self, names: Collection[str]) -> list[PlannedTrial]:
        return [self.study_search.trials[name] for name in sorted(names) if name in self.study_search.trials]

    def follow(
        self, left_alone: Collection[str], on_rows: Callable[[Plan, Collection[str]], None]
    ) -> Callable[[RunSummary], Plan | None]:
        """What the runner asks after each round: the plan of the next one.

        Args:
            left_alone: identities that have failed too often to be tried again.
            on_rows: told the plan of each new round, to write it down before it runs, and which of its new rows have a
                result.
        """

        def next_plan(summary: RunSummary) -> Plan | None:
            known, rounds = set(self.study_search.trials), self.study_search.rounds
            more = self.grow({*left_alone, *summary.failed})
            made = self.plan(left_alone)
            if self.study_search.rounds != rounds:
                on_rows(made, made.done - known)
            return made if more else None

        return next_plan

    def news(self) -> list[str]:
        """What a person wants to hear when a round begins: how far the search is, and what it found last."""
        return self.study_search.summary()

    def _reuse(self) -> None:
        """Take what other studies have of the present rows, and set damaged results aside, so that they run anew."""
        new = [trial for trial in self.study_search.current_trials if trial.identity not in self._looked_at]
        self._looked_at |= {trial.identity for trial in new}
        found = Reuse() if self._no_reuse else find_reusable(new, self._store, self._results)
        found.apply(self._store)
        self.reuse |= found


def _earlier(sweep: SweepConfig, results: Location) -> EarlierStudy | None:
    """The study whose results the sampler hears first, where ``search.warm_start`` names one.

    Raises:
        MemsweepError: there is no such study.
    """
    if sweep.search is None or not sweep.search.settings.warm_start:
        return None
    from memsweep.commands.stored import find_study
    from memsweep.search.warm_start import EarlierStudy

    return EarlierStudy(find_study(sweep.search.settings.warm_start, results), sweep.search)


def _nothing(cell: TrialConfig) -> Results:
    return ()


def _set_aside(store: Store) -> None:
    """Begin a search anew: every result, and what its rounds decided, goes out of the way."""
    for identity in store.identities():
        store.set_aside(identity)
    store.forget_checkpoints()
    store.forget_states()
    with storage_errors("write", store.location):
        (store.location / FOLDER).delete_all()
