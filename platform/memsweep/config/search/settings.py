"""The problems of a study's ``search`` and ``confirm`` over its cells: all that are known before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep import registry
from memsweep.config.core.problems import sentence, show
from memsweep.config.grid.expand import MOST_TRIALS
from memsweep.config.schema.axes import Axes
from memsweep.config.schema.search import (
    ASHA,
    BALL_OF,
    CMA_ES,
    GRID,
    HYPERBAND,
    MEDIAN,
    MOST_COMBINATIONS,
    NONE,
    PBT,
    TEST,
    ConfirmConfig,
    SchedulerConfig,
    Search,
    combinations,
)
from memsweep.config.schema.study import ResourcesConfig
from memsweep.config.schema.training import TURNING
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import domain_problems
from memsweep.config.search.suggestion import fresh_first_seed
from memsweep.config.search.trials import extreme_trials
from memsweep.errors import did_you_mean, one_of

_STEPS = ("training.steps", "training.validate_every")
_AT, _SCHEDULER = "search", "search.scheduler"
_STEP_FIELDS = {"grace": (ASHA, HYPERBAND, MEDIAN), "interval": (MEDIAN, PBT)}
"""Steps of decisions -> the schedulers that decide by them."""
_MOST_SEED = 2**31


def search_problems(
    search: Search,
    cells: Sequence[TrialConfig],
    axes: Axes,
    base: Mapping[str, Any],
    resources: ResourcesConfig | None,
) -> list[str]:
    """One sentence for everything that is wrong with the search of a study.

    Args:
        search, axes: of the study, as they were read.
        cells: the trials of the study's grid, as far as they are valid.
        base: plain data of the study's base trial.
        resources: None where they are wrong.
    """
    problems = list(domain_problems(search, axes, cells))
    trials = [] if problems else extreme_trials(search.space, cells, axes, base, problems)
    problems += _settings_problems(search, cells)
    problems += _algorithm_problems(search)
    problems += _metric_problems(search.settings.objective, trials or cells)
    if search.settings.scheduler.name != NONE:
        problems += _scheduler_problems(search, cells, resources)
    return problems


def confirm_problems(
    confirm: ConfirmConfig, search: Search | None, cells: Sequence[TrialConfig], *, searches: bool
) -> Iterator[str]:
    """One sentence for everything that is wrong with a confirmation.

    Args:
        confirm, search: as they were read; no search where it is wrong.
        cells: the trials of the study's grid, as far as they are valid.
        searches: whether the study has a search at all.
    """
    if not searches:
        rule = "retrains the winners of a search, and the study has no search. Take it out (~confirm)"
        yield sentence("confirm", rule)
        return
    if search is not None and confirm.top > search.settings.trials:
        rule = f"must be at most search.trials, {search.settings.trials}: there are no more suggestions"
        yield sentence("confirm.top", rule, str(confirm.top))
    if cells:
        yield from _fresh_problems(cells)


def _settings_problems(search: Search, cells: Sequence[TrialConfig]) -> Iterator[str]:
    settings = search.settings
    if any(cell.chain is not None for cell in cells):
        rule = "a chain takes its numbers from trial to trial, and a search knows none of them beforehand"
        yield sentence(_AT, f"{rule}. Take the chain out (chain=null), or the search (~search)")
    if any(cell.training.until or cell.training.turns for cell in cells):
        rule = "training.until and training.turns are the scheduler's to set, and the study sets them"
        yield sentence(_AT, f"{rule}. Take them out, or the search (~search)")
    if (count := len(cells) * settings.trials) > MOST_TRIALS:
        rule = f"makes {count:,} trials ({settings.trials:,} in each of {len(cells):,} cells), more than"
        yield sentence("search.trials", f"{rule} {MOST_TRIALS:,}. Take some out, or make several studies of it")


def _algorithm_problems(search: Search) -> Iterator[str]:
    settings, at = search.settings, "search.algorithm"
    if settings.algorithm == GRID:
        yield from _grid_problems(search)
    if settings.algorithm == CMA_ES:
        choices = [path for path, domain in search.space.items() if not domain.is_numeric]
        if choices:
            yield sentence(at, f"cma_es searches numbers alone, and {', '.join(choices)} is none. Take tpe")
        if conditional := [path for path, domain in search.space.items() if domain.when]:
            yield sentence(at, f"cma_es takes no conditions, and {', '.join(conditional)} has one (when). Take tpe")
        if len(search.space) < 2 and not choices:
            yield sentence(at, "cma_es searches two fields at least. Take gp or tpe for one")
        if len(settings.objective) > 1:
            yield sentence(at, "cma_es takes one objective. Take nsga_ii, tpe or gp", str(len(settings.objective)))
    if len(settings.objective) > 1 and settings.scheduler.name != NONE:
        rule = "with several objectives no suggestion is worse for sure, and no scheduler can stop one early"
        yield sentence(_SCHEDULER, f"{rule}. Take none, or one objective", settings.scheduler.name)


def _grid_problems(search: Search) -> Iterator[str]:
    endless = [path for path, domain in search.space.items() if domain.is_numeric and not domain.is_whole]
    if endless:
        rule = f"grid tries every value, and {', '.join(endless)} has no end of them. Give it a choice, or take random"
        yield sentence("search.algorithm", rule)
    elif (count := combinations(search.space)) > MOST_COMBINATIONS:
        rule = f"grid tries every combination, of which there are {count:,.0f}, more than {MOST_COMBINATIONS:,}"
        yield sentence("search.algorithm", f"{rule}. Take values out, or take random")
    elif count > search.settings.trials:
        rule = f"must be at least {count:,.0f} for the grid, which has so many combinations"
        yield sentence("search.trials", f"{rule}. Or take values out, or take random", str(search.settings.trials))


def _metric_problems(objective: Sequence[str], trials: Sequence[TrialConfig]) -> Iterator[str]:
    at = "search.objective"
    for name in objective:
        if name.startswith(TEST):
            tasks = dict.fromkeys(trial.task.name for trial in trials)
            for task in tasks:
                reports = tuple(getattr(registry.get(registry.TASK, task), "reports", ()))
                if name.removeprefix(TEST) not in reports:
                    known = [f"{TEST}{metric}" for metric in reports]
                    own = f"It reports {one_of(known)}" if known else "It reports none of its own"
                    yield sentence(at, f"the task {task} does not report {name}.{did_you_mean(name, known)} {own}")
        elif name in BALL_OF:
            lacking = [trial for trial in trials if BALL_OF[name] not in trial.perturbation.balls]
            if lacking:
                rule = f"{name} is measured in the ball {BALL_OF[name]}, which perturbation.balls must name"
                yield sentence(at, rule, show(list(lacking[0].perturbation.balls)))


def _scheduler_problems(
    search: Search, cells: Sequence[TrialConfig], resources: ResourcesConfig | None
) -> Iterator[str]:
    scheduler = search.settings.scheduler
    if resources is not None and resources.workers != 1:
        rule = f"{scheduler.name} stops trials and continues them, which packs of several workers cannot"
        yield sentence(_SCHEDULER, f"{rule}. Set resources.workers to 1, or the scheduler to none")
    moved = [path for path in search.space if path in _STEPS or path == "training"]
    if moved:
        rule = f"{scheduler.name} compares trials at equal steps, so {', '.join(moved)} cannot be searched with it"
        yield sentence(_SCHEDULER, f"{rule}. Take the field out of the search, or set the scheduler to none")
    for field, schedulers in _STEP_FIELDS.items():
        if scheduler.name in schedulers:
            yield from _multiple_problems(f"{_SCHEDULER}.{field}", getattr(scheduler, field), cells)
    if scheduler.name == PBT:
        yield from _population_problems(search, scheduler)


def _multiple_problems(at: str, value: int, cells: Sequence[TrialConfig]) -> Iterator[str]:
    """The steps of decisions are steps of validations, and lie before the end."""
    every = sorted({cell.training.validate_every for cell in cells if value % cell.training.validate_every})
    if every:
        rule = f"must be a multiple of training.validate_every, {every[0]}: objectives are known only there"
        yield sentence(at, rule, str(value))
    steps = min((cell.training.steps for cell in cells), default=None)
    if steps is not None and value >= steps:
        yield sentence(at, f"must be below training.steps, {steps}: at the end no trial can be stopped", str(value))


def _population_problems(search: Search, scheduler: SchedulerConfig) -> Iterator[str]:
    allowed = [f"training.{name}" for name in TURNING]
    for path, domain in search.space.items():
        if path not in allowed:
            rule = "pbt changes settings while a trial trains, which this field cannot be"
            yield sentence(f"search.{path}", f"{rule}. It searches {', '.join(allowed)}")
        elif not domain.is_numeric:
            rule = "pbt multiplies settings by 0.8 or 1.2, which takes numbers"
            yield sentence(f"search.{path}", f"{rule}. Give it an interval, or take another scheduler")
    least = math.ceil(1 / scheduler.quantile)
    if search.settings.trials < least:
        rule = f"is pbt's population: with a quantile of {scheduler.quantile:g} it must be at least {least}"
        yield sentence("search.trials", f"{rule}, or no suggestion is replaced", str(search.settings.trials))


def _fresh_problems(cells: Sequence[TrialConfig]) -> Iterator[str]:
    data_seeds = {cell.training.data_seed for cell in cells}
    if max(data_seeds) >= _MOST_SEED or fresh_first_seed(cells) > _MOST_SEED:
        yield sentence("confirm", f"needs seeds after the search's, at most {_MOST_SEED}. Let the search begin lower")
    elif used := sorted(data_seeds & {cell.training.data_seed + 1 for cell in cells}):
        rule = f"{used[0]} is not fresh: the data of a winner have training.data_seed + 1, and the search has them, too"
        yield sentence("confirm", f"{rule}. Take seeds of data that are further apart")
