"""Learning rules from best to worst, and in how many seeds each is better than the next: a count, not a test.

The comparisons of a study (``claims: compare``) test such an order; this says what it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.labels import Labels, masked, show
from memsweep.report.style import figure

RULE = "training.rule"
ACCURACY, LOSS = "accuracy", "loss"


@dataclass(frozen=True)
class Place:
    """One rule in its order.

    Attributes:
        rule: its name.
        by: over the seeds, what the order is by.
        better: seeds in which it is better than the next rule; of the last one, 0.
        seeds: that both have, the same initial weights and data; of the last one, 0.
    """

    rule: str
    by: Spread
    better: int
    seeds: int


@dataclass(frozen=True)
class Order:
    """Rules that trained the same models on the same task, best first.

    Attributes:
        memory, machine: in words, without the rule; ``machine`` with its size where the study has several.
        by: the metric's name where it is an accuracy, else ``loss``: the median over seeds decides.
    """

    memory: str
    machine: str
    by: str
    places: tuple[Place, ...]


def orders(rows: Sequence[LossRow], labels: Labels) -> list[Order]:
    """An order per condition and size that several rules have; none where a study has one rule."""
    if not rows or RULE not in rows[0].condition:
        return []
    apart = labels.without(RULE)
    sizes = len({(row.width, row.horizon) for row in rows}) > 1
    grouped: dict[tuple[object, ...], list[LossRow]] = {}
    for row in rows:
        key = (*masked(row.condition, (RULE,)).values(), row.width, row.horizon)
        grouped.setdefault(key, []).append(row)
    found = []
    for members in grouped.values():
        if len(members) > 1:
            first = members[0]
            rest = masked(first.condition, (RULE,))
            where = f", width {show(first.width)}, horizon {show(first.horizon)}" if sizes else ""
            by = first.metric if _by_metric(members) else LOSS
            found.append(Order(apart.memory(rest), apart.machine(rest) + where, by, _places(members)))
    return found


def sentence(order: Order) -> str:
    """``On copying_bits, rules by accuracy, best first: bptt 0.98 [...], better than the next in 4 of 5 seeds; ...``"""
    parts: list[str] = []
    for place in order.places:
        spread = place.by
        text = f"{place.rule} {figure(spread.middle)} [{figure(spread.low)}, {figure(spread.high)}]"
        if place.seeds:
            than = "better than the next in " if not parts else "in "
            text += f", {than}{place.better} of {place.seeds} seeds"
        parts.append(text)
    by = order.by.replace("_", " ")
    return f"On {order.memory} ({order.machine}), rules by {by}, best first: {'; '.join(parts)}."


def _by_metric(rows: Sequence[LossRow]) -> bool:
    """Whether the order is by the task's metric: an accuracy, of which everybody knows that more is better."""
    return all(ACCURACY in row.metric and not math.isnan(row.value.middle) for row in rows)


def _places(rows: Sequence[LossRow]) -> tuple[Place, ...]:
    by_metric = _by_metric(rows)
    ranked = sorted(rows, key=lambda row: -row.value.middle if by_metric else _worst_for_nan(row.loss.middle))
    places = []
    for row, following in zip(ranked, [*ranked[1:], None], strict=True):
        mine, others = (_costs(one, by_metric) if one is not None else {} for one in (row, following))
        both = mine.keys() & others.keys()
        better = sum(mine[seed] < others[seed] for seed in both)
        places.append(Place(str(row.condition[RULE]), row.value if by_metric else row.loss, better, len(both)))
    return tuple(places)


def _costs(row: LossRow, by_metric: bool) -> Mapping[int, float]:
    """seed -> what is the better the less it is; a replica that diverged is the worst there is."""
    if by_metric:
        return {seed: _worst_for_nan(-value) for seed, value in row.value_of.items()}
    return {seed: _worst_for_nan(value) for seed, value in row.loss_of.items()}


def _worst_for_nan(cost: float) -> float:
    return math.inf if math.isnan(cost) else cost
