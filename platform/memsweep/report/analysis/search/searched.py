"""The result of a search, cell by cell: the winners, their values in the search, and their values on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from memsweep.config.schema.search import LOG_INT, LOG_UNIFORM, MAX, Domain
from memsweep.report.analysis.search.winners import Winner, tables_of, winners_of
from memsweep.report.naming.cells import Cells
from memsweep.report.naming.conditions import OF_A_SEARCH, RATE
from memsweep.report.naming.numbers import is_number
from memsweep.report.read.study import Study
from memsweep.search.history import SearchHistory
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

_NEAR = 0.05
"""Share of an interval, of its logarithm where it is searched so, that counts as its end."""


@dataclass(frozen=True)
class AtEnd:
    """Winners at one end of a searched field, beyond which better values may lie.

    Attributes:
        field: its dotted path.
        end: the least or the greatest value that was searched.
        greatest: whether it is the greatest.
        exact: whether winners have this very value; of an interval they are close to it.
        cells: how many have their winner there.
        of: how many have a winner that has this field.
    """

    field: str
    end: float
    greatest: bool
    exact: bool
    cells: int
    of: int


@dataclass(frozen=True)
class Searched:
    """A search beside the results of its rows.

    Attributes:
        history: the suggestions and their results.
        cells: their names.
        winners: by cell, then rank.
        fresh: whether winners were, or will be, retrained with seeds that were not used for the selection.
    """

    history: SearchHistory
    cells: Cells
    winners: tuple[Winner, ...]
    fresh: bool

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the objectives."""
        return self.history.objective

    def of_cell(self, cell: int) -> list[SuggestionRecord]:
        """The members that trained in a cell, in the order in which they were suggested."""
        members = (member for member in self.history.suggestions if member.cell == cell and member.trials)
        return sorted(members, key=lambda member: member.suggestion.number)

    def winner(self, cell: int) -> Winner | None:
        """The best of a cell; None before any suggestion has finished."""
        return next((winner for winner in self.winners if winner.cell == cell and winner.rank == 1), None)

    def basin(self, winner: Winner, field: str) -> tuple[float, float]:
        """The smallest and the largest value of a field that does as well as the winner's, among those suggested.

        As well: by its value in the search, the first objective lies within the 95 % interval of the winner's on fresh
        seeds. Without an interval the winner stands alone.
        """
        values, (sign, limit) = [float(winner.member.suggestion.values[field])], self._limit(winner)
        if math.isfinite(limit):
            values += [
                float(member.suggestion.values[field])
                for member in self.of_cell(winner.cell)
                if member.values is not None
                and member.state is SuggestionState.DONE
                and field in member.suggestion.values
                and sign * member.values[0] <= limit
            ]
        return min(values), max(values)

    def bracket(self, winner: Winner, field: str) -> tuple[float, float]:
        """The values of a field between which the best one lies: the next ones, beyond the basin, that do worse.

        The ends of what was searched where none is worse; both ends without an interval on fresh seeds.
        """
        ends = [float(end) for end in self.history.space[field].ends]
        if not math.isfinite(self._limit(winner)[1]):
            return min(ends), max(ends)
        least, greatest = self.basin(winner, field)
        ended = (SuggestionState.DONE, SuggestionState.DIVERGED)
        tried = [
            float(member.suggestion.values[field])
            for member in self.of_cell(winner.cell)
            if member.state in ended and field in member.suggestion.values
        ]
        below, above = ([v for v in tried if v < least], [v for v in tried if v > greatest])
        return max(below, default=min(ends)), min(above, default=max(ends))

    def _limit(self, winner: Winner) -> tuple[float, float]:
        """The sign by which the first objective is small, and the largest that is as good as the winner's so."""
        worth, sign = winner.worth[0].values, -1.0 if self.history.modes[0] == MAX else 1.0
        return sign, sign * (worth.low if sign < 0 else worth.high)

    def at_ends(self) -> list[AtEnd]:
        """The ends at which cells have their winner, of fields with a range: an interval, or at least three numbers.

        In an interval the outer 5 % are its end. Zero is no end: what is searched down to zero has nothing below.
        """
        found = []
        for field, domain in self.history.space.items():
            first = [winner.member.suggestion.values for winner in self.winners if winner.rank == 1]
            values = [float(each[field]) for each in first if field in each] if _has_range(domain) else []
            for greatest in (True, False):
                end = float((max if greatest else min)(domain.ends)) if values else 0.0
                cells = sum(_is_near(value, end, domain) for value in values)
                if cells and end:
                    found.append(AtEnd(field, end, greatest, not domain.is_numeric, cells, len(values)))
        return found

    @property
    def measured(self) -> tuple[str, ...]:
        """Of each cell, the identity of the best suggestion's row: the retrained one where winners are confirmed."""
        first = [winner for winner in self.winners if winner.rank == 1]
        named = (winner.confirmed if self.fresh else winner.chosen for winner in first)
        return tuple(identity for identity in named if identity)

    @property
    def ignored(self) -> frozenset[str]:
        """Paths of fields that tell no conditions apart: the searched ones, and the seeds of a confirmation."""
        return frozenset({*self.history.space, *OF_A_SEARCH} - {*self.cells.axes})


def read_searched(study: Study, history: SearchHistory) -> Searched:
    """Put a search beside the results of its rows."""
    cells = Cells.of(history.cells, history.space)
    return Searched(history, cells, winners_of(study, history), bool(history.confirmed))


def winners_part(study: Study, searched: Searched) -> Study:
    """The study of the winners alone, from which verdicts, radii and losses are made."""
    kept = [identity for identity in searched.measured if identity in study.records]
    tables = {name: _in_order(table, kept) for name, table in tables_of(study, kept).items()}
    return replace(study, records={identity: study.records[identity] for identity in kept}, tables=tables)


def scan_of(study: Study, searched: Searched) -> Study | None:
    """The study of all trials of a search over the learning rate alone; None for any other search."""
    if set(searched.history.space) != {RATE}:
        return None
    rows = [row.identity for member in searched.history.suggestions for row in member.trials]
    kept = [identity for identity in study.records if identity in {*rows}]
    records = {identity: study.records[identity] for identity in kept}
    return replace(study, records=records, tables=tables_of(study, kept))


def _has_range(domain: Domain) -> bool:
    if domain.is_numeric:
        return domain.low < domain.high
    return len(domain.values) > 2 and all(map(is_number, domain.values))


def _is_near(value: float, end: float, domain: Domain) -> bool:
    if not domain.is_numeric:
        return value == end
    if domain.kind in (LOG_UNIFORM, LOG_INT):
        return abs(math.log(value / end)) <= _NEAR * math.log(domain.high / domain.low)
    return abs(value - end) <= _NEAR * (domain.high - domain.low)


def _in_order(table: pd.DataFrame, identities: Sequence[str]) -> pd.DataFrame:
    """The rows trial by trial in this order, which is that of the cells; they were run in another."""
    place = {identity: index for index, identity in enumerate(identities)}
    return table.iloc[np.argsort(table["identity"].map(place).to_numpy(int), kind="stable")]
