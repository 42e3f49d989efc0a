"""The search of a study: a search in each cell, their rounds in the log, and the trials that the plan gets of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import BALL_OF, CELL, PBT
from memsweep.config.schema.training import Turn
from memsweep.config.search.sections import modes
from memsweep.config.search.suggestion import config_of, fixed_of, fresh_first_seed, with_fresh_seeds
from memsweep.errors import ConfigError, MemsweepError, StoreError
from memsweep.search.cell_search import CellSearch
from memsweep.search.round_log import Observation, Round, RoundLog, Stage
from memsweep.search.suggestions import SearchTrial, SuggestionState
from memsweep.stability.comparison.metrics import median
from memsweep.sweep.planning.identity import Arithmetic, identifying, identity
from memsweep.sweep.planning.plan import PlannedTrial

if TYPE_CHECKING:
    from memsweep.config.schema.search import Search
    from memsweep.config.schema.study import SweepConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.store.results import Store

_log = logging.getLogger(__name__)
_UNUSUAL = (SuggestionState.STOPPED, SuggestionState.DIVERGED, SuggestionState.FAILED)


@dataclass
class _Running:
    """The search of a cell (or of all cells together) with its present round.

    Attributes:
        number: of the search in the study.
        search: its state.
        cells: numbers of its cells.
        log: of its rounds.
        stages: of the present round.
        trials: of these stages.
        confirming: the search is over, and its winners' trials are in the plan.
    """

    number: int
    search: CellSearch
    cells: tuple[int, ...]
    log: RoundLog
    stages: Sequence[Stage] = ()
    trials: list[SearchTrial] = field(default_factory=list)
    confirming: bool = False


class StudySearch:
    """A study's search, round after round; the rounds of the log are repeated first.

    Args:
        sweep: a study with a search.
        store: its results.
        same_code: continue the rounds of the log only with the code that made them.

    Attributes:
        searched: every trial so far, in order, as the search sees it.
        search: the section of the study file.
        trials: the same trials for the plan, each identity once.
    """

    def __init__(self, sweep: SweepConfig, store: Store, *, same_code: bool = False) -> None:
        if sweep.search is None:
            raise ValueError(f"the study {sweep.name!r} searches nothing")
        self.searched: list[SearchTrial] = []
        self.trials: dict[str, PlannedTrial] = {}
        self._order: dict[str, tuple[int, int, int]] = {}
        self._sweep, self.search, self._modes = sweep, sweep.search, modes(sweep.search)
        self._same_code = same_code
        self._arithmetic = Arithmetic.of(sweep.resources)
        self._objectives = Objectives(store, sweep.search.settings.objective)
        together: list[tuple[int, ...]] = [(index,) for index in range(len(sweep.rows))]
        if sweep.search.settings.scope != CELL:
            together = [tuple(range(len(sweep.rows)))]
        self._running = [self._start(number, cells, store) for number, cells in enumerate(together)]

    def advance(self, failed: Collection[str]) -> bool:
        """Let every search whose trials have all ended begin its next round, or confirm its winners.

        Args:
            failed: identities without a result that will not get one in this run.

        Returns:
            Whether a search has begun a round.

        Raises:
            MemsweepError: ``same_code``, and the installed code would make other trials of the log's rounds.
            StoreError: the storage cannot be read or written.
        """
        before = self.rounds
        for running in self._running:
            if not running.confirming:
                self._step(running, failed)
        return self.rounds > before

    @property
    def ordered_trials(self) -> list[PlannedTrial]:
        """Every trial so far, by round and search: the same order however often the study was interrupted."""
        return [self.trials[name] for name in sorted(self._order, key=self._order.__getitem__)]

    @property
    def current_trials(self) -> list[PlannedTrial]:
        """The trials of the present round of every search, finished or not."""
        names = dict.fromkeys(trial.identity for running in self._running for trial in running.trials)
        return [self.trials[name] for name in names]

    @property
    def ended(self) -> bool:
        """Whether no search makes suggestions any more; trials of confirmations may still be missing."""
        return all(running.confirming for running in self._running)

    @property
    def rounds(self) -> int:
        """Rounds of all searches together."""
        return sum(running.search.round for running in self._running)

    def summary(self) -> list[str]:
        """How far the search is, in a line."""
        states = Counter(one.state for running in self._running for one in running.search.suggestions.values())
        ended = states.total() - states[SuggestionState.RUNNING]
        parts = [f"{ended} of {len(self._running) * self.search.settings.trials} suggestions ended"]
        parts += [f"{states[state]} {state}" for state in _UNUSUAL if states[state]]
        if len(self._running) == 1 and (winners := self._running[0].search.winners(1)):
            values = self._running[0].search.suggestions[winners[0]].values or ()
            named = zip(self.search.settings.objective, values, strict=True)
            parts.append("best " + ", ".join(f"{name} {value:.4g}" for name, value in named))
        if self.ended and (confirming := sum(1 for trial in self.searched if trial.rank)):
            parts.append(f"winners to retrain on fresh seeds: {confirming}")
        rounds = max(running.search.round for running in self._running)
        return [f"search, round {rounds}: {', '.join(parts)}"]

    def _start(self, number: int, cells: tuple[int, ...], store: Store) -> _Running:
        first = self._sweep.rows[cells[0]]
        key = _key(self.search, [self._sweep.rows[cell] for cell in cells])
        fixed = fixed_of(first, self.search.space)
        search = CellSearch(self.search, self._modes, first.training, fixed, key)
        return _Running(number, search, cells, RoundLog(store.location, key))

    def _step(self, running: _Running, failed: Collection[str]) -> None:
        search = running.search
        known = running.log.read(search.round) or Round()
        # a suggestion that has failed once stays failed for the sampler, whatever a later try measures
        lost = {one.number for one in known.observations if one.values is None}
        if not all(one.number in lost or self._objectives.ended(one.identity, failed) for one in running.trials):
            return
        observations = self._observations(running, lost)
        # a round without stages was the last one, but the study may have got more suggestions since
        holds = bool(known.stages) and known.follows(observations)
        search.observe(observations, known.closed if holds else None)
        made = known if holds else search.next_round()
        trials = [trial for stage in made.stages for trial in self._stage_trials(running, stage)]
        if holds and self._same_code and trials != list(known.trials):
            raise MemsweepError(
                f"the search of {self._sweep.name!r} has trained trials that the installed code would make "
                "differently: its code, or the version of torch or numpy, has changed since. Bring back the ones that "
                f"made them, or run the study with the present ones: memsweep sweep {self._sweep.name}."
            )
        if not made.stages:
            trials, running.confirming = self._confirmations(running), True
        content = dataclasses.replace(
            made, observations=observations, ended=dict(search.ended), trials=tuple(trials), search=running.number
        )
        if content.to_json() != known.to_json():
            running.log.write(search.round, content)
        for index, trial in enumerate(trials):
            place = (search.round, running.number, index)
            self._order[trial.identity] = min(place, self._order.get(trial.identity, place))
        search.begin(content)
        running.stages, running.trials = made.stages, trials
        self.searched += trials

    def _observations(self, running: _Running, lost: Collection[int]) -> tuple[Observation, ...]:
        steps = self._sweep.rows[running.cells[0]].training.steps
        observations = []
        for stage in sorted(running.stages, key=lambda stage: stage.number):
            identities = [trial.identity for trial in running.trials if trial.number == stage.number]
            values = None if stage.number in lost else self._objectives.mean(identities)
            observations.append(Observation(stage.number, stage.until or steps, values))
        return tuple(observations)

    def _stage_trials(self, running: _Running, stage: Stage) -> list[SearchTrial]:
        """The trials of a stage, one in each cell; none where its settings are no valid trial, and so it fails."""
        try:
            return [self._stage_trial(running, stage, cell) for cell in running.cells]
        except ConfigError as error:
            _log.warning("suggestion %d is refused: %s", stage.number, "; ".join(error.problems))
            return []

    def _stage_trial(self, running: _Running, stage: Stage, cell: int) -> SearchTrial:
        config = self._config(stage, cell)
        radius = any(name.startswith("radius") for name in self.search.settings.objective)
        if config.training.until and not radius:  # perturbation is not cheap, and this objective does not need it
            config = dataclasses.replace(config, perturbation=dataclasses.replace(config.perturbation, balls=()))
        after = "" if stage.donor is None else self._last_identity(running, stage.donor, cell)
        planned = self._planned(config, after)
        return SearchTrial(planned.identity, running.number, cell, stage.number, stage.until, after)

    def _config(self, stage: Stage, cell: int) -> TrialConfig:
        turns = [Turn(**turn) for turn in stage.turns]
        return config_of(self._sweep.rows[cell], stage.values, until=stage.until, turns=turns)

    def _last_identity(self, running: _Running, number: int, cell: int) -> str:
        """Identity of the last trial of a suggestion in a cell."""
        trials = (t for t in reversed(self.searched) if (t.search, t.number, t.cell) == (running.number, number, cell))
        return next((trial.identity for trial in trials), "")

    def _confirmations(self, running: _Running) -> list[SearchTrial]:
        """The trials that retrain the winners of a search with fresh seeds and data."""
        confirm = self._sweep.confirm
        if confirm is None:
            return []
        trials = []
        for rank, number in enumerate(running.search.winners(confirm.top), 1):
            stage = running.search.suggestions[number].stages[-1]
            for cell in running.cells:
                config = with_fresh_seeds(self._config(stage, cell), confirm.seeds, fresh_first_seed(self._sweep.rows))
                trials.append(SearchTrial(self._planned(config).identity, running.number, cell, number, rank=rank))
        return trials

    def _planned(self, config: TrialConfig, after: str = "") -> PlannedTrial:
        name = identity(config, self._arithmetic)
        return self.trials.setdefault(name, PlannedTrial(name, config, self._arithmetic, after))


class Objectives:
    """Objectives of stored trials, each read once.

    Args:
        store: the study's results.
        names: of metrics (``stability.comparison.metrics``).
    """

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self._store, self._names = store, names
        self._known: dict[str, tuple[float, ...]] = {}

    def ended(self, identity: str, failed: Collection[str]) -> bool:
        """Whether a trial has a result, or will not get one in this run."""
        return identity in failed or self.of(identity) is not None

    def of(self, identity: str) -> tuple[float, ...] | None:
        """The objectives of a trial, medians over its seeds; None while it has no result that can be read.

        Raises:
            StoreError: the storage does not answer.
        """
        if identity not in self._known and self._store.has(identity):
            try:
                self._known[identity] = self._read(identity)
            except StoreError as error:
                if isinstance(error.__cause__, OSError) and self._store.location.local is None:
                    raise
                return None  # damaged: it runs again
        return self._known.get(identity)

    def mean(self, identities: Iterable[str]) -> tuple[float, ...] | None:
        """The objectives of a suggestion over its trials, one in each cell; None where a trial has no result."""
        values = [self.of(identity) for identity in identities]
        known = [one for one in values if one is not None]
        if not known or len(known) < len(values):
            return None
        return tuple(mean(column) for column in zip(*known, strict=True))

    def _read(self, identity: str) -> tuple[float, ...]:
        record = self._store.record(identity)
        tables = self._store.tables(identity) if BALL_OF.keys() & set(self._names) else {}
        return tuple(median(name, record["summary"], tables) for name in self._names)


def mean(values: Sequence[float]) -> float:
    """Geometric where all are positive, so that no cell outweighs the others by its scale; else arithmetic."""
    if len(values) == 1 or not all(math.isfinite(value) for value in values):
        return sum(values) / len(values)
    if all(value > 0 for value in values):
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def _key(search: Search, cells: Sequence[TrialConfig]) -> str:
    """A hash of all that decides a search's suggestions besides the results: its cells, its space and its settings.

    The number of suggestions is not among it, so that a search can be prolonged; of a population it is.
    """
    settings = to_dict(search.settings) | {"warm_start": ""}
    if search.settings.scheduler.name != PBT:
        settings.pop("trials")
    content = {  # with two constants, because the sampler's seeds follow from this hash
        "settings": settings,
        "space": {path: dataclasses.asdict(domain) for path, domain in search.space.items()},
        "first": [],
        "cells": [identifying(cell) for cell in cells],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
