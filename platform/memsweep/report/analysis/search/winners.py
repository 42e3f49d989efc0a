"""The winners of a search: their values in the search, and on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd

from memsweep.errors import MemsweepError, StoreError
from memsweep.report.read.study import Study
from memsweep.search.history import SearchHistory
from memsweep.search.suggestions import SuggestionRecord, SuggestionState
from memsweep.search.winners import best
from memsweep.stability.comparison.metrics import TABLES, per_seed
from memsweep.stability.comparison.selection_bias import Gap, optimism


@dataclass(frozen=True)
class Worth:
    """One objective of a winner: its value in the search, and on fresh seeds.

    Attributes:
        objective: its name.
        values: both medians, the interval of the fresh one, and their difference; without fresh seeds, all but the
            search's median are nan.
        search_seeds: how many chose it.
        seeds: how many are fresh.
    """

    objective: str
    values: Gap
    search_seeds: int
    seeds: int


@dataclass(frozen=True)
class Winner:
    """One of the best suggestions of a cell.

    Attributes:
        cell: its number.
        rank: from 1.
        member: the suggestion.
        chosen: identity of its row in the search.
        confirmed: identity of the row that retrained it; empty while there is none.
        worth: of each objective.
    """

    cell: int
    rank: int
    member: SuggestionRecord
    chosen: str
    confirmed: str
    worth: tuple[Worth, ...]


def winners_of(study: Study, history: SearchHistory) -> tuple[Winner, ...]:
    """The winners of each cell by rank; while none were chosen yet, the best so far."""
    places = [(cell, rank, member) for cell in range(len(history.cells)) for rank, member in _best(history, cell)]
    chosen = {last_row(member) for _, _, member in places}
    metrics = _Metrics(study, {*chosen, *history.confirmed.values()})
    return tuple(_winner(metrics, history, *place) for place in places)


def last_row(member: SuggestionRecord) -> str:
    """Identity of the row in which a member ended, in the search; empty where it was no valid trial."""
    return member.trials[-1].identity if member.trials else ""


def tables_of(study: Study, identities: Collection[str]) -> dict[str, pd.DataFrame]:
    """The rows of some trials in each of the study's tables."""
    return {name: study.of(name, identities) for name in study.tables}


def finished(members: Sequence[SuggestionRecord]) -> dict[int, SuggestionRecord]:
    """Place -> member, of those whose whole training gave finite values."""
    return {
        place: member
        for place, member in enumerate(members)
        if member.state is SuggestionState.DONE and member.values is not None and all(map(math.isfinite, member.values))
    }


def _best(history: SearchHistory, cell: int) -> list[tuple[int, SuggestionRecord]]:
    """(rank, member): those that were chosen; where nobody was yet, the best of those that came to their end."""
    here = [member for member in history.suggestions if member.cell == cell and member.trials]
    ranked = sorted((member.rank, member.suggestion.number, member) for member in here if member.rank > 0)
    if ranked:
        return [(rank, member) for rank, _, member in ranked]
    known = finished(here)
    values = {place: member.values for place, member in known.items() if member.values is not None}
    return [(1, known[place]) for place in best(values, history.modes, 1)]


def _winner(metrics: _Metrics, history: SearchHistory, cell: int, rank: int, member: SuggestionRecord) -> Winner:
    chosen, confirmed = last_row(member), history.confirmed.get((cell, rank), "")
    worth = []
    for index, (name, mode) in enumerate(zip(history.objective, history.modes, strict=True)):
        seen = member.values[index] if member.values is not None else math.nan
        fresh = metrics.seeds(confirmed, name)
        worth.append(Worth(name, optimism([seen], fresh, mode), len(metrics.seeds(chosen, name)), len(fresh)))
    return Winner(cell, rank, member, chosen, confirmed if metrics.has(confirmed) else "", tuple(worth))


class _Metrics:
    """The metrics of the rows that winners are known by, each row's tables looked up once."""

    def __init__(self, study: Study, identities: Collection[str]) -> None:
        self._records = study.records
        self._tables = {
            name: {} if part.empty else dict(tuple(part.groupby("identity", sort=False)))
            for name, part in tables_of(study, identities).items()
            if name in TABLES
        }

    def has(self, identity: str) -> bool:
        """Whether a row has a result."""
        return identity in self._records

    def seeds(self, identity: str, name: str) -> list[float]:
        """One value per seed of a row; none where it is not known."""
        try:
            return [seed.value for seed in per_seed(name, self._of(identity))]
        except MemsweepError:
            return []

    def _of(self, identity: str) -> dict[str, pd.DataFrame]:
        if identity not in self._tables["replicas"]:
            raise StoreError(f"the row {identity} has no result.")
        return {name: parts.get(identity, pd.DataFrame()) for name, parts in self._tables.items()}
