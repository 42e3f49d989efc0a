"""What a study will run, wave after wave: the packs of a grid, or those of a search's rounds and its confirmation.

Nobody knows beforehand which settings a search will try. Its waves hold suggestions that are spread evenly over its
space, as many as it runs at once, and as many of each stage as its scheduler is expected to let through.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import ASHA, CHOICE, HYPERBAND, INT, LOG_INT, LOG_UNIFORM, MEDIAN, PBT
from memsweep.errors import ConfigError
from memsweep.sweep.planning.identity import Arithmetic, identity
from memsweep.sweep.planning.plan import Pack, PlannedTrial, make_packs, pack_seconds

if TYPE_CHECKING:
    from memsweep.config.schema.search import Domain, Search
    from memsweep.config.schema.trial import SweepConfig, TrialConfig

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
"""Their square roots are the strides of the spread, one for each searched field, which no two share."""


@dataclass(frozen=True)
class Wave:
    """Packs that run side by side.

    Attributes:
        packs: of one wave.
        times: how many such waves there will be, expected.
        begin: steps that their trials have been trained before.
    """

    packs: tuple[Pack, ...]
    times: float = 1.0
    begin: int = 0


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
    """The waves of a study.

    Args:
        sweep: the study.
        packs: what is left of its plan; of a study without a search all that there is.
    """
    if sweep.search is None:
        return (Wave(tuple(packs)),)
    return (*_searched(sweep, sweep.search), *_confirmed(sweep))


def stages(search: Search, steps: int) -> tuple[Stage, ...]:
    """The stages of a training of so many steps, with the share of the suggestions that the scheduler lets through.

    What median stopping will stop follows from the results: all are expected to go on, which is the most.
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
    settings, arithmetic = search.settings, Arithmetic.of(sweep.resources)
    batch = settings.trials if settings.scheduler.name == PBT else min(settings.batch, settings.trials)
    suggested = [suggestion(cell, search, place) for cell in sweep.rows for place in range(batch)]
    for stage in stages(search, sweep.rows[0].training.steps):
        rows = [_until(config, stage.until, search) for config in suggested]
        yield Wave(_packs(rows, arithmetic), settings.trials * stage.share / batch, stage.begin)


def _confirmed(sweep: SweepConfig) -> Iterator[Wave]:
    if (confirm := sweep.confirm) is None or sweep.search is None:
        return
    rows = []
    for cell in sweep.rows:
        for place in range(confirm.top):
            config = suggestion(cell, sweep.search, place)
            training = dataclasses.replace(config.training, seeds=confirm.seeds)
            rows.append(dataclasses.replace(config, training=training))
    yield Wave(_packs(rows, Arithmetic.of(sweep.resources)))


def _until(config: TrialConfig, step: int, search: Search) -> TrialConfig:
    """The row that ends at this step; one that ends early measures no more than the objective needs."""
    if step >= config.training.steps:
        return config
    balls = config.perturbation.balls if any(name.startswith("radius") for name in search.settings.objective) else ()
    return dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, until=step),
        perturbation=dataclasses.replace(config.perturbation, balls=balls),
    )


def _packs(rows: Sequence[TrialConfig], arithmetic: Arithmetic) -> tuple[Pack, ...]:
    trials = {
        name: PlannedTrial(name, config, arithmetic) for config in rows for name in [identity(config, arithmetic)]
    }
    planned = list(trials.values())
    return tuple(make_packs(planned, pack_seconds(planned)))


def suggestion(cell: TrialConfig, search: Search, place: int) -> TrialConfig:
    """A cell's trial with settings from the search's space, evenly spread over places 0, 1, ...

    Where the spread meets a combination that is no legal trial, the cell's own settings stand for it.
    """
    from memsweep.config.search.suggestion import config_of, fixed_of

    values: dict[str, Any] = {}
    known = fixed_of(cell, search.space)
    waiting = dict(enumerate(search.space.items()))
    while ready := [n for n, (_, domain) in waiting.items() if _applies(domain, known)]:
        for number in ready:
            stride = math.sqrt(_PRIMES[number % len(_PRIMES)])
            path, domain = waiting.pop(number)
            known[path] = values[path] = _value(domain, (0.5 + place * stride) % 1.0)
    try:
        config = config_of(cell, values)
    except ConfigError:
        config = cell
    # rows of one wave are different trials, though their settings may be the same
    training = dataclasses.replace(
        config.training, first_seed=config.training.first_seed + place * config.training.seeds
    )
    return dataclasses.replace(config, training=training)


def _applies(domain: Domain, known: Mapping[str, Any]) -> bool:
    return all(path in known and known[path] in allowed for path, allowed in domain.when.items())


def _value(domain: Domain, share: float) -> Any:
    """The value at this share of a domain, in [0, 1)."""
    if domain.kind == CHOICE:
        return domain.values[int(share * len(domain.values))]
    low, high = domain.low, domain.high
    whole = domain.kind in (INT, LOG_INT)
    if domain.kind in (LOG_UNIFORM, LOG_INT):
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        value = low + share * (high - low)
    return min(max(round(value), int(low)), int(high)) if whole else value
