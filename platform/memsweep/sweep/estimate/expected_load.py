"""The packs that a study will run: those of its grid, or the expected ones of its search and its confirmation.

The settings of a search are not known before it runs. Its waves hold suggestions spread evenly over its space, as many
as run at once, and as many of each stage as its scheduler is expected to let through.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import ASHA, HYPERBAND, LOG_INT, LOG_UNIFORM, MEDIAN, PBT
from memsweep.errors import ConfigError
from memsweep.sweep.planning.plan import Pack, identified, make_packs, pack_seconds

if TYPE_CHECKING:
    from memsweep.config.schema.search import Domain, Search
    from memsweep.config.schema.study import SweepConfig
    from memsweep.config.schema.trial import TrialConfig


@dataclass(frozen=True)
class Wave:
    """Packs that run side by side.

    Attributes:
        packs: of one wave.
        times: how many such waves are expected.
    """

    packs: tuple[Pack, ...]
    times: float = 1.0


@dataclass(frozen=True)
class Stage:
    """A part of a training after which a scheduler decides.

    Attributes:
        begin, until: steps.
        share: of the suggestions that come to it, expected.
    """

    begin: int
    until: int
    share: float


def waves(sweep: SweepConfig, packs: Sequence[Pack]) -> tuple[Wave, ...]:
    """The waves of a study; ``packs`` are the remaining ones of its plan, if it has no search."""
    if sweep.search is None:
        return (Wave(tuple(packs)),)
    return (*_searched(sweep, sweep.search), *_confirmed(sweep, sweep.search))


def stages(search: Search, steps: int) -> tuple[Stage, ...]:
    """The stages of a training of so many steps, with the share of the suggestions that the scheduler lets through.

    Median stopping depends on the results: all suggestions are expected to go on, which is the most.
    """
    scheduler = search.settings.scheduler
    if scheduler.name in (ASHA, HYPERBAND):
        rungs = _halvings(scheduler.grace, scheduler.reduction, steps)
    elif scheduler.name == MEDIAN:
        rungs = [*range(scheduler.grace, steps, scheduler.interval), steps]
    elif scheduler.name == PBT:
        rungs = [*range(scheduler.interval, steps, scheduler.interval), steps]
    else:
        rungs = [steps]
    shares = [1.0] * len(rungs)
    if scheduler.name == ASHA:
        shares = [scheduler.reduction**-rung for rung in range(len(rungs))]
    elif scheduler.name == HYPERBAND:  # as many brackets as rungs: the last of them begins at the last rung
        brackets = range(len(rungs))
        shares = [sum(scheduler.reduction ** -max(0, rung - b) for b in brackets) / len(rungs) for rung in brackets]
    return tuple(
        Stage(begin, until, share) for begin, until, share in zip([0, *rungs[:-1]], rungs, shares, strict=True)
    )


def _halvings(grace: int, reduction: float, steps: int) -> list[int]:
    rungs: list[int] = []
    rung = float(grace)
    while rung < steps:
        rungs.append(int(rung))
        rung *= reduction
    return [*rungs, steps]


def _searched(sweep: SweepConfig, search: Search) -> Iterator[Wave]:
    settings = search.settings
    batch = settings.trials if settings.scheduler.name == PBT else min(settings.batch, settings.trials)
    suggested = [suggestion(cell, search, place) for cell in sweep.rows for place in range(batch)]
    steps = sweep.rows[0].training.steps
    for stage in stages(search, steps):
        # later stages begin with the states of earlier ones: they cost the steps in between
        trials = [_with_training(config, steps=stage.until - stage.begin) for config in suggested]
        if stage.until < steps and not any(name.startswith("radius") for name in settings.objective):
            trials = [replace(trial, perturbation=replace(trial.perturbation, balls=())) for trial in trials]
        yield Wave(_packs(trials, sweep), settings.trials * stage.share / batch)


def _confirmed(sweep: SweepConfig, search: Search) -> Iterator[Wave]:
    if (confirm := sweep.confirm) is not None:
        best = [suggestion(cell, search, place) for cell in sweep.rows for place in range(confirm.top)]
        yield Wave(_packs([_with_training(config, seeds=confirm.seeds) for config in best], sweep))


def _with_training(config: TrialConfig, **changes: Any) -> TrialConfig:
    return replace(config, training=replace(config.training, **changes))


def _packs(trials: Sequence[TrialConfig], sweep: SweepConfig) -> tuple[Pack, ...]:
    planned = identified(replace(sweep, rows=tuple(trials), search=None, confirm=None))
    return tuple(make_packs(planned, pack_seconds(planned)))


def suggestion(cell: TrialConfig, search: Search, place: int) -> TrialConfig:
    """A cell's trial with settings from the search's space, evenly spread over places 0, 1, ...

    The cell's own settings replace a combination that is no legal trial.
    """
    from memsweep.config.search.domains import order
    from memsweep.config.search.suggestion import config_of, fixed_of

    known, values = fixed_of(cell, search.space), dict[str, Any]()
    for number, path in enumerate(order(search.space)):  # a field comes after the fields of its condition
        domain = search.space[path]
        if domain.applies(known):
            # multiples of an irrational number spread evenly; each field has its own
            known[path] = values[path] = _value(domain, (0.5 + place * math.sqrt(2 + 4 * number)) % 1.0)
    with contextlib.suppress(ConfigError):
        cell = config_of(cell, values)
    # trials of one wave have different seeds, because their settings may be the same
    return _with_training(cell, first_seed=cell.training.first_seed + place * cell.training.seeds)


def _value(domain: Domain, share: float) -> Any:
    """The value at this share of a domain, in [0, 1)."""
    if not domain.is_numeric:
        return domain.values[int(share * len(domain.values))]
    if domain.kind in (LOG_UNIFORM, LOG_INT):
        value = domain.low * (domain.high / domain.low) ** share
    else:
        value = domain.low + share * (domain.high - domain.low)
    return min(max(round(value), int(domain.low)), int(domain.high)) if domain.is_whole else value
