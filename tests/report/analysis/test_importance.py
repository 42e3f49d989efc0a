"""The share of an objective that a searched field explains: its interval holds the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from scipy import stats

from memsweep.config.schema.search import CHOICE, LOG_UNIFORM, Domain
from memsweep.report.analysis.search.importance import Importance, importances
from memsweep.report.analysis.search.searched import Searched
from memsweep.report.naming.cells import Cells
from memsweep.search.history import SearchHistory
from memsweep.search.suggestions import SearchTrial, Suggestion, SuggestionRecord, SuggestionState

RATE, KIND = "training.learning_rate", "training.optimizer"
SPACE = {RATE: Domain(LOG_UNIFORM, 1e-4, 1.0), KIND: Domain(CHOICE, values=("adam", "sgd"))}
CELL = {"model": {"name": "lru", "width": 8}}
Objective = Callable[[float, np.random.Generator], float]


def searched(count: int, objective: Objective, seed: int) -> Searched:
    """A search of one cell whose objective is one of the decades of its learning rate, and of noise."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        decades, kind = rng.uniform(-4.0, 0.0), str(rng.choice(["adam", "sgd"]))
        values: dict[str, Any] = {RATE: 10.0**decades, KIND: kind}
        trial = SearchTrial(f"{number:032x}", 0, number)
        value = (objective(decades, rng),)
        made.append(SuggestionRecord(0, Suggestion(number, values), (trial,), value, 100, SuggestionState.DONE))
    known: dict[str, Any] = {"objective": ("error",), "modes": ("min",), "space": SPACE, "cells": (CELL,)}
    history = SearchHistory(
        tuple(made), scheduler="none", algorithm="random", steps=100, confirmed={}, rounds=1, **known
    )
    return Searched(history, Cells.of([CELL], SPACE), (), False)


def valley(decades: float, rng: np.random.Generator) -> float:
    """A best rate in the middle, in noise."""
    return abs(decades + 2.0) + float(rng.normal(0.0, 0.6))


def by_field(search: Searched) -> dict[str, Importance]:
    return {one.field: one for one in importances(search, 0)}


def test_a_best_value_in_the_middle_counts_and_a_field_without_effect_does_not() -> None:
    first, second = importances(searched(200, valley, 1), 0)
    assert (first.field, second.field) == (RATE, KIND)
    assert first.low > 0.2
    assert second.low == 0.0
    assert second.high < 0.1
    assert first.suggestions == 200


def test_intervals_hold_the_share_of_a_search_without_end() -> None:
    """Of 60 searches of 40 suggestions, at the binomial rate of 95 %."""
    large = searched(20_000, valley, 0).history.suggestions
    ranks = stats.rankdata([one.values[0] for one in large if one.values])
    decades = np.log10([one.suggestion.values[RATE] for one in large])
    parts = np.digitize(decades, np.quantile(decades, [1 / 3, 2 / 3]))
    truth = np.var([ranks[parts == part].mean() for part in range(3)]) / ranks.var()
    found = [by_field(searched(40, valley, seed))[RATE] for seed in range(1, 61)]
    assert stats.binomtest(sum(one.low <= truth <= one.high for one in found), 60, 0.95).pvalue > 0.001
    assert all(one.low <= one.share <= one.high for one in found)
    none = [by_field(searched(40, valley, seed))[KIND] for seed in range(1, 61)]
    assert sum(one.low > 0 for one in none) <= 6


def test_noise_is_no_importance_though_optuna_shares_it_out() -> None:
    """Why memsweep has an evaluator of its own: of noise alone, optuna gives the fields all there is."""
    search = searched(16, lambda decades, rng: float(rng.normal()), 0)
    assert all(one.low == 0.0 for one in importances(search, 0))
    study = optuna.create_study()
    spread = {RATE: FloatDistribution(1e-4, 1.0, log=True), KIND: CategoricalDistribution(("adam", "sgd"))}
    for one in search.history.suggestions:
        assert one.values is not None
        found = optuna.trial.create_trial(params=dict(one.suggestion.values), distributions=spread, value=one.values[0])
        study.add_trial(found)
    assert sum(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()).values()) == pytest.approx(1.0)


def test_one_field_or_few_suggestions_have_no_share() -> None:
    assert importances(searched(7, valley, 0), 0) == []
