"""Which suggestions are the best: the least or greatest of one objective, the Pareto front of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def best(values: Mapping[int, Sequence[float]], modes: Sequence[str], top: int) -> list[int]:
    """Numbers of the suggestions to be confirmed, the best first.

    With one objective, the ``top`` best. With several, members of the Pareto front in the order of the first
    objective; where the front has more than ``top``, as many in equal distances along it, both ends among them.
    Values that are not finite never win; of equal ones the earlier suggestion does.

    Args:
        values: number -> objectives of each suggestion that was trained to the end.
        modes: ``min`` or ``max`` for each objective.
        top: how many at most.
    """
    signs = [-1.0 if mode == "max" else 1.0 for mode in modes]
    costs = {
        number: tuple(sign * value for sign, value in zip(signs, objectives, strict=True))
        for number, objectives in values.items()
        if all(map(math.isfinite, objectives))
    }
    order = sorted(front(costs) if len(modes) > 1 else costs, key=lambda number: (costs[number], number))
    if len(modes) == 1 or len(order) <= top:
        return order[:top]
    if top == 1:
        return [order[len(order) // 2]]
    return [order[round(place * (len(order) - 1) / (top - 1))] for place in range(top)]


def front(costs: Mapping[int, Sequence[float]]) -> list[int]:
    """Those that no other is at least as good as everywhere and better somewhere; smaller is better."""
    return [number for number, own in costs.items() if not any(_dominates(other, own) for other in costs.values())]


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
