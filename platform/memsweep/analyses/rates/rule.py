"""How the best learning rate follows from the sizes of a model and its memory, and whether this holds beyond them.

The best rate of a size is fitted, for each seed, by

    log rate = c + a log width + b log horizon

and the exponents have Student's interval over seeds, as the slopes of a radius (``stability/verdict/trend.py``). The
largest width and the largest horizon are held out: they decide whether the rule may be extrapolated.

The best rate of a seed is that of its least validation loss, moved to the vertex of the parabola through this loss and
those of the next rates on both sides, in logarithms. Where training diverged at one of them, or one is further away
than a factor of ``FAR``, it is the rate itself.
Where the least loss is at an end of the rates that were tried, the best rate is known to lie beyond the next one, and
no more: such a censored rate makes intervals infinite on its side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memsweep.analyses.rates.curves import rate_of
from memsweep.outcome import Outcome
from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.conditions import RATE, masked
from memsweep.stability.verdict.trend import Slope, mean_interval, over_seeds

AXES = ("width", "horizon")
LEAST = 3
"""Values of width or horizon from which on the largest is held out."""
LEAST_RATES = 3
"""Of fewer tried rates the best one is always at an end, and no exponent follows."""
FAR = 10.0
"""Between rates further apart than this factor, as a search draws them, the loss is no parabola."""

Size = tuple[float | None, float | None]


@dataclass(frozen=True)
class HeldOut:
    """The rule at a size that it was not fitted to.

    Attributes:
        width, horizon: None where the model or the task has none.
        predicted: the rate by the rule, with its 95 % interval.
        best: the rates that were best, over the seeds; of a censored one, the end of the rates that were tried.
        off: best over predicted rate, the geometric mean over the seeds with its 95 % interval.
        ratio: the test loss at the predicted rate over that at the one rate that is best for all seeds together (least
            geometric mean of the validation loss), over the seeds. The former is interpolated in logarithms between the
            rates that were tried; nan beyond them.
        at_end: how many seeds have their best rate at an end of those that were tried.
    """

    width: float | None
    horizon: float | None
    predicted: Spread
    best: Spread
    off: Spread
    ratio: Spread
    at_end: int


@dataclass(frozen=True)
class RateRule:
    """The best learning rate of one condition as a power law.

    Attributes:
        condition: column -> value, as in a LossRow, without the learning rate.
        exponents: of those of AXES that vary among the fitted sizes, with their intervals.
        fitted: axis -> its values, of the sizes that were fitted.
        seeds: how many.
        constant: the rate without exponents: the geometric mean of the best rates of the fitted sizes.
        gain: the test loss at the rates of the rule over that at the constant one, the geometric mean over the held-out
            sizes with its 95 % interval over seeds: below 1 the rule is worth following. nan where a rate is censored,
            or a loss not finite.
        held_out: the other sizes.
        identities: the trials.
    """

    condition: Mapping[str, Any]
    exponents: Mapping[str, Slope]
    fitted: Mapping[str, Sequence[float]]
    seeds: int
    constant: float
    gain: Spread
    held_out: Sequence[HeldOut]
    identities: Sequence[str]


@dataclass(frozen=True)
class Curve:
    """The losses of one seed at one size.

    Attributes:
        rates: increasing.
        validation: losses by which the best is chosen; infinite where training diverged.
        test: those of the same models on test data.
    """

    rates: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    @property
    def least(self) -> int:
        """The place of the least validation loss, the first where several are."""
        return int(np.argmin(self.validation))

    @property
    def at_end(self) -> bool:
        """Whether no rate beyond the best one was tried, or none trained."""
        return self.least in (0, len(self.rates) - 1) or not math.isfinite(self.validation[self.least])

    def best(self) -> tuple[float, float]:
        """Bounds of the rate of least validation loss, equal unless it is censored."""
        at, rates = self.least, self.rates
        if not math.isfinite(self.validation[at]):
            return 0.0, math.inf
        if self.at_end:
            return (float(rates[at - 1]) if at else 0.0), (math.inf if at else float(rates[min(1, len(rates) - 1)]))
        near = slice(at - 1, at + 2)
        with np.errstate(divide="ignore"):
            x, y = np.log(rates[near]), np.log(self.validation[near])
        if not np.isfinite(y).all() or np.diff(x).max() > math.log(FAR) + 1e-9:
            return float(rates[at]), float(rates[at])
        left, right = np.diff(y) / np.diff(x)
        middle = (x[:2] + x[1:]) / 2.0  # where the parabola has these slopes
        vertex = middle[0] - left * (middle[1] - middle[0]) / (right - left) if right > left else x[1]
        return float(np.exp(vertex)), float(np.exp(vertex))

    def test_at(self, rate: float) -> float:
        """The test loss at a rate, interpolated in logarithms; nan beyond the rates that were tried.

        Infinite beside a rate at which training diverged.
        """
        if not self.rates[0] <= rate <= self.rates[-1]:
            return math.nan
        place = float(np.interp(math.log(rate), np.log(self.rates), np.arange(len(self.rates))))
        below, above = self.test[math.floor(place)], self.test[math.ceil(place)]
        if not math.isfinite(below + above):
            return math.inf
        share = place - math.floor(place)
        return float(below ** (1.0 - share) * above**share)


def rate_rules(rows: Sequence[LossRow]) -> list[RateRule]:
    """A rule for each condition that was trained at enough learning rates, and at enough sizes to hold some out."""
    together: dict[tuple[object, ...], list[LossRow]] = {}
    for row in rows:
        if RATE in row.condition and (row.losses > 0.0).all():  # others have no logarithm
            together.setdefault(tuple(masked(row.condition, (RATE,)).values()), []).append(row)
    rules = [_rule(alike, _curves(alike)) for alike in together.values()]
    return [rule for rule in rules if rule is not None]


def _curves(rows: Sequence[LossRow]) -> dict[Size, dict[int, Curve]]:
    """Size -> seed -> its losses by rate."""
    points: dict[Size, dict[int, list[tuple[float, float, float]]]] = {}
    for row in rows:
        here = points.setdefault((row.width, row.horizon), {})
        lost = row.column("outcome") == Outcome.DIVERGED
        validation = np.where(lost, math.inf, row.column("validation_loss").fillna(math.inf))
        for seed, *losses in zip(row.column("seed"), validation, row.losses, strict=True):
            here.setdefault(int(seed), []).append((rate_of(row), *losses))
    return {
        size: {seed: Curve(*np.array(sorted(own), float).T) for seed, own in here.items()}
        for size, here in points.items()
    }


def _rule(rows: Sequence[LossRow], curves: Mapping[Size, Mapping[int, Curve]]) -> RateRule | None:
    """The rule of one condition; None where too few sizes, seeds or rates were trained."""
    values = {name: sorted({size[axis] or math.nan for size in curves}) for axis, name in enumerate(AXES)}
    longest = {axis: values[name][-1] for axis, name in enumerate(AXES) if len(values[name]) >= LEAST}
    fitted = [size for size in curves if not any(size[axis] == value for axis, value in longest.items())]
    seeds = sorted(set[int].intersection(*({*here} for here in curves.values())))
    within = {name: sorted({size[axis] or math.nan for size in fitted}) for axis, name in enumerate(AXES)}
    names = [name for name in AXES if len(within[name]) > 1]

    def terms(size: Size) -> list[float]:
        return [1.0, *(math.log(size[AXES.index(name)] or math.nan) for name in names)]

    design = np.array([terms(size) for size in fitted])
    several = all(len(curve.rates) >= LEAST_RATES for here in curves.values() for curve in here.values())
    if not (longest and names and several and len(seeds) > 1 and np.linalg.matrix_rank(design) == design.shape[1]):
        return None
    with np.errstate(divide="ignore"):
        bounds = {size: np.log([here[seed].best() for seed in seeds]) for size, here in curves.items()}
    fit = np.linalg.pinv(design)  # [terms, fitted sizes]: a linear combination of the seed's log rates

    def combined(weights: np.ndarray, sizes: Sequence[Size]) -> Slope:
        low, high = np.stack([bounds[size] for size in sizes], -1).transpose(1, 0, 2)
        return over_seeds(weights, low, high, seeds)

    def held_out(size: Size) -> HeldOut:
        weights, own = np.array(terms(size)) @ fit, [curves[size][seed] for seed in seeds]
        predicted, common = _exp(combined(weights, fitted)), _best_for_all(own)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.divide([each.test_at(predicted.middle) for each in own], [each.test_at(common) for each in own])
        return HeldOut(
            *size,
            predicted=predicted,
            best=Spread.of([each.rates[each.least] if each.at_end else each.best()[0] for each in own]),
            off=_exp(combined(np.array([*-weights, 1.0]), [*fitted, size])),
            ratio=Spread.of(ratios),
            at_end=sum(each.at_end for each in own),
        )

    sizes = [held_out(size) for size in curves if size not in fitted]
    constant = _exp(combined(np.full(len(fitted), 1.0 / len(fitted)), fitted)).middle
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.log(
            [
                [
                    [curves[size.width, size.horizon][seed].test_at(rate) for rate in (size.predicted.middle, constant)]
                    for seed in seeds
                ]
                for size in sizes
            ]
        )
        gains = (losses[..., 0] - losses[..., 1]).mean(0)  # of each seed
    return RateRule(
        masked(rows[0].condition, (RATE,)),
        {name: combined(fit[index], fitted) for index, name in enumerate(names, 1)},
        {name: within[name] for name in names},
        len(seeds),
        constant,
        _exp(Slope(*mean_interval(gains, gains))),
        sizes,
        [identity for row in rows for identity in row.identities],
    )


def _best_for_all(curves: Sequence[Curve]) -> float:
    """The rate of the least geometric mean of the validation losses, of those that all seeds were trained at.

    nan where there is none.
    """
    rates = sorted(set[float].intersection(*({*each.rates.tolist()} for each in curves)))
    if not rates:
        return math.nan
    with np.errstate(divide="ignore"):
        means = np.mean([np.log(each.validation[np.isin(each.rates, rates)]) for each in curves], axis=0)
    return rates[int(np.argmin(means))]


def _exp(slope: Slope) -> Spread:
    return Spread(*np.exp([slope.estimate, slope.low, slope.high]).tolist())
