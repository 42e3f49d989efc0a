"""What a search did and found, as reports read it: every suggestion with its end, and the winners' confirmation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import Domain
from memsweep.config.search.sections import modes
from memsweep.search.round_log import FOLDER, Entry, Heard, Ledger, Round
from memsweep.search.trials import Member, MemberState, SearchRow, Suggestion
from memsweep.sweep.store.filesystem import Location, storage_errors

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan_file import StoredPlan


@dataclass(frozen=True)
class SearchHistory:
    """A search as its study's folder holds it.

    Attributes:
        members: every suggestion, in the order in which they were made; of all blocks.
        objective: names of what was searched for.
        modes: ``min`` or ``max``, one for each objective.
        space: dotted path -> domain, of the searched fields.
        cells: canonical config of each cell of the grid, before anything was suggested, in the order of the rows.
        scheduler: who stopped trials early; ``none``.
        algorithm: of the sampler.
        steps: optimizer steps of a whole training.
        confirmed: (cell, rank) -> identity of the row that measured this winner anew; empty without ``confirm``.
        rounds: how many were written down.
        ended: whether all suggestions have ended, and the winners are known.
    """

    members: tuple[Member, ...]
    objective: tuple[str, ...]
    modes: tuple[str, ...]
    space: Mapping[str, Domain]
    cells: tuple[Mapping[str, Any], ...]
    scheduler: str
    algorithm: str
    steps: int
    confirmed: Mapping[tuple[int, int], str]
    rounds: int
    ended: bool = True


def read(place: Location, plan: StoredPlan) -> SearchHistory | None:
    """The search of a study; None where its plan has none.

    Needs neither the study's tasks nor the code that made its numbers: the ledger tells everything.

    Args:
        place: the study's folder.
        plan: as ``sweep.plan_file.read_plan`` gives it.

    Raises:
        StoreError: the storage cannot be read.
    """
    if plan.search is None:
        return None
    blocks = [ledger.read_all() for ledger in _ledgers(place)]
    rounds = [b for b in blocks if any(row.identity in plan.rows for one in b for row in one.rows)]
    rounds.sort(key=lambda block: block[0].block)
    settings = plan.search.settings
    return SearchHistory(
        members=tuple(member for block in rounds for member in _members(block)),
        objective=settings.objective,
        modes=modes(plan.search),
        space=plan.search.space,
        cells=tuple(plan.cells),
        scheduler=settings.scheduler.name,
        algorithm=settings.algorithm,
        steps=max((cell["training"]["steps"] for cell in plan.cells), default=0),
        confirmed={(row.cell, row.rank): row.identity for block in rounds for row in block[-1].rows if row.rank},
        rounds=max(map(len, rounds), default=0),
        ended=all(not block[-1].entries for block in rounds),
    )


def members(place: Location, keys: Iterable[str]) -> tuple[Member, ...]:
    """Every suggestion of these blocks as the ledger has it.

    Args:
        place: the study's folder.
        keys: of the blocks.

    Raises:
        StoreError: the storage cannot be read.
    """
    blocks = [Ledger(place, key).read_all() for key in keys]
    return tuple(member for block in blocks if block for member in _members(block))


def _ledgers(place: Location) -> list[Ledger]:
    with storage_errors("read", place / FOLDER):
        return [Ledger(place, key) for key in (place / FOLDER).folders()]


def _members(rounds: Sequence[Round]) -> Iterator[Member]:
    rows: dict[int, list[SearchRow]] = {}
    entries: dict[int, Entry] = {}
    heard: dict[int, Heard] = {}
    states: dict[int, MemberState] = {}
    suggestions: dict[int, Suggestion] = {}
    ranks: dict[int, int] = {}
    for one in rounds:
        suggestions |= {suggestion.number: suggestion for suggestion in one.suggestions}
        entries |= {entry.number: entry for entry in one.entries}
        heard |= {news.number: news for news in one.heard}
        states |= one.ended or {}
        for row in one.rows:
            if row.rank:
                ranks[row.number] = row.rank
            else:
                rows.setdefault(row.number, []).append(row)
    block = rounds[0].block
    for number, suggestion in suggestions.items():
        now = replace(suggestion, values=entries[number].values)
        news = heard.get(number, Heard(number, 0, None))
        yield Member(
            block,
            now,
            tuple(rows.get(number, ())),
            news.values,
            news.steps,
            states.get(number, MemberState.RUNNING),
            ranks.get(number, 0),
        )
