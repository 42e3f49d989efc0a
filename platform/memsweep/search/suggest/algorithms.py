"""The sampler of each algorithm, and objectives as numbers that samplers can use."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memsweep.config.schema.search import CHOICE, GP, GRID, NSGA_II, RANDOM, TPE, Domain, SearchConfig
from memsweep.search.suggestions import Result

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

    from memsweep.search.suggest.cma import CmaEs


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna says nothing about its own arguments being experimental, nor about each trial."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", category=FutureWarning)
            warnings.simplefilter("ignore", category=UserWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def finite(
    results: Sequence[Result], modes: Sequence[str], logarithms: Callable[[Sequence[int], Sequence[float]], bool]
) -> dict[int, tuple[float, ...]]:
    """Number -> values that a sampler can use; ``sampler.ask`` says how infinite ones and NaN are replaced.

    Args:
        results: of suggestions that have ended.
        modes: ``min`` or ``max`` for each objective.
        logarithms: whether the sampler gets an objective's logarithms, given numbers of suggestions and finite values.
    """
    ended = [(result.number, result.values) for result in results if result.values is not None]
    columns = []
    for index, mode in enumerate(modes):
        column = [values[index] for _, values in ended]
        numbers = [number for (number, _), value in zip(ended, column, strict=True) if math.isfinite(value)]
        known = [value for value in column if math.isfinite(value)]
        if logarithms(numbers, known):
            column = [math.log(value) if math.isfinite(value) else value for value in column]
        columns.append(_brought_near(column, mode))
    return {number: tuple(column[place] for column in columns) for place, (number, _) in enumerate(ended)}


def _brought_near(column: Sequence[float], mode: str) -> list[float]:
    """Finite values alone: infinite ones come to lie a whole range beyond the others, and NaN at the bad end."""
    known = [value for value in column if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    far = high - low or max(abs(high), 1.0)
    ends = {math.inf: high + far, -math.inf: low - far}
    bad = ends[math.inf if mode == "min" else -math.inf]
    return [ends.get(value, bad if math.isnan(value) else value) for value in column]


def sampler(
    search: SearchConfig,
    distributions: Mapping[str, BaseDistribution],
    objectives: int,
    space: Mapping[str, Domain],
    seed: int,
) -> optuna.samplers.BaseSampler:
    """Optuna's sampler of an algorithm.

    Args:
        search: the algorithm and its settings.
        distributions: of the fields that can apply.
        objectives: how many.
        space: dotted path -> domain.
        seed: 0 ... 2^32 - 1.

    Raises:
        MemsweepError: the package that it needs is not installed.
    """
    from optuna import samplers

    conditional = any(other in space for path in distributions for other in space[path].when)
    if search.algorithm in (GRID, RANDOM):  # the points of a grid are given to it, and it takes them as they are
        return samplers.RandomSampler(seed=seed)
    if search.algorithm == TPE:
        # fields that are suggested together are modelled together; groups do that where some do not always apply
        return samplers.TPESampler(
            seed=seed,
            n_startup_trials=search.startup,
            multivariate=objectives == 1,
            group=conditional and objectives == 1,
            constant_liar=True,
        )
    if search.algorithm == GP:
        return samplers.GPSampler(seed=seed, n_startup_trials=search.startup, warn_independent_sampling=False)
    if search.algorithm == NSGA_II:
        return samplers.NSGAIISampler(seed=seed, population_size=max(search.startup, 2))
    return _cma_es(search, distributions, space, seed)


def _cma_es(
    search: SearchConfig, distributions: Mapping[str, BaseDistribution], space: Mapping[str, Domain], seed: int
) -> CmaEs:
    from memsweep.search.suggest.cma import CmaEs

    numeric = {
        path: space[path]
        for path, distribution in distributions.items()
        if space[path].kind != CHOICE and not distribution.single() and not any(o in space for o in space[path].when)
    }
    usual = 4 + int(3 * math.log(max(len(numeric), 1)))
    return CmaEs(numeric, distributions, seed=seed, popsize=search.batch * math.ceil(usual / search.batch))
