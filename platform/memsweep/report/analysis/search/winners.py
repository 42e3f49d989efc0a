"""The winners of a search: their values in the search, and on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.schema.search import BALL_OF
from memsweep.config.schema.trial import METRIC, SELF
from memsweep.errors import MemsweepError, StoreError, counted
from memsweep.report.naming.cells import settings_text
from memsweep.report.read.study import Study
from memsweep.search.history import SearchHistory
from memsweep.search.suggestions import SuggestionRecord, SuggestionState
from memsweep.search.winners import best, front
from memsweep.stability.comparison.differences import alike
from memsweep.stability.comparison.metrics import TABLES, per_seed
from memsweep.stability.comparison.selection_bias import Gap, optimism
from memsweep.stability.verdict.radius import curves_of


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
        front: how many suggestions are on the cell's Pareto front, it among them; with one objective 1.
        equal: with one objective, how many suggestions of other settings have its value in the search, but for
            rounding.
        fit: where a radius is an objective, the seeds whose model approximates its target, and all of them.
        reading: what its radii are read from; empty where none is an objective.
        turns: the settings of earlier stretches of its training, as its config holds them.
    """

    cell: int
    rank: int
    member: SuggestionRecord
    chosen: str
    confirmed: str
    worth: tuple[Worth, ...]
    front: int = 1
    equal: int = 0
    fit: tuple[int, int] = (0, 0)
    reading: str = ""
    turns: tuple[Mapping[str, Any], ...] = ()

    @property
    def settings(self) -> str:
        """Its settings in words, stage by stage where they change on the way."""
        return settings_text(self.member.suggestion.values, self.turns)


def misfit(winner: Winner) -> str:
    """``fits its target in 0 of 3 seeds``; empty where all do, or no radius was searched."""
    fitting, seeds = winner.fit
    verb = {METRIC: "solves its task", SELF: "answers"}.get(winner.reading, "fits its target")
    return f"{verb} in {fitting} of {counted(seeds, 'seed')}" if fitting < seeds else ""


def winners_of(study: Study, history: SearchHistory) -> tuple[Winner, ...]:
    """The winners of each cell by rank; while none were chosen yet, the best so far."""
    places = [(cell, rank, member) for cell in range(len(history.cells)) for rank, member in _best(history, cell)]
    chosen = {last_row(member) for _, _, member in places}
    metrics = _Metrics(study, {*chosen, *history.confirmed.values()})
    several, cells = len(history.objective) > 1, range(len(history.cells))
    fronts = {cell: len(on_front(_of_cell(history, cell), history.modes)) if several else 1 for cell in cells}
    return tuple(_winner(metrics, history, fronts[cell], cell, rank, member) for cell, rank, member in places)


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


def on_front(members: Sequence[SuggestionRecord], modes: Sequence[str]) -> list[SuggestionRecord]:
    """The finished members that no other surpasses in one objective without being worse in another, by the first."""
    known = finished(members)
    signs = [1.0 if mode == "min" else -1.0 for mode in modes]
    costs = {
        place: tuple(sign * value for sign, value in zip(signs, member.values or (), strict=True))
        for place, member in known.items()
    }
    return [known[place] for place in sorted(front(costs), key=lambda place: costs[place])]


def _best(history: SearchHistory, cell: int) -> list[tuple[int, SuggestionRecord]]:
    """(rank, member): those that were chosen; where nobody was yet, the best of those that came to their end."""
    here = _of_cell(history, cell)
    ranked = sorted((member.rank, member.suggestion.number, member) for member in here if member.rank > 0)
    if ranked:
        return [(rank, member) for rank, _, member in ranked]
    known = finished(here)
    values = {place: member.values for place, member in known.items() if member.values is not None}
    return [(1, known[place]) for place in best(values, history.modes, 1)]


def _of_cell(history: SearchHistory, cell: int) -> list[SuggestionRecord]:
    return [member for member in history.suggestions if member.cell == cell and member.trials]


def _winner(
    metrics: _Metrics, history: SearchHistory, among: int, cell: int, rank: int, member: SuggestionRecord
) -> Winner:
    chosen, confirmed = last_row(member), history.confirmed.get((cell, rank), "")
    worth = []
    for index, (name, mode) in enumerate(zip(history.objective, history.modes, strict=True)):
        seen = member.values[index] if member.values is not None else math.nan
        fresh = metrics.seeds(confirmed, name)
        worth.append(Worth(name, optimism([seen], fresh, mode), len(metrics.seeds(chosen, name)), len(fresh)))
    confirmed = confirmed if metrics.has(confirmed) else ""
    fit, reading = metrics.fit(confirmed or chosen, history.objective)
    others = [
        one.values[0]
        for one in finished(_of_cell(history, cell)).values()
        if one.values and one.suggestion.values != member.suggestion.values
    ]
    return Winner(
        cell,
        rank,
        member,
        chosen,
        confirmed,
        tuple(worth),
        front=among,
        equal=sum(alike(value, worth[0].values.search) for value in others) if len(worth) == 1 else 0,
        fit=fit,
        reading=reading,
        turns=metrics.turns(confirmed or chosen),
    )


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

    def fit(self, identity: str, objectives: Sequence[str]) -> tuple[tuple[int, int], str]:
        """``Winner.fit`` and ``Winner.reading`` of a row."""
        ball = next((BALL_OF[name] for name in objectives if name in BALL_OF), None)
        if ball is None or not self.has(identity):
            return (0, 0), ""
        table = self._of(identity)["curves"]
        curves = [*curves_of(table[table["ball"] == ball].assign(width=0, horizon=0))] if len(table) else []
        return (sum(curve.valid for curve in curves), len(curves)), curves[0].reading if curves else ""

    def turns(self, identity: str) -> tuple[Mapping[str, Any], ...]:
        """The settings of earlier stretches of a row's training."""
        return tuple(self._records[identity]["config"]["training"].get("turns") or ()) if self.has(identity) else ()

    def _of(self, identity: str) -> dict[str, pd.DataFrame]:
        if identity not in self._tables["replicas"]:
            raise StoreError(f"the row {identity} has no result.")
        return {name: parts.get(identity, pd.DataFrame()) for name, parts in self._tables.items()}
