"""A study that runs, read from its folder again and again: its progress, and its page."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from memsweep.errors import StoreError
from memsweep.report.analysis.contents import analyse
from memsweep.report.charts.every import chart_sets
from memsweep.report.formats import PAGE, REPORT
from memsweep.report.page.grid import LiveCell, live_cells
from memsweep.report.page.live import live_state
from memsweep.report.page.render import render
from memsweep.report.read.known import Known
from memsweep.report.read.study import Study, load_study
from memsweep.report.rows.report import tables_of
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import State, read_statuses
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names, schema

_FAILED = {State.FAILED, State.OUT_OF_MEMORY}


class LiveStudy:
    """A study that runs.

    Args:
        place: its folder.
        name, description: said until the folder has a plan.
        every: seconds after which a browser loads the page again; 0 where it is told of news.

    Attributes:
        progress: ``words``: how far the run is; ``fraction`` of its work in [0, 1]; ``cells``: the counts of the
            grid's cells; ``stamp``: the time of this, UTC.
    """

    def __init__(self, place: str, name: str, description: str, every: int) -> None:
        self._store, self._every = Store(Location.at(place)), every
        self._empty = _without_plan(name, description)
        self._known = Known()
        self._study, self._cells = self._empty, list[LiveCell]()
        self._told: dict[str, Any] = {}
        self._failed = frozenset[str]()
        self._seen: object = None
        self._built: object = None
        self.progress: dict[str, Any] = {}

    def look(self, told: dict[str, Any]) -> bool:
        """Brings the progress up to date; whether the page is older than the results.

        Args:
            told: what the process of the sweep said last.
        """
        try:
            stored = self._store.identities()
            statuses = read_statuses(self._store.location)
        except StoreError:  # the storage is away: the sweep says so itself
            stored, statuses = frozenset(), {}
        rows = self._study.rows
        done = {name for name in rows if name in stored}
        failed_ever = frozenset(name for name, status in statuses.items() if status.state in _FAILED)
        failed = self._failed = failed_ever.intersection(rows) - done
        running = sum(statuses[name].state is State.RUNNING for name in statuses.keys() & rows if name not in done)
        self.progress = {
            "words": _words(max(len(rows), told.get("total", 0)), len(done), len(failed), running, told),
            "fraction": told.get("fraction", 0.0),
            "cells": [cell.text(done | failed) for cell in self._cells],
            "stamp": time.strftime("%H:%M:%S UTC", time.gmtime()),
        }
        self._told, self._seen = told, (stored, failed_ever, len(statuses))
        return self._seen != self._built

    def page(self) -> bytes:
        """The page of what is stored now."""
        seen = self._seen
        try:
            study = load_study(self._store.location, self._known, as_planned=True)
        except StoreError:
            study = self._empty
        self._study = study
        self.look(self._told)
        failed = tuple(row for row in study.missing if row.identity in self._failed)
        contents = analyse(replace(study, missing=failed), planned=True)
        self._cells = live_cells(contents)
        self.look(self._told)
        live = live_state(contents, self._cells, self.progress, self._every)
        tables = tables_of(contents)
        sets = [*chart_sets(contents, tables.sections)]
        page = render(contents, tables, sets, {}, live=live).encode(errors="replace")
        self._built = seen
        return page

    def write(self, page: bytes) -> None:
        """Writes a page in the place of the report."""
        self._store.location.write(f"{REPORT}/{PAGE}", page, wait=False)


def _words(total: int, done: int, failed: int, running: int, told: dict[str, Any]) -> str:
    """``17 of 80 trials done, 4 running, 58 queued, 1 failed; step 1,200 of 5,000; 3 to 5 min left``."""
    if not total:
        return "planning"
    words = [f"{done} of {total} trials done", f"{running} running", f"{total - done - failed - running} queued"]
    words += [f"{failed} failed"] if failed else []
    more = [str(told[name]) for name in ("doing", "left", "note") if told.get(name)]
    return "; ".join([", ".join(words), *more])


def _without_plan(name: str, description: str) -> Study:
    tables = {table: schema(table).empty_table().to_pandas() for table in names()}
    return Study(name, description, 0, {}, tables, (), 0, None, "")
