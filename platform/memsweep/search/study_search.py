"""The search of a study: its blocks, their rounds in the ledger, and the rows that the plan gets from them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import CELL, PBT
from memsweep.config.schema.trial import Turn
from memsweep.config.search.sections import confirm_data_seed, confirm_first_seed, modes
from memsweep.config.search.suggestion import config_of, fixed_of, fresh
from memsweep.errors import ConfigError, MemsweepError
from memsweep.search.observations import Outcomes
from memsweep.search.round_log import Entry, Heard, Ledger, Round
from memsweep.search.search import Block
from memsweep.search.trials import MemberState, SearchRow, Suggestion, Told
from memsweep.sweep.planning.identity import Arithmetic, identifying, identity
from memsweep.sweep.planning.plan import PlannedTrial

if TYPE_CHECKING:
    from memsweep.config.schema.search import Search
    from memsweep.config.schema.trial import SweepConfig, TrialConfig
    from memsweep.sweep.store.results import Store

_log = logging.getLogger(__name__)
_WORTH_TELLING = (MemberState.STOPPED, MemberState.DIVERGED, MemberState.FAILED)

Warm = Sequence[tuple[Suggestion, Told]]


@dataclass
class _Running:
    """A block at work.

    Attributes:
        entries: of the present round.
        rows: theirs.
        confirming: the search is over, and its winners' rows are in the plan.
    """

    number: int
    block: Block
    cells: tuple[int, ...]
    ledger: Ledger
    entries: Sequence[Entry] = ()
    rows: list[SearchRow] = field(default_factory=list)
    confirming: bool = False


class Campaign:
    """A study's search, round after round; the rounds that the ledger holds are gone through first.

    Args:
        sweep: a study with a search.
        store: its results.
        warm: results of an earlier study, by ``search.warm``.
        same_code: the rounds of the ledger are to be gone on with, and not to be gone through anew by other code.

    Attributes:
        rows: every row so far, in order; by identity what it is in the search.
        search: what is searched.
        trials: the same rows for the plan, each identity once.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        store: Store,
        warm: Callable[[TrialConfig], Warm] = lambda cell: (),
        *,
        same_code: bool = False,
    ) -> None:
        if sweep.search is None:
            raise ValueError(f"the study {sweep.name!r} searches nothing")
        self.rows: list[SearchRow] = []
        self._places: dict[str, tuple[int, int, int]] = {}
        self.trials: dict[str, PlannedTrial] = {}
        self._sweep, self.search, self._modes = sweep, sweep.search, modes(sweep.search)
        self._same_code = same_code
        self._arithmetic = Arithmetic.of(sweep.resources)
        self._outcomes = Outcomes(store, sweep.search.settings.objective)
        together: list[tuple[int, ...]] = [(index,) for index in range(len(sweep.rows))]
        if sweep.search.settings.scope != CELL:
            together = [tuple(range(len(sweep.rows)))]
        self._blocks = [self._running(number, cells, store, warm) for number, cells in enumerate(together)]

    def advance(self, failed: Collection[str]) -> bool:
        """Let every block whose rows have all ended begin its next round, or confirm its winners.

        Args:
            failed: identities that have no result and will get none now.

        Returns:
            Whether a block has got on.

        Raises:
            MemsweepError: the rows of the ledger are other trials to what is installed now, and should not be.
            StoreError: the storage cannot be read or written.
        """
        before = self.rounds
        for running in self._blocks:
            if not running.confirming:
                self._step(running, failed)
        return self.rounds > before

    @property
    def in_order(self) -> list[PlannedTrial]:
        """Every trial so far, by round and block: the same order however often the search was interrupted."""
        return [self.trials[name] for name in sorted(self._places, key=self._places.__getitem__)]

    @property
    def present(self) -> list[PlannedTrial]:
        """The rows of the present round of every block, finished or not."""
        names = dict.fromkeys(row.identity for running in self._blocks for row in running.rows)
        return [self.trials[name] for name in names]

    @property
    def ended(self) -> bool:
        """Whether no block searches any more; rows of confirmations may still be missing."""
        return all(running.confirming for running in self._blocks)

    @property
    def rounds(self) -> int:
        """Rounds of all blocks together."""
        return sum(running.block.round for running in self._blocks)

    @property
    def keys(self) -> tuple[str, ...]:
        """Name of each block's folder in the ledger, in order."""
        return tuple(running.ledger.block for running in self._blocks)

    def news(self) -> list[str]:
        """How far the search is, in a line."""
        members = [member for running in self._blocks for member in running.block.members.values()]
        states = Counter(member.state for member in members)
        ended = len(members) - states[MemberState.RUNNING]
        parts = [f"{ended} of {len(self._blocks) * self.search.settings.trials} suggestions ended"]
        parts += [f"{states[state]} {state}" for state in _WORTH_TELLING if states[state]]
        best = [self._best(running) for running in self._blocks]
        parts += [text for text in best if text] if len(best) == 1 else []
        if self.ended:
            confirming = sum(1 for row in self.rows if row.rank)
            parts += [f"winners to measure anew: {confirming}"] if confirming else []
        rounds = max(running.block.round for running in self._blocks)
        return [f"search, round {rounds}: {', '.join(parts)}"]

    def _best(self, running: _Running) -> str:
        winners = running.block.winners(1)
        if not winners:
            return ""
        values = running.block.members[winners[0]].values or ()
        return "best " + ", ".join(
            f"{name} {value:.4g}" for name, value in zip(self.search.settings.objective, values, strict=True)
        )

    def _running(self, number: int, cells: tuple[int, ...], store: Store, warm: Callable[[Any], Warm]) -> _Running:
        first = self._sweep.rows[cells[0]]
        key = _key(self.search, [self._sweep.rows[cell] for cell in cells])
        fixed = fixed_of(first, self.search.space)
        ledger = Ledger(store.location, key)
        told = ledger.warm(lambda: warm(first)) if self.search.settings.warm_start else ()
        block = Block(self.search, self._modes, first.training, fixed, key, told)
        return _Running(number, block, cells, ledger)

    def _step(self, running: _Running, failed: Collection[str]) -> None:
        block = running.block
        known = running.ledger.read(block.round) or Round()
        # what has failed once stays failed for the sampler, whatever a later try finds
        lost = {news.number for news in known.heard if news.values is None}
        if not all(r.number in lost or self._outcomes.ended(r.identity, failed) for r in running.rows):
            return
        heard = self._heard(running, lost)
        # a search that had come to its end may have been given more to do
        holds = bool(known.entries) and known.same_news(heard)
        block.hear(heard, known.closed if holds else None)
        made = known if holds else block.go_on()
        rows = [row for entry in made.entries for row in self._rows(running, entry)]
        if holds and self._same_code and rows != list(known.rows):
            raise MemsweepError(
                f"rows that the search of {self._sweep.name!r} has trained are other trials to what is installed now: "
                "the code that makes the numbers, or the version of torch or numpy, has changed since. Bring back what "
                f"made them, or run the study with today's: memsweep sweep {self._sweep.name}."
            )
        if not made.entries:
            rows, running.confirming = self._winners(running), True
        entry = dataclasses.replace(made, heard=heard, ended=dict(block.ended), rows=tuple(rows), block=running.number)
        if entry.to_json() != known.to_json():
            running.ledger.write(block.round, entry)
        for index, row in enumerate(rows):
            place = (block.round, running.number, index)
            self._places[row.identity] = min(place, self._places.get(row.identity, place))
        block.take(entry)
        running.entries, running.rows = made.entries, rows
        self.rows += rows

    def _heard(self, running: _Running, lost: Collection[int]) -> tuple[Heard, ...]:
        steps = self._sweep.rows[running.cells[0]].training.steps
        found = []
        for entry in sorted(running.entries, key=lambda entry: entry.number):
            rows = [row.identity for row in running.rows if row.number == entry.number]
            values = None if entry.number in lost else self._outcomes.together(rows)
            found.append(Heard(entry.number, entry.until or steps, values))
        return tuple(found)

    def _rows(self, running: _Running, entry: Entry) -> list[SearchRow]:
        """The rows of an entry, one in each cell; none where its settings are no valid trial, and so it fails."""
        try:
            return [self._row(running, entry, cell) for cell in running.cells]
        except ConfigError as error:
            _log.warning("suggestion %d cannot be tried: %s", entry.number, "; ".join(error.problems))
            return []

    def _row(self, running: _Running, entry: Entry, cell: int) -> SearchRow:
        config = self._stage(self._config(entry, cell))
        after = "" if entry.donor is None else self._last(running, entry.donor, cell)
        planned = self._planned(config, after)
        return SearchRow(planned.identity, running.number, cell, entry.number, entry.until, after)

    def _config(self, entry: Entry, cell: int) -> TrialConfig:
        turns = [Turn(**turn) for turn in entry.turns]
        return config_of(self._sweep.rows[cell], entry.values, until=entry.until, turns=turns)

    def _last(self, running: _Running, number: int, cell: int) -> str:
        """Identity of the last row of a member in a cell."""
        for row in reversed(self.rows):
            if (row.block, row.number, row.cell) == (running.number, number, cell):
                return row.identity
        return ""

    def _stage(self, config: TrialConfig) -> TrialConfig:
        """What a row that ends early measures: no more than the objective needs, for perturbing is not cheap."""
        radius = any(name.startswith("radius") for name in self.search.settings.objective)
        if not config.training.until or radius:
            return config
        return dataclasses.replace(config, perturbation=dataclasses.replace(config.perturbation, balls=()))

    def _winners(self, running: _Running) -> list[SearchRow]:
        """The rows that measure the best of a block anew."""
        confirm = self._sweep.confirm
        if confirm is None:
            return []
        rows = []
        for rank, number in enumerate(running.block.winners(confirm.top), 1):
            entry = running.block.members[number].entries[-1]
            for cell in running.cells:
                config = fresh(
                    self._config(entry, cell),
                    confirm.seeds,
                    confirm_first_seed(self._sweep.rows, confirm),
                    confirm_data_seed(self._sweep.rows[cell], confirm),
                )
                rows.append(SearchRow(self._planned(config).identity, running.number, cell, number, 0, "", rank))
        return rows

    def _planned(self, config: TrialConfig, after: str = "") -> PlannedTrial:
        name = identity(config, self._arithmetic)
        return self.trials.setdefault(name, PlannedTrial(name, config, self._arithmetic, after))


def _key(search: Search, cells: Sequence[TrialConfig]) -> str:
    """What a block's suggestions follow from beside the results: its cells, its space and its settings.

    The number of suggestions is not among it, so that a search can be prolonged; of a population it is.
    """
    settings = to_dict(search.settings)
    if search.settings.scheduler.name != PBT:
        settings.pop("trials")
    content = {
        "settings": settings,
        "space": {path: dataclasses.asdict(domain) for path, domain in search.space.items()},
        "first": [dict(values) for values in search.first],
        "cells": [identifying(cell) for cell in cells],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
