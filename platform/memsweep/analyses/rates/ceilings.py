"""The highest learning rate that trains each line of a study of rates, and the one that theory predicts.

StableSSM (arXiv 2311.14495, Theorem 3.6) bounds gradients by the gradient over weight of a parameterization, and takes
it for the measure of which learning rates are stable: a step of plain gradient descent at the rate
1 / max |gradient / weight| moves some weight by its own size. The prediction here is c / max |gradient / weight|, with
one c for all conditions, and with the ratio at the smallest rate that was tried. Near a ceiling it would show what it
is to predict. Optimizers that divide the gradient by its size, as Adam, are not those of the argument.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from memsweep.analyses.rates.curves import RateStudy, rate_of
from memsweep.report.analysis.losses import CRITERIA, LossRow
from memsweep.report.naming.conditions import RATE, masked
from memsweep.stability.verdict.trend import mean_interval

TRAINS = 0.5
"""A rate trains a seed whose loss ends below this share of the zero predictor's."""


@dataclass(frozen=True, eq=False)
class RateCeiling:
    """The highest learning rate that trains one line of a RateStudy, and the rate that the theory predicts.

    Attributes:
        condition: column -> value, as in a Finding; the learning rate is None.
        width, horizon: None where the model or the task has none.
        memory: what is learnt, in words.
        seeds: a row for each seed, by its number. ``ceiling``: the highest rate that trains, as do all rates between
            it and the lowest that does; nan where no rate does. ``fails``: the next rate that was tried; inf where
            none was. ``CRITERIA``: at the smallest rate.
        scale: c of the prediction; nan without a ceiling between two rates.
    """

    condition: Mapping[str, Any]
    width: float | None
    horizon: float | None
    memory: str
    seeds: pd.DataFrame
    scale: float

    @property
    def predicted(self) -> pd.Series:
        """The ceiling of each seed by the theory."""
        return self.scale / self.seeds[CRITERIA[0]]

    @property
    def bracketed(self) -> int:
        """How many seeds have a prediction between the ceiling and the next rate."""
        return int(((self.seeds["ceiling"] <= self.predicted) & (self.predicted < self.seeds["fails"])).sum())


class Correlation(NamedTuple):
    """Kendall's rank correlation (tau-b) over conditions: the mean over seeds with its 95 % interval.

    Attributes:
        seeds: those in which neither side is the same for all conditions; the interval is nan for fewer than two.
    """

    estimate: float
    low: float
    high: float
    seeds: int


def rate_ceilings(studies: Sequence[RateStudy]) -> list[RateCeiling]:
    """The ceiling of every line whose loss can be compared with the zero predictor's."""
    known = [
        (study.memory, line, _seeds(line))
        for study in studies
        for line in study.lines.values()
        if all(row.zero_loss > 0 for row in line)
    ]
    scales = {memory: _scale([seeds for other, _, seeds in known if other == memory]) for memory, _, _ in known}
    return [
        RateCeiling(masked(line[0].condition, (RATE,)), line[0].width, line[0].horizon, memory, seeds, scales[memory])
        for memory, line, seeds in known
    ]


def rank_correlations(ceilings: Sequence[RateCeiling]) -> dict[str, dict[str, Correlation]]:
    """Of measured and predicted ceilings over the conditions of each memory, by the criterion that predicts.

    Ceilings whose brackets overlap are ties: their order is not known. A condition counts in the seeds in which both
    are known; a seed counts with three conditions or more.
    """
    found: dict[str, dict[str, Correlation]] = {}
    for memory in dict.fromkeys(one.memory for one in ceilings):
        alike = [one.seeds for one in ceilings if one.memory == memory]
        low, high = (pd.concat([seeds[end] for seeds in alike], axis=1).to_numpy() for end in ("ceiling", "fails"))
        for name in CRITERIA:
            predicted = 1.0 / pd.concat([seeds[name] for seeds in alike], axis=1)
            taus = [_kendall(*seed) for seed in zip(low, high, predicted.to_numpy(), strict=True)]
            known = np.array([tau for tau in taus if not math.isnan(tau)])
            if known.size:
                found.setdefault(memory, {})[name] = _correlation(known)
    return found


def _seeds(line: Sequence[LossRow]) -> pd.DataFrame:
    """``RateCeiling.seeds`` of rows by increasing rate."""
    trained: dict[int, list[tuple[float, bool]]] = {}
    ratios: dict[int, dict[Hashable, float]] = {}
    for row in line:
        trains = row.losses < TRAINS * row.column("zero_loss").to_numpy(float)
        criteria = np.column_stack([row.column(name).to_numpy(float) for name in CRITERIA])
        for seed, good, values in zip(row.column("seed"), trains, criteria, strict=True):
            trained.setdefault(int(seed), []).append((rate_of(row), bool(good)))
            ratios.setdefault(int(seed), dict(zip(CRITERIA, values, strict=True)))
    rows = {seed: _bracket(tried) for seed, tried in trained.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["ceiling", "fails"])
    return table.join(pd.DataFrame.from_dict(ratios, orient="index")).rename_axis("seed").sort_index()


def _bracket(tried: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """The last rate of the first run of rates that train, and the next rate."""
    for (rate, trains), (following, still) in pairwise([*tried, (math.inf, False)]):
        if trains and not still:
            return rate, following
    return math.nan, math.nan


def _scale(tables: Sequence[pd.DataFrame]) -> float:
    """c: the geometric mean, over all seeds with a ceiling between two rates, of its middle times the criterion."""
    seeds = pd.concat(tables)
    with np.errstate(divide="ignore"):
        logs = 0.5 * (np.log(seeds["ceiling"]) + np.log(seeds["fails"])) + np.log(seeds[CRITERIA[0]])
    finite = logs[np.isfinite(logs)]
    return math.exp(finite.mean()) if len(finite) else math.nan


def _kendall(low: np.ndarray, high: np.ndarray, predicted: np.ndarray) -> float:
    """Tau-b of the conditions that are known; nan for fewer than three, or where one side is the same in all."""
    known = ~(np.isnan(low) | np.isnan(predicted))
    if known.sum() < 3:
        return math.nan
    low, high, predicted = low[known], high[known], predicted[known]
    above = np.greater_equal.outer(low, high).astype(float)
    measured, expected = above - above.T, np.sign(np.subtract.outer(predicted, predicted))
    size = math.sqrt((measured**2).sum() * (expected**2).sum())
    return float((measured * expected).sum()) / size if size else math.nan


def _correlation(taus: np.ndarray) -> Correlation:
    if len(taus) < 2:
        return Correlation(float(taus[0]), math.nan, math.nan, 1)
    estimate, low, high = mean_interval(taus, taus)
    return Correlation(estimate, max(low, -1.0), min(high, 1.0), len(taus))
