"""Learning rules from best to worst, and in how many seeds each is better than the next.

This is a count. A claim of the study (``claims: compare``) tests an order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.labels import Labels, masked
from memsweep.report.naming.numbers import figure, show

RULE = "training.rule"
ACCURACY, LOSS = "accuracy", "loss"


@dataclass(frozen=True)
class Rank:
    """One rule in its ranking.

    Attributes:
        rule: its name.
        by: the ranked value over the seeds.
        better: seeds in which it is better than the next rule; 0 for the last one.
        seeds: those of both rules, with the same initial weights and data; 0 for the last one.
    """

    rule: str
    by: Spread
    better: int
    seeds: int


@dataclass(frozen=True)
class Ranking:
    """Rules that trained the same models on the same task, best first.

    Attributes:
        memory, machine: in words, without the rule; ``machine`` with its size where the study has several.
        by: the metric's name where it is an accuracy, else ``loss``: the median over seeds decides.
    """

    memory: str
    machine: str
    by: str
    ranks: tuple[Rank, ...]


def rankings(rows: Sequence[LossRow], labels: Labels) -> list[Ranking]:
    """A ranking for each condition and size that was trained by several rules."""
    if not rows or RULE not in rows[0].condition:
        return []
    apart = labels.without(RULE)
    sizes = len({(row.width, row.horizon) for row in rows}) > 1
    grouped: dict[tuple[object, ...], list[LossRow]] = {}
    for row in rows:
        key = (*masked(row.condition, (RULE,)).values(), row.width, row.horizon)
        grouped.setdefault(key, []).append(row)
    ranked = []
    for members in grouped.values():
        if len(members) > 1:
            first = members[0]
            rest = masked(first.condition, (RULE,))
            where = f", width {show(first.width)}, horizon {show(first.horizon)}" if sizes else ""
            by = first.metric if _by_metric(members) else LOSS
            ranked.append(Ranking(apart.memory(rest), apart.machine(rest) + where, by, _ranks(members)))
    return ranked


def sentence(ranking: Ranking) -> str:
    """``On copying_bits, rules by accuracy, best first: bptt 0.98 [...], better than the next in 4 of 5 seeds; ...``"""
    parts: list[str] = []
    for rank in ranking.ranks:
        spread = rank.by
        text = f"{rank.rule} {figure(spread.middle)} [{figure(spread.low)}, {figure(spread.high)}]"
        if rank.seeds:
            than = "better than the next in " if not parts else "in "
            text += f", {than}{rank.better} of {rank.seeds} seeds"
        parts.append(text)
    by = ranking.by.replace("_", " ")
    return f"On {ranking.memory} ({ranking.machine}), rules by {by}, best first: {'; '.join(parts)}."


def _by_metric(rows: Sequence[LossRow]) -> bool:
    """Whether the ranking is by the task's metric, which it is for an accuracy: there more is better."""
    return all(ACCURACY in row.metric and not math.isnan(row.value.middle) for row in rows)


def _ranks(rows: Sequence[LossRow]) -> tuple[Rank, ...]:
    by_metric = _by_metric(rows)
    ranked = sorted(rows, key=lambda row: -row.value.middle if by_metric else _worst_for_nan(row.loss.middle))
    ranks = []
    for row, following in zip(ranked, [*ranked[1:], None], strict=True):
        mine, others = (_costs(one, by_metric) if one is not None else {} for one in (row, following))
        both = mine.keys() & others.keys()
        better = sum(mine[seed] < others[seed] for seed in both)
        ranks.append(Rank(str(row.condition[RULE]), row.value if by_metric else row.loss, better, len(both)))
    return tuple(ranks)


def _costs(row: LossRow, by_metric: bool) -> dict[int, float]:
    """seed -> its cost, the less the better; a seed that diverged costs infinity."""
    values = {seed: -value for seed, value in row.value_by_seed.items()} if by_metric else row.loss_by_seed
    return {seed: _worst_for_nan(value) for seed, value in values.items()}


def _worst_for_nan(cost: float) -> float:
    return math.inf if math.isnan(cost) else cost
