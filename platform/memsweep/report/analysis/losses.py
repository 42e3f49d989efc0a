"""Final losses and metrics by condition: the answer of tasks that ask no question of stability."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memsweep.outcome import Outcome
from memsweep.report.naming.conditions import Grouping, group, masked
from memsweep.report.read.study import Study
from memsweep.stability.comparison.differences import alike
from memsweep.sweep.planning.identity import training_of

CRITERIA = ("gradient_over_weight_max", "gradient_over_weight_q90", "gradient_over_weight_median")
_LENGTH = re.compile(r"_(\d+)T$")  # of the sequences behind a metric, in those of training
MANY_TASKS = 4
"""From so many on, models are shown by task, and counted where they are best."""
ACCURACY = "accuracy"
BELOW = 0.99
"""A loss of more than this share of the memoryless baseline is at it: training noise moves it so far."""


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest over the seeds; nan where nothing was measured, inf where it was not finite."""

    middle: float
    low: float
    high: float

    @staticmethod
    def of(values: Any) -> Spread:
        """Over the values that are not nan."""
        known = np.asarray(values, float)
        known = known[~np.isnan(known)]
        if not known.size:
            return Spread(math.nan, math.nan, math.nan)
        return Spread(float(np.median(known)), float(known.min()), float(known.max()))


@dataclass(frozen=True)
class Ratio(Spread):
    """A ratio of geometric means over seeds, and the ends of its 95 % interval."""


@dataclass(frozen=True, eq=False)
class LossRow:
    """The seeds of one condition, width and horizon.

    Attributes:
        condition: column -> value, as in a Finding.
        width, horizon: None where the model or the task has none.
        table: the results' table ``replicas``, one for all conditions: a part of it for each of thousands would take
            several kB more than the places of its rows.
        places: of the seeds in this table, one each.
        lengths: the metric on sequences that are longer than those of training, as ``accuracy_2T``, by seed.
        times: how many times as long as training sequences the test sequences of the loss are.
    """

    condition: Mapping[str, Any]
    width: float | None
    horizon: float | None
    table: pd.DataFrame
    places: np.ndarray
    lengths: Mapping[str, np.ndarray] = field(default_factory=dict)
    times: int = 1

    def column(self, name: str) -> pd.Series:
        """A column of the table, a value for each seed."""
        return self.table[name].iloc[self.places]

    def spread(self, column: str) -> Spread:
        """A column over the seeds."""
        return Spread.of(self.column(column))

    @property
    def seeds(self) -> int:
        """How many were trained."""
        return len(self.places)

    @cached_property
    def losses(self) -> np.ndarray:
        """The unperturbed test loss of each seed, the validation loss where no test was made, shape (seeds,).

        Infinite where training diverged.
        """
        loss = self.column("error").fillna(self.column("validation_loss")).to_numpy(float)
        return np.where((self.column("outcome") == Outcome.DIVERGED) | np.isinf(loss), math.inf, loss)

    @cached_property
    def loss(self) -> Spread:
        """Of ``losses``."""
        return Spread.of(self.losses)

    @property
    def diverged(self) -> int:
        """How many seeds ended without a finite loss."""
        return int(np.isinf(self.losses).sum())

    @cached_property
    def zero_loss(self) -> float:
        """Loss of the model that always answers zero."""
        return float(self.column("zero_loss").median())

    @cached_property
    def memoryless(self) -> float:
        """Loss of the best model that forgets each input; nan where the task has none."""
        return float(self.column("memoryless_loss").median())

    @property
    def below(self) -> int:
        """How many seeds have a loss below ``BELOW`` of the memoryless baseline."""
        return int((self.losses < BELOW * self.memoryless).sum())

    @property
    def learned(self) -> bool:
        """Whether a seed is below the memoryless baseline, or where none is known, below the model that answers zero.

        That one forgets, too: a loss that is not below it is not below the baseline. True where neither is known.
        """
        known = [level for level in (self.memoryless, self.zero_loss) if level > 0]
        return not known or bool((self.losses < BELOW * known[0]).any())

    @property
    def removed(self) -> float:
        """Share of the memoryless baseline's loss that the median seed is below it: 1 is perfect, 0 as good as it.

        Negative above the baseline; nan where the task has none.
        """
        return 1.0 - self.loss.middle / self.memoryless if self.memoryless > 0 else math.nan

    @cached_property
    def metric(self) -> str:
        """Name of the task's metric; empty without one."""
        names = self.column("metric").dropna()
        return str(names.iloc[0]) if len(names) else ""

    @cached_property
    def value(self) -> Spread:
        """Of the metric."""
        return self.spread("test_metric")

    @cached_property
    def longer(self) -> dict[str, Spread]:
        """Of ``lengths``."""
        return {name: Spread.of(values) for name, values in self.lengths.items()}

    @property
    def identities(self) -> tuple[str, ...]:
        """The trials."""
        return tuple(self.column("identity").unique())


def loss_rows(study: Study, grouping: Grouping) -> list[LossRow]:
    """One row per condition, width and horizon, in the order of the plan."""
    table, rows = study.tables["replicas"], []
    sizes = table[["width", "horizon"]]
    for condition, identities in grouping.members():
        places = study.places("replicas", identities)
        for size, seeds in group(sizes.iloc[places].set_axis(places), sizes.columns):
            row = LossRow(condition, size["width"], size["horizon"], table, seeds.index.to_numpy())
            row = replace(row, times=min(_factors(study, row)))
            rows.append(replace(row, lengths=_lengths(study, row)))
    return rows


def _factors(study: Study, row: LossRow) -> Iterator[int]:
    return (study.records[name]["config"]["task"].get("test_factor", 1) for name in row.identities)


def _lengths(study: Study, row: LossRow) -> dict[str, np.ndarray]:
    """A test whose sequences end before ``kT`` has a number of that name, too, of all that there is: it is left out."""
    first, identities = f"{row.column('metric').iloc[0]}_", row.identities
    metrics = study.of("metrics", identities)
    if metrics.empty:
        return {}
    return {
        str(name): values["value"].to_numpy(float)
        for name, values in metrics.groupby("metric", sort=False)
        if str(name).startswith(first) and (length := _LENGTH.search(str(name))) and int(length[1]) <= row.times
    }


def once_each(rows: Sequence[LossRow]) -> list[LossRow]:
    """One row for each trained model, though it was measured in several ways: a model is not ranked against itself.

    The settings of a measurement in which rows of one training differ, as the reference of the perturbation error, tell
    no models apart: no row says them. Of rows that are alike but for them, the one with most seeds stays, and of equal
    ones that with most test sequences. Where such rows are of different trainings, all rows stay as they are.
    """
    told: dict[str, dict[str, set[Any]]] = {}
    for row in rows:
        for training in _trainings(row):
            for name, value in row.condition.items():
                told.setdefault(training, {}).setdefault(name, set()).add(value)
    untold = {name for fields in told.values() for name, values in fields.items() if len(values) > 1}
    untold = {name for name in untold if not name.startswith(_OF_A_MODEL)}
    alike: dict[Any, list[LossRow]] = {}
    for row in rows:
        alike.setdefault((*masked(row.condition, untold).values(), row.width, row.horizon), []).append(row)
    most = [max(group, key=lambda row: (row.seeds, row.condition.get(_SEQUENCES) or 0)) for group in alike.values()]
    if any(
        not _trainings(row) <= _trainings(kept)
        for kept, group in zip(most, alike.values(), strict=True)
        for row in group
    ):
        return [*rows]
    return [replace(row, condition=masked(row.condition, untold)) for row in most]


_OF_A_MODEL = ("task", "model", "training", "chain")
_SEQUENCES = "perturbation.test_size"


def _trainings(row: LossRow) -> set[str]:
    return set(map(training_of, row.identities))


def largest(rows: Sequence[LossRow]) -> list[LossRow]:
    """Of each condition, the row of its longest horizon, and there of the widest."""
    best: dict[tuple[object, ...], LossRow] = {}
    for row in rows:
        key = tuple(row.condition.values())
        best[key] = max(best.get(key, row), row, key=lambda r: (r.horizon or 0.0, r.width or 0.0))
    return list(best.values())


@dataclass(frozen=True)
class Quantity:
    """The number by which models are compared: picture, table and headline of a page speak of the same one.

    Attributes:
        metric: the part of a metric's name that ranks, ``accuracy``; empty: the test loss.
        times: length of the sequences in those of training.
        is_named: whether a headline says which one it is: models were tested at several lengths.
        is_mixed: whether a task has no accuracy, and is ranked by its loss.
    """

    metric: str = ACCURACY
    times: int = 1
    is_named: bool = False
    is_mixed: bool = False

    @property
    def name(self) -> str:
        """``accuracy at 4T``, ``test loss``."""
        length = "T" if self.times == 1 else f"{self.times}T"
        return (f"{self.metric} at {length}" if self.is_named else self.metric) if self.metric else "test loss"

    @property
    def title(self) -> str:
        """The name, and what stands in its place where a task has no accuracy; a loss is stored for one length."""
        if not self.metric and self.is_named:
            return f"{self.name} of the longest test sequences (no other length is stored)"
        return f"{self.name}, else test loss" if self.is_mixed and self.times == 1 else self.name

    def is_share(self, row: LossRow) -> bool:
        """Whether it is a share of right answers of this row, and no loss."""
        return bool(self.metric) and by_accuracy(row)

    def is_known(self, row: LossRow) -> bool:
        """Whether a row was measured so. A task without an accuracy is ranked by its loss."""
        return self.times == 1 or (self.is_share(row) and self.key(row) in row.lengths)

    def values(self, row: LossRow) -> np.ndarray:
        """By seed."""
        if not self.is_share(row):
            return row.losses
        return row.column("test_metric").to_numpy(float) if self.times == 1 else row.lengths[self.key(row)]

    def spread(self, row: LossRow) -> Spread:
        """Over the seeds."""
        return Spread.of(self.values(row))

    def key(self, row: LossRow) -> str:
        """The name of the number in the table of losses."""
        return f"{row.metric}_{self.times}T" if self.times > 1 else "metric_value"


RANKING = Quantity()
"""What ranks models: their accuracy at the trained length, where a task has one, else their test loss."""


def quantities(rows: Sequence[LossRow]) -> list[Quantity]:
    """The numbers by which the models of a study can be compared, first the one that ranks them.

    A share is offered at each length that some row was tested at, and the loss beside it.
    """
    if not any(map(by_accuracy, rows)):
        return [Quantity("")]
    found = {
        int(length[1]) for row in filter(by_accuracy, rows) for name in row.lengths if (length := _LENGTH.search(name))
    }
    mixed = not all(map(by_accuracy, rows))
    named = [Quantity(times=times, is_named=bool(found), is_mixed=mixed) for times in sorted({1, *found})]
    return [*named, Quantity("", is_named=bool(found))]


def ranked(rows: Sequence[LossRow], by: Quantity = RANKING) -> list[LossRow]:
    """The best first; what is not finite comes last, and so does the accuracy of few survivors."""

    def key(row: LossRow) -> float:
        middle = by.spread(row).middle
        return math.inf if not is_ranked(row, by) else -middle if by.is_share(row) else middle

    return sorted(rows, key=key)


def is_ranked(row: LossRow, by: Quantity = RANKING) -> bool:
    """Whether the median seed ended with a finite loss, and was measured so."""
    return math.isfinite(by.spread(row).middle) and not math.isinf(row.loss.middle)


def level(rows: Sequence[LossRow], by: Quantity = RANKING) -> list[LossRow]:
    """Of one task the best, first, and those whose seeds' range overlaps with its; empty where no median is finite."""
    known = [row for row in ranked(rows, by) if is_ranked(row, by)]
    if not known:
        return []
    best, *others = known
    ends = by.spread(best)

    def overlaps(row: LossRow) -> bool:
        own = by.spread(row)
        high, low = (own.high, ends.low) if by.is_share(best) else (ends.high, own.low)
        return high >= low or alike(high, low)

    return [best, *filter(overlaps, others)]


def tied(rows: Sequence[LossRow], by: Quantity = RANKING) -> list[LossRow]:
    """Of one task the best, first, and those of the same median, but for rounding; empty where none is finite."""
    known = level(rows, by)
    return [row for row in known if alike(by.spread(row).middle, by.spread(known[0]).middle)]


def is_equal(one: LossRow, other: LossRow, by: Quantity = RANKING) -> bool:
    """Whether two rows have the same seeds, and in each the same number, but for rounding."""
    numbers = [[*zip(map(int, row.column("seed")), by.values(row), strict=False)] for row in (one, other)]
    if {len(values) for values in numbers} != {one.seeds, other.seeds} or one.seeds != other.seeds:
        return False
    return all(
        seed == same and (alike(value, own) or (math.isnan(value) and math.isnan(own)))
        for (seed, value), (same, own) in zip(*map(sorted, numbers), strict=True)
    )


def is_unlearned(row: LossRow, by: Quantity) -> bool:
    """Whether a row has not learned its task, where its loss is of the sequences that ``by`` is of."""
    # the loss is of the longest sequences: it says nothing of an accuracy in their first steps
    is_longest = by.key(row) == [by.key(row), *row.lengths][-1]
    return not row.learned and (is_longest or not by.is_share(row))


def by_accuracy(row: LossRow) -> bool:
    """Whether the metric of a row ranks it."""
    return ACCURACY in row.metric and not math.isnan(row.value.middle)
