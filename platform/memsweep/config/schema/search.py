"""The sections ``search`` and ``confirm`` of a study, as frozen dataclasses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memsweep.config.core.fields import setting

UNIFORM, LOG_UNIFORM, INT, LOG_INT, CHOICE = "uniform", "log_uniform", "int", "log_int", "choice"
KINDS = (UNIFORM, LOG_UNIFORM, INT, LOG_INT, CHOICE)
"""Kinds of domains: ``{log_uniform: [low, high]}``, ``{choice: [a, b, c]}``."""

NONE, ASHA, HYPERBAND, MEDIAN, PBT = "none", "asha", "hyperband", "median", "pbt"
GRID, RANDOM, TPE, CMA_ES, GP, NSGA_II = "grid", "random", "tpe", "cma_es", "gp", "nsga_ii"
MIN, MAX = "min", "max"

METRICS: Final[Mapping[str, str]] = {
    "validation_loss": MIN,
    "error": MIN,
    "relative_error": MIN,
    "margin": MAX,
    "slowest_rate": MAX,
    "radius": MAX,
    "radius_weights": MAX,
    "radius_all": MAX,
}
"""Objectives that every task has, medians over the seeds, and whether small or large is good."""
BALL_OF: Final[Mapping[str, str]] = {"radius": "recurrent", "radius_weights": "weights", "radius_all": "all"}
"""Metrics that are measured in a ball, which ``perturbation.balls`` must then name."""
MOST_COMBINATIONS: Final = 100_000
"""Suggestions of a space that are listed one by one."""
TEST: Final = "test_"
"""``test_accuracy`` is the task's own metric ``accuracy``, on the test set."""


@dataclass(frozen=True)
class Domain:
    """The values that a searched field may have.

    Attributes:
        kind: one of ``KINDS``.
        low, high: ends of a numeric domain, both included.
        values: of a choice, in the order in which they are written.
        when: dotted path -> values; the field is searched only where each of these paths has one of its values (of
            another searched field, of a grid axis or of the base). Empty: always.
    """

    kind: str
    low: float = 0.0
    high: float = 0.0
    values: tuple[Any, ...] = ()
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_numeric(self) -> bool:
        """Whether it is an interval of numbers."""
        return self.kind != CHOICE

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are whole ones."""
        return self.kind in (INT, LOG_INT)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values by which its legality is judged: both ends, or each choice; whole numbers as such."""
        if not self.is_numeric:
            return self.values
        return (int(self.low), int(self.high)) if self.is_whole else (self.low, self.high)

    def contains(self, value: Any) -> bool:
        """Whether a plain value lies in the domain; conditions (``when``) aside."""
        if not self.is_numeric:
            return any(same(value, one) for one in self.values)
        kinds = (int,) if self.is_whole else (int, float)
        return type(value) in kinds and self.low <= value <= self.high

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Whether the field is searched where other fields have these values (dotted path -> plain value).

        A path that is missing has no value that would do: a field that does not apply itself, or is not there.
        """
        return all(
            path in values and any(same(values[path], one) for one in wanted) for path, wanted in self.when.items()
        )


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """Which trials are stopped early; the unit of every budget is the optimizer step."""

    name: str = setting(
        NONE,
        "none; asha (successive halving, decisions as results come in), hyperband (several halvings of different "
        "haste), median (worse than the median of the others' running means), or pbt (population-based training: the "
        "worst take over weights and settings of the best, and change the settings)",
        choices=(NONE, ASHA, HYPERBAND, MEDIAN, PBT),
    )
    grace: int = setting(
        250, "optimizer steps before anybody may be stopped; a multiple of training.validate_every", at_least=1
    )
    reduction: float = setting(3.0, "asha and hyperband: one of so many trains on at each rung", above=1.0)
    interval: int = setting(
        250, "median and pbt: optimizer steps from one decision to the next; a multiple of validate_every", at_least=1
    )
    quantile: float = setting(
        0.25, "pbt: share of the population that takes over, and from which it is taken", above=0.0, at_most=0.5
    )
    resample: float = setting(
        0.25,
        "pbt: probability that a setting is resampled instead of multiplied by 0.8 or 1.2",
        at_least=0.0,
        at_most=1.0,
    )

    def problems(self) -> Iterable[str]:
        # rungs are whole numbers of graces: from 1, a smaller factor leads to 1 again, where Ray halves no more
        if self.name == HYPERBAND and self.reduction < 2:
            yield f"reduction must be at least 2 with hyperband, got {self.reduction:g}. Raise it, or take asha"

    @property
    def by_ray(self) -> bool:
        """Whether one of Ray Tune's classes decides."""
        return self.name not in (NONE, PBT)


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How settings are searched: the algorithm, its budget and what it makes small or large."""

    algorithm: str = setting(
        TPE,
        "grid (every combination of choices and whole numbers, in order); random; tpe (Optuna's default, good for "
        "most), gp (Gaussian process: few expensive trials), cma_es (numeric fields alone), or nsga_ii (several "
        "objectives)",
        choices=(GRID, RANDOM, TPE, CMA_ES, GP, NSGA_II),
    )
    trials: int = setting(20, "suggestions in each cell of the grid", at_least=1)
    batch: int = setting(
        4,
        "suggestions in flight at once; the sampler hears of them together, so that a search gives the same "
        "suggestions on one worker or many",
        at_least=1,
    )
    seed: int = setting(0, "seed of the sampler, part of the search's identity", at_least=0, at_most=2**31)
    objective: tuple[str, ...] = setting(
        ("validation_loss",),
        "the objectives, medians over the seeds: validation_loss, error, relative_error, margin, slowest_rate, "
        "radius, radius_weights, radius_all, or test_<a metric of the task>; several with nsga_ii, tpe, gp, random or "
        "grid",
    )
    mode: tuple[str, ...] = setting(
        (),
        "min or max for each objective (left out: losses and errors min, radii, margin and rate max; a test_ metric "
        "must have one)",
        choices=("min", "max"),
    )
    startup: int = setting(
        10, "random suggestions before tpe and gp trust their model; the size of nsga_ii's generations", at_least=1
    )
    scheduler: SchedulerConfig = setting(doc="which trials are stopped early", factory=SchedulerConfig)

    def problems(self) -> Iterable[str]:
        if self.mode and len(self.mode) != len(self.objective):
            yield (
                f"mode has {len(self.mode)} words for {len(self.objective)} objectives: give one min or max for each"
            )


@dataclass(frozen=True, kw_only=True)
class ConfirmConfig:
    """How winners are retrained: with fresh seeds and data that were not used for the selection."""

    seeds: int = setting(10, "fresh seeds of each winner", at_least=2, at_most=10_000)
    top: int = setting(
        1, "how many of the best of each cell (of the Pareto front, with several objectives)", at_least=1
    )


@dataclass(frozen=True)
class Search:
    """The ``search`` section of a study: every key with a section's name in front is searched, others are settings.

    Attributes:
        settings: the search's own fields.
        space: dotted path of a trial's field -> its domain.
    """

    settings: SearchConfig
    space: Mapping[str, Domain]


def same(value: Any, wanted: Any) -> bool:
    """Whether two plain values are one; a part with fields, ``{name: best, a: 1.0}``, is meant by its bare name, too.

    True is no 1; whole numbers equal floats.
    """
    if isinstance(value, Mapping) and isinstance(wanted, str):
        return bool(value.get("name") == wanted)
    if isinstance(wanted, Mapping) and isinstance(value, str):
        return bool(wanted == {"name": value})
    if isinstance(value, Mapping) and isinstance(wanted, Mapping):
        return value.keys() == wanted.keys() and all(same(value[key], wanted[key]) for key in wanted)
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def combinations(space: Mapping[str, Domain]) -> float:
    """How many suggestions a space has, conditions aside; infinite where it has an interval of real numbers."""
    sizes = [
        domain.high - domain.low + 1 if domain.is_whole else math.inf if domain.is_numeric else len(domain.values)
        for domain in space.values()
    ]
    return math.prod(sizes)


def is_finite(value: Any) -> bool:
    """Whether a plain value is a finite number (a truth value is none)."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False
