"""The history of a search for reports: every suggestion with its result, and the confirmation of the winners."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import Domain
from memsweep.config.search.sections import modes
from memsweep.search.round_log import FOLDER, Observation, Round, RoundLog, Stage
from memsweep.search.suggestions import SearchTrial, Suggestion, SuggestionRecord, SuggestionState
from memsweep.sweep.store.filesystem import Location, storage_errors

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan_file import StoredPlan


@dataclass(frozen=True)
class SearchHistory:
    """A search as its study's folder holds it.

    Attributes:
        suggestions: in the order in which they were made; of all cells.
        objective: names of what was searched for.
        modes: ``min`` or ``max``, one for each objective.
        space: dotted path -> domain, of the searched fields.
        cells: canonical config of each cell of the grid, before anything was suggested, in the order of the rows.
        scheduler: who stopped trials early; ``none``.
        algorithm: of the sampler.
        steps: optimizer steps of a whole training.
        confirmed: (cell, rank) -> identity of the trial that retrained this winner; empty without ``confirm``.
        rounds: how many the log has.
        ended: whether all suggestions have ended, and the winners are known.
    """

    suggestions: tuple[SuggestionRecord, ...]
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

    The log has everything: neither the study's tasks nor the code that made its numbers is needed.

    Args:
        place: the study's folder.
        plan: as ``sweep.plan_file.read_plan`` gives it.

    Raises:
        StoreError: the storage cannot be read.
    """
    if plan.search is None:
        return None
    with storage_errors("read", place / FOLDER):
        keys = (place / FOLDER).folders()
    logs = [RoundLog(place, key).read_all() for key in keys]
    searches = sorted(searches_of(plan.rows, logs), key=lambda rounds: rounds[0].cell)
    settings = plan.search.settings
    return SearchHistory(
        suggestions=tuple(record for rounds in searches for record in _records(rounds)),
        objective=settings.objective,
        modes=modes(plan.search),
        space=plan.search.space,
        cells=tuple(plan.cells),
        scheduler=settings.scheduler.name,
        algorithm=settings.algorithm,
        steps=max((cell["training"]["steps"] for cell in plan.cells), default=0),
        confirmed={
            (trial.cell, trial.rank): trial.identity for rounds in searches for trial in rounds[-1].trials if trial.rank
        },
        rounds=max(map(len, searches), default=0),
        ended=all(not rounds[-1].stages for rounds in searches),
    )


def searches_of(planned: Collection[str], logs: Sequence[Sequence[Round]]) -> Iterator[Sequence[Round]]:
    """The logs of a plan: of several that share trials, the one that has most of the plan's.

    An earlier plan of the study may have searched the same cell among fewer values: both began with the same trials.
    """
    known = [({trial.identity for one in rounds for trial in one.trials} & set(planned), rounds) for rounds in logs]
    taken = set[str]()
    for identities, rounds in sorted(known, key=lambda each: (len(each[0]), len(each[1])), reverse=True):
        if identities and not identities & taken:
            taken |= identities
            yield rounds


def _records(rounds: Sequence[Round]) -> Iterator[SuggestionRecord]:
    trials: dict[int, list[SearchTrial]] = {}
    stages: dict[int, Stage] = {}
    observed: dict[int, Observation] = {}
    states: dict[int, SuggestionState] = {}
    suggestions: dict[int, Suggestion] = {}
    ranks: dict[int, int] = {}
    for one in rounds:
        suggestions |= {suggestion.number: suggestion for suggestion in one.suggestions}
        stages |= {stage.number: stage for stage in one.stages}
        observed |= {observation.number: observation for observation in one.observations}
        states |= one.ended
        for trial in one.trials:
            if trial.rank:
                ranks[trial.number] = trial.rank
            else:
                trials.setdefault(trial.number, []).append(trial)
    for number, suggestion in suggestions.items():
        last = observed.get(number, Observation(number, 0, None))
        yield SuggestionRecord(
            rounds[0].cell,
            replace(suggestion, values=stages[number].values),
            tuple(trials.get(number, ())),
            last.values,
            last.steps,
            states.get(number, SuggestionState.RUNNING),
            ranks.get(number, 0),
        )
