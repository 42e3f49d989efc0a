"""One search: its suggestions, which of them train on, and the sampler's next ones. A state machine without storage.

All its decisions follow from its arguments and the observations, in order. So the rounds of an interrupted search,
read from the log, restore its state.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import PBT
from memsweep.search.round_log import Observation, Round, Stage
from memsweep.search.suggestions import Result, Suggestion, SuggestionState
from memsweep.search.winners import best

if TYPE_CHECKING:
    from memsweep.config.schema.search import Search
    from memsweep.config.schema.training import TrainingConfig


@dataclass
class Progress:
    """How far a suggestion is.

    Attributes:
        suggestion: as the sampler made it.
        stages: of its training, in order; the last one holds its present settings.
        values: objectives last observed; None where nothing was measured.
        steps: optimizer steps that it has trained.
        state: running, or how it ended.
        waits: it has reached a rung, and the scheduler has not decided yet.
    """

    suggestion: Suggestion
    stages: list[Stage] = field(default_factory=list)
    values: tuple[float, ...] | None = None
    steps: int = 0
    state: SuggestionState = SuggestionState.RUNNING
    waits: bool = False


class CellSearch:
    """The search in one cell.

    Args:
        search: space and settings.
        modes: ``min`` or ``max`` for each objective.
        training: of the cell; steps, validations and, under pbt, the settings at the start.
        fixed: dotted path -> value of the cell, for the conditions of the space.
        key: from which the sampler's seeds are derived.

    Attributes:
        suggestions: by number.
        round: how many rounds have begun.
        ended: number -> how it ended, of the suggestions that ended by the last observations.
        closed: no suggestion could enter any more when the last observations came.
    """

    def __init__(
        self,
        search: Search,
        modes: Sequence[str],
        training: TrainingConfig,
        fixed: Mapping[str, Any],
        key: str,
    ) -> None:
        from memsweep.search.stopping.schedulers import scheduler

        self.suggestions: dict[int, Progress] = {}
        self.round, self.closed = 0, False
        self.ended: dict[int, SuggestionState] = {}
        self._search, self._settings, self._modes, self._key = search, search.settings, modes, key
        self._training, self._fixed = training, fixed
        self._pbt = search.settings.scheduler.name == PBT
        self._scheduler = (
            scheduler(search.settings.scheduler, training.steps, training.validate_every)
            if search.settings.scheduler.by_ray
            else None
        )
        self._next_steps: dict[int, int] = {}  # number -> step to which it trains next
        self._first_looks: dict[int, int] = {}
        self._exhausted = False

    def winners(self, top: int) -> list[int]:
        """Numbers of the best suggestions that were trained to the end."""
        done = {
            number: one.values
            for number, one in self.suggestions.items()
            if one.state is SuggestionState.DONE and one.values is not None
        }
        return best(done, self._modes, top)

    def observe(self, observations: Sequence[Observation], closed: bool | None = None) -> None:
        """Record what the trials of the present round measured, and let the scheduler decide.

        Args:
            observations: in order of number.
            closed: whether no suggestion can enter any more, as the log has it; None where the log has no such round.
        """
        full = self._exhausted or len(self.suggestions) >= self._settings.trials
        self.closed = full if closed is None else closed
        for one in observations:
            progress = self.suggestions[one.number]
            progress.values, progress.steps, progress.waits = one.values, one.steps, True
        self._next_steps, self.ended = {}, {}
        reports = [(one.number, one.steps) for one in observations]
        decisions = self._decisions(reports, closed=self.closed) if observations else {}
        complete = {one.number: None for one in observations if one.steps >= self._training.steps}
        self._apply({**decisions, **complete})

    def next_round(self) -> Round:
        """The next round, without its trials: which suggestions train on, and new ones in the places of the ended."""
        stages = self._evolved() if self._pbt else self._continued()
        suggestions = self._new_suggestions()
        stages += [Stage(one.number, self._first_until(one.number), one.values) for one in suggestions]
        if not stages and self._waiting:
            self._close()
            stages = self._continued()
        return Round(
            suggestions=tuple(suggestions), stages=tuple(stages), closed=self.closed, exhausted=self._exhausted
        )

    def begin(self, content: Round) -> None:
        """Begin a round that ``next_round`` made or that was read from the log."""
        if any(one.number in self.suggestions and one.number not in self._next_steps for one in content.stages):
            self._close()
        for suggestion in content.suggestions:
            self.suggestions[suggestion.number] = Progress(suggestion)
            if suggestion.number not in self._first_looks:
                self._enter(suggestion.number)
        for stage in content.stages:
            progress = self.suggestions[stage.number]
            progress.stages.append(stage)
            progress.waits = False
        self._next_steps = {}
        self._exhausted = content.exhausted
        self.round += 1

    def results(self) -> list[tuple[Suggestion, Result]]:
        """The ended suggestions and their results, in the order in which the sampler is told."""
        return [
            (one.suggestion, Result(number, one.values, one.steps, stopped=one.state is SuggestionState.STOPPED))
            for number, one in self.suggestions.items()
            if one.state is not SuggestionState.RUNNING
        ]

    @property
    def _running(self) -> list[Progress]:
        return [one for one in self.suggestions.values() if one.state is SuggestionState.RUNNING]

    @property
    def _waiting(self) -> bool:
        return any(one.waits for one in self._running)

    def _new_suggestions(self) -> list[Suggestion]:
        from memsweep.search.suggest.sampler import ask

        # suggestions that wait for others take nobody's place in the batch
        busy = sum(not one.waits for one in self._running) + len(self._next_steps)
        batch = self._settings.trials if self._pbt else self._settings.batch
        start = len(self.suggestions)
        count = min(batch - busy, self._settings.trials - start)
        if self._exhausted or count < 1:
            return []
        made = ask(
            self._settings,
            self._search.space,
            self._fixed,
            self._modes,
            self.results(),
            [one.suggestion for one in self._running],
            count,
            self._seed(),
        )
        self._exhausted = not made
        return [Suggestion(start + place, one.values, one.memo) for place, one in enumerate(made)]

    def _seed(self) -> int:
        """The sampler's seed in this round: a function of the search alone, 0 ... 2^31 - 1."""
        digest = hashlib.sha256(f"{self._settings.seed}/{self._key}/{self.round}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

    def _first_until(self, number: int) -> int:
        if self._pbt:
            return self._until(self._next_exchange(0))
        self._enter(number)
        return self._until(self._first_looks[number])

    def _enter(self, number: int) -> None:
        """Add a new suggestion to the scheduler, once, and note the step of its first look."""
        self._first_looks[number] = self._scheduler.first(number) if self._scheduler else self._training.steps

    def _next_exchange(self, steps: int) -> int:
        """The step of the next exchange of a population."""
        interval = self._settings.scheduler.interval
        return min(steps - steps % interval + interval, self._training.steps)

    def _until(self, steps: int) -> int:
        return 0 if steps >= self._training.steps else steps

    def _decisions(self, reports: Sequence[tuple[int, int]], *, closed: bool) -> Mapping[int, int | None]:
        """Number -> step to which it trains next, or None where it is stopped; those that have to wait are missing."""
        if self._scheduler is None:
            return {n: None if self.suggestions[n].values is None else self._next_exchange(s) for n, s in reports}
        from memsweep.search.stopping.schedulers import Report

        looks = [
            Report(number, steps, self._cost(self.suggestions[number].values)) for number, steps in sorted(reports)
        ]
        return self._scheduler.report(looks, more=not closed)

    def _close(self) -> None:
        """Let the scheduler decide on suggestions that wait for others, because no others will come."""
        self._apply(self._decisions([], closed=True))

    def _apply(self, decisions: Mapping[int, int | None]) -> None:
        for number, steps in decisions.items():
            if steps is None:
                progress = self.suggestions[number]
                self.ended[number] = progress.state = self._final_state(progress)
                progress.waits = False
            else:
                self._next_steps[number] = steps

    def _final_state(self, progress: Progress) -> SuggestionState:
        if progress.values is None:
            return SuggestionState.FAILED
        if not all(map(math.isfinite, progress.values)):
            return SuggestionState.DIVERGED
        return SuggestionState.STOPPED if progress.steps < self._training.steps else SuggestionState.DONE

    def _continued(self) -> list[Stage]:
        return [
            Stage(number, self._until(steps), self.suggestions[number].stages[-1].values, donor=number)
            for number, steps in sorted(self._next_steps.items())
        ]

    def _evolved(self) -> list[Stage]:
        """The next stage of a population: the worst continue from the best, with other settings."""
        from memsweep.search.stopping.population import PopulationMember, evolve

        if not self._next_steps:
            return []
        step = self.suggestions[next(iter(self._next_steps))].steps
        population = [
            PopulationMember(
                number, self.suggestions[number].stages[-1].values, self._cost(self.suggestions[number].values)
            )
            for number in sorted(self._next_steps)
        ]
        evolved = evolve(population, self._search.space, self._settings.scheduler, self._seed(), step)
        if not evolved:  # all have diverged: there is no state to continue from
            self._apply(dict.fromkeys(self._next_steps))
        stages = []
        for one in evolved:
            before = self.suggestions[one.donor].stages[-1]
            turns = before.turns
            if one.values != before.values:
                turns = (*turns, self._turn(step, before.values))
            stages.append(Stage(one.number, self._until(self._next_exchange(step)), one.values, turns, one.donor))
        return stages

    def _turn(self, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        from memsweep.config.schema.training import TURNING

        settings = {name: getattr(self._training, name) for name in TURNING}
        return {"until": step, **settings, **{path.rpartition(".")[2]: value for path, value in values.items()}}

    def _cost(self, values: Sequence[float] | None) -> float:
        """The first objective as a number to minimize; a scheduler has no more than one."""
        if values is None or math.isnan(values[0]):
            return math.inf
        return -values[0] if self._modes[0] == "max" else values[0]
