"""The search of a study: a search in each cell, their rounds in the log, and the trials that the plan gets of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import BALL_OF, PBT
from memsweep.config.schema.training import Turn
from memsweep.config.search.sections import modes
from memsweep.config.search.suggestion import config_of, fixed_of, fresh_first_seed, with_fresh_seeds
from memsweep.errors import ConfigError, MemsweepError, StoreError
from memsweep.search.cell_search import CellSearch
from memsweep.search.round_log import Observation, Round, RoundLog, Stage
from memsweep.search.suggestions import SearchTrial, SuggestionState
from memsweep.stability.comparison.metrics import median
from memsweep.sweep.planning.identity import Arithmetic, identifying, identity, without_later
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
    """The search of a cell with its present round.

    Attributes:
        cell: its number.
        search: its state.
        log: of its rounds.
        stages: of the present round.
        trials: of these stages.
        confirming: the search is over, and its winners' trials are in the plan.
    """

    cell: int
    search: CellSearch
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
        self._objectives = Objectives(store, sweep.search.settings.objective)
        self._running = [self._start(cell, store) for cell in range(len(sweep.rows))]

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
        before = "" if self.ended else " before it"  # trials of an open round are looked at together
        parts = [f"{ended} of {len(self._running) * self.search.settings.trials} suggestions ended{before}"]
        parts += [f"{states[state]} {state}" for state in _UNUSUAL if states[state]]
        if len(self._running) == 1 and (winners := self._running[0].search.winners(1)):
            values = self._running[0].search.suggestions[winners[0]].values or ()
            named = zip(self.search.settings.objective, values, strict=True)
            parts.append("best " + ", ".join(f"{name} {value:.4g}" for name, value in named))
        if self.ended and (confirming := sum(1 for trial in self.searched if trial.rank)):
            parts.append(f"{confirming} winner{'s' * (confirming > 1)} to retrain on fresh seeds")
        rounds = max(running.search.round for running in self._running)
        return [f"search, round {rounds}: {', '.join(parts)}"]

    def _start(self, cell: int, store: Store) -> _Running:
        config = self._sweep.rows[cell]
        key = _key(self.search, config)
        search = CellSearch(self.search, self._modes, config.training, fixed_of(config, self.search.space), key)
        return _Running(cell, search, RoundLog(store.location, key))

    def _step(self, running: _Running, failed: Collection[str]) -> None:
        search = running.search
        known = running.log.read(search.round) or Round()
        # a suggestion that has failed once stays failed for the sampler, whatever a later try measures
        lost = {one.number for one in known.observations if one.values is None}
        if not self._has_ended(running, lost, failed):
            return
        observations = self._observations(running, lost)
        holds = self._holds(known, observations)
        search.observe(observations, known.closed if holds else None)
        made = known if holds else search.next_round()
        trials = [trial for stage in made.stages if (trial := self._stage_trial(running, stage)) is not None]
        if holds and self._same_code and trials != list(known.trials):
            raise MemsweepError(
                f"the search of {self._sweep.name!r} has trained trials that the installed code would make "
                "differently: its code, or the version of torch or numpy, has changed since. Bring back the ones that "
                f"made them, or run the study with the present ones: memsweep sweep {self._sweep.name}."
            )
        if not made.stages:
            trials, running.confirming = self._confirmations(running), True
        content = dataclasses.replace(
            made, observations=observations, ended=dict(search.ended), trials=tuple(trials), cell=running.cell
        )
        if content.to_json() != known.to_json():
            running.log.write(search.round, content)
        self._begin(running, content)

    def _begin(self, running: _Running, content: Round) -> None:
        """Makes a round the present one, and takes its trials into the order of all trials."""
        for index, trial in enumerate(content.trials):
            place = (running.search.round, running.cell, index)
            self._order[trial.identity] = min(place, self._order.get(trial.identity, place))
        running.search.begin(content)
        running.stages, running.trials = content.stages, [*content.trials]
        self.searched += content.trials

    def _has_ended(self, running: _Running, lost: Collection[int], failed: Collection[str]) -> bool:
        """Whether every trial of the present round has ended, or is one of a lost suggestion."""
        return all(one.number in lost or self._objectives.ended(one.identity, failed) for one in running.trials)

    def _holds(self, known: Round, observations: Sequence[Observation]) -> bool:
        """Whether a round of the log is repeated: it follows from these observations."""
        # a round without stages was the last one, but the study may have got more suggestions since
        return bool(known.stages) and known.follows(observations) and self._suggested(known)

    def _suggested(self, known: Round) -> bool:
        """Whether a round sets what is searched alone, to what may be suggested: a log may come from elsewhere."""
        space = self.search.space
        return all(
            path in space
            and (isinstance(value, int | float) if space[path].is_numeric else space[path].contains(value))
            for stage in known.stages
            for path, value in stage.values.items()
        )

    def _observations(self, running: _Running, lost: Collection[int]) -> tuple[Observation, ...]:
        steps = self._sweep.rows[running.cell].training.steps
        observations = []
        for stage in sorted(running.stages, key=lambda stage: stage.number):
            named = {trial.number: trial.identity for trial in running.trials}
            known = stage.number in named and stage.number not in lost
            values = self._objectives.of(named[stage.number]) if known else None
            observations.append(Observation(stage.number, stage.until or steps, values))
        return tuple(observations)

    def _stage_trial(self, running: _Running, stage: Stage) -> SearchTrial | None:
        """The trial of a stage; None where its settings are no valid trial, and so it fails."""
        try:
            config = self._config(stage, running.cell)
            radius = any(name.startswith("radius") for name in self.search.settings.objective)
            if config.training.until and not radius:  # perturbation is not cheap, and this objective does not need it
                config = dataclasses.replace(config, perturbation=dataclasses.replace(config.perturbation, balls=()))
            after = "" if stage.donor is None else self._last_identity(running.cell, stage.donor)
            planned = self._planned(config, after)
        except ConfigError as error:
            _log.warning("suggestion %d is refused: %s", stage.number, "; ".join(error.problems))
            return None
        return SearchTrial(planned.identity, running.cell, stage.number, stage.until, after)

    def _config(self, stage: Stage, cell: int) -> TrialConfig:
        turns = [Turn(**turn) for turn in stage.turns]
        return config_of(self._sweep.rows[cell], stage.values, until=stage.until, turns=turns)

    def _last_identity(self, cell: int, number: int) -> str:
        trials = (trial for trial in reversed(self.searched) if (trial.cell, trial.number) == (cell, number))
        return next((trial.identity for trial in trials), "")

    def _confirmations(self, running: _Running) -> list[SearchTrial]:
        """The trials that retrain the winners of a search with fresh seeds and data."""
        confirm = self._sweep.confirm
        if confirm is None:
            return []
        trials = []
        for rank, number in enumerate(running.search.winners(confirm.top), 1):
            stage = running.search.suggestions[number].stages[-1]
            config = self._config(stage, running.cell)
            config = with_fresh_seeds(config, confirm.seeds, fresh_first_seed(self._sweep.rows))
            trials.append(SearchTrial(self._planned(config).identity, running.cell, number, rank=rank))
        return trials

    def _planned(self, config: TrialConfig, after: str = "") -> PlannedTrial:
        arithmetic = Arithmetic.of(self._sweep.resources.of(config))
        name = identity(config, arithmetic)
        return self.trials.setdefault(name, PlannedTrial(name, config, arithmetic, after))


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

    def _read(self, identity: str) -> tuple[float, ...]:
        record = self._store.record(identity)
        tables = self._store.tables(identity) if BALL_OF.keys() & set(self._names) else {}
        return tuple(median(name, record["summary"], tables) for name in self._names)


def _key(search: Search, cell: TrialConfig) -> str:
    """A hash of all that decides a search's suggestions besides the results: its cell, its space and its settings.

    The number of suggestions is not among it, so that a search can be prolonged; of a population it is.
    """
    settings = without_later(to_dict(search.settings), search.settings) | {"warm_start": "", "scope": "cell"}
    if search.settings.scheduler.name != PBT:
        settings.pop("trials")
    content = {  # with three constants, because the sampler's seeds follow from this hash
        "settings": settings,
        "space": {path: without_later(dataclasses.asdict(each), each) for path, each in search.space.items()},
        "first": [],
        "cells": [identifying(cell)],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
