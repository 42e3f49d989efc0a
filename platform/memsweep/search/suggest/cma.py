"""CMA-ES by the package ``cmaes``, its optimizer rebuilt from the generations of the search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.samplers import BaseSampler, RandomSampler

from memsweep.config.schema.search import INT, LOG_INT, LOG_UNIFORM, Domain

if TYPE_CHECKING:
    import cmaes
    import optuna
    from optuna.distributions import BaseDistribution

_GENERATION, _POINT = "generation", "x"


class CmaEs(BaseSampler):
    """CMA-ES with margin (Hansen 2016, arXiv 1604.00772; Hamano et al. 2022, arXiv 2205.13482).

    Nothing of the optimizer is stored: the generations are told to a new one at each question, which draws no random
    numbers and so gives the same distribution.

    Args:
        space: the numeric fields that it moves, path -> domain. All others are drawn at random.
        distributions: of the same fields, for Optuna.
        seed: of all chance in one question.
        popsize: size of a generation.

    Attributes:
        memo: notes on the last suggestion: its generation, and its point before whole numbers were rounded.
    """

    def __init__(
        self, space: Mapping[str, Domain], distributions: Mapping[str, BaseDistribution], *, seed: int, popsize: int
    ) -> None:
        self.memo: dict[str, Any] = {}
        self._domains = {path: space[path] for path in sorted(space)}
        self._distributions = {path: distributions[path] for path in self._domains}
        self._seed, self._popsize = seed, popsize
        self._independent = RandomSampler(seed=seed)
        self._optimizer: cmaes.CMAwM | None = None

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The numeric fields that always apply."""
        return dict(self._distributions)

    def sample_relative(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next point of the present generation."""
        if not search_space:
            return {}
        if self._optimizer is None:  # results do not change within one question
            self._optimizer = self._rebuilt(study)
        encoded, raw = self._optimizer.ask()
        self.memo = {_GENERATION: self._optimizer.generation, _POINT: raw.tolist()}
        return {path: _outward(domain, x) for (path, domain), x in zip(self._domains.items(), encoded, strict=True)}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A random value of a field that CMA-ES does not move."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _rebuilt(self, study: optuna.Study) -> cmaes.CMAwM:
        """The optimizer after all complete generations."""
        from optuna.trial import TrialState

        sign = 1.0 if study.direction.name == "MINIMIZE" else -1.0
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        costs = [(trial, sign * _value(trial)) for trial in trials]
        optimizer = self._first()
        while True:
            generation = [
                (np.array(one.system_attrs[_POINT]), cost)
                for one, cost in costs
                if one.system_attrs.get(_GENERATION) == optimizer.generation
            ]
            if len(generation) < optimizer.population_size:
                return optimizer
            optimizer.tell(generation[: optimizer.population_size])

    def _first(self) -> cmaes.CMAwM:
        import cmaes

        dimensions = len(self._domains)
        steps = [1 / (domain.high - domain.low) if domain.kind == INT else 0.0 for domain in self._domains.values()]
        return cmaes.CMAwM(
            mean=np.full(dimensions, 0.5),
            sigma=1 / 6,
            bounds=np.tile([0.0, 1.0], (dimensions, 1)),
            steps=np.array(steps),  # of whole numbers in the unit interval; 0 for fractions
            seed=self._seed % 2**32,
            n_max_resampling=10 * dimensions,
            population_size=self._popsize,
        )


def _value(trial: optuna.trial.FrozenTrial) -> float:
    """The objective; of a trial that was stopped early, its last one."""
    return float(trial.value if trial.last_step is None else trial.intermediate_values[trial.last_step])


def _ends(domain: Domain) -> tuple[float, float]:
    if domain.kind == LOG_INT:  # each whole number owns the half below and above it
        return math.log(domain.low - 0.5), math.log(domain.high + 0.5)
    return (math.log(domain.low), math.log(domain.high)) if domain.kind == LOG_UNIFORM else (domain.low, domain.high)


def _outward(domain: Domain, x: float) -> float | int:
    low, high = _ends(domain)
    value = low + float(x) * (high - low)
    value = math.exp(value) if domain.kind in (LOG_UNIFORM, LOG_INT) else value
    value = min(max(value, domain.low), domain.high)
    return round(value) if domain.is_whole else value
