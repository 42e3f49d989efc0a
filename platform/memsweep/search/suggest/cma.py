"""CMA-ES by Optuna, its optimizer made anew from the generations that were told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.samplers import CmaEsSampler

if TYPE_CHECKING:
    import optuna
    from optuna._transform import _SearchSpaceTransform
    from optuna.distributions import BaseDistribution
    from optuna.study import StudyDirection

EARLIER = "memsweep:earlier"
"""Note on trials of an earlier study."""
_FEWEST = 10
"""Earlier trials whose best tenth is one at least."""


class ReplayedCmaEs(CmaEsSampler):
    """Optuna's CMA-ES (Hansen 2016, arXiv 1604.00772) without its pickles.

    Optuna keeps its optimizer as a pickle among a trial's notes. Here the generations are told to a new optimizer
    instead: ``tell`` draws no random numbers, so it ends in the same state. Trials with the note ``EARLIER`` belong to
    no generation: ten or more decide where the first one is drawn (warm start, Nomura et al. 2021, arXiv 2012.06932).

    Args:
        numeric: the fields that it moves, path -> distribution; known from the start, so that the first generation is
            already its own. All others are drawn at random.
        seed: of all chance.
        popsize: size of a generation.
        margin: keep whole numbers from freezing (CMA-ES with margin, Hamano et al. 2022, arXiv 2205.13482).
    """

    def __init__(self, numeric: Mapping[str, BaseDistribution], *, seed: int, popsize: int, margin: bool) -> None:
        super().__init__(
            seed=seed,
            popsize=popsize,
            n_startup_trials=0,
            with_margin=margin,
            warn_independent_sampling=False,
            consider_pruned_trials=True,
        )
        self._numeric = dict(sorted(numeric.items()))
        self._told: list[optuna.trial.FrozenTrial] = []

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The numeric fields that always apply."""
        return dict(self._numeric)

    def _restore_optimizer(self, completed_trials: list[optuna.trial.FrozenTrial]) -> Any:
        self._told = completed_trials
        return None

    def _init_optimizer(self, trans: _SearchSpaceTransform, direction: StudyDirection) -> Any:
        earlier = [one for one in self._told if one.system_attrs.get(EARLIER)]
        self._source_trials = [self._numbers(one) for one in earlier] if len(earlier) >= _FEWEST else None
        optimizer = super()._init_optimizer(trans, direction)
        sign = 1.0 if direction.name == "MINIMIZE" else -1.0
        while True:
            members = self._get_solution_trials(self._told, optimizer.generation)[: optimizer.population_size]
            if len(members) < optimizer.population_size:
                return optimizer
            optimizer.tell([(self._point(trans, one), sign * float(one.value or 0.0)) for one in members])

    def _numbers(self, trial: optuna.trial.FrozenTrial) -> optuna.trial.FrozenTrial:
        """A trial with the fields that are moved and no others, as Optuna's warm start wants it."""
        from optuna.trial import create_trial

        params = {path: trial.params[path] for path in self._numeric}
        return create_trial(params=params, distributions=self._numeric, value=trial.value)

    def _point(self, trans: _SearchSpaceTransform, member: optuna.trial.FrozenTrial) -> np.ndarray:
        told = member.system_attrs.get("x_for_tell")
        return trans.transform(member.params) if told is None else np.array(told)
