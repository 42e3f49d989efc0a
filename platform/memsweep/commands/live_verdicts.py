"""Verdicts while a sweep runs: of a grid's conditions as they end, of a search's winners as they are confirmed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsweep.commands.start import Start
    from memsweep.report.analysis.live_verdicts import LiveVerdicts
    from memsweep.sweep.store.results import Store


class Judges:
    """Judges what is to be judged of a run: every row of a grid; of a search the confirmed ones alone.

    Args:
        start: the run as it begins.
        store: the study's results.
    """

    def __init__(self, start: Start, store: Store) -> None:
        self._start, self._store = start, store
        self._live: LiveVerdicts | None = None
        search = start.searching.study_search.search if start.searching is not None else None
        self._searched = tuple(search.space) if search is not None else ()
        if start.searching is None and start.plan.packs:
            self._judge(trial.identity for trial in start.plan.trials)

    def add(self, identity: str) -> list[str]:
        """The lines of a result that has just come: one per ball, where it was the last of its condition."""
        return self._live.add(identity) if self._live is not None and identity in self._judged else []

    def more(self) -> list[str]:
        """The lines that more rows bring: none before a search is over, and its winners are known."""
        searching = self._start.searching
        if searching is None or self._live is not None or not searching.study_search.ended:
            return []
        return self._judge(row.identity for row in searching.study_search.searched if row.rank == 1)

    def _judge(self, identities: Iterable[str]) -> list[str]:
        from memsweep.report.analysis.live_verdicts import LiveVerdicts

        self._judged = set(identities)
        trials = {trial.identity: trial.config for trial in self._start.whole.trials}
        judged = ((name, trials[name]) for name in trials if name in self._judged)
        live = LiveVerdicts(judged, self._store.tables, self._searched)
        self._live = live
        there = self._store.identities() if self._start.searching else self._start.plan.done
        lines = [line for name in sorted(self._judged & there) for line in live.add(name)]
        return lines if self._start.searching else []
