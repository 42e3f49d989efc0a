"""Claims in words beside what was measured: one row per pair of cells, and what follows for each claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.claims.cells import key
from memsweep.config.claims.comparisons import MISSING, Comparison, at_path
from memsweep.errors import MemsweepError
from memsweep.report.naming.labels import field_name
from memsweep.stability.comparison.metrics import SeedValue, per_seed
from memsweep.stability.comparison.paired import Judged, PairTest, Support, in_words, judged, paired_test, together

_CLAIM = ("claim", "verdict", "more_seeds")
_PAIR = ("cells", "test", "metric", "left_identity", "right_identity", "seeds", "ties", "left", "right")
_FIGURES = ("scale", "effect", "low", "high", "p", "p_holm")
COMPARED_COLUMNS = (*_CLAIM, *_PAIR, *_FIGURES)
"""Of ``compared_frame``.

``verdict`` and ``more_seeds`` are the claim's, ``test`` says the same of the pair of cells alone. ``cells`` is where
the pair stands on the axes in which the claim's pairs differ. ``left`` and ``right`` are medians over the seeds that
both have; ``effect`` (left / right or left - right, by ``scale``) is the Hodges-Lehmann estimate with its 95 %
interval, where radii are censored that of the smallest differences possible. ``p_holm`` is ``p``, one-sided, under
Holm's correction over all rows.
"""


@dataclass(frozen=True)
class Compared:
    """One pair of cells that a claim speaks of.

    Attributes:
        comparison: the claim.
        cells: dotted path -> value, equal on both sides, of the other axes in which the claim's pairs differ.
        left, right: identities of the trials; empty where a side has none.
        judged: the test among all of the study.
    """

    comparison: Comparison
    cells: Mapping[str, Any]
    left: str
    right: str
    judged: Judged

    @property
    def place(self) -> str:
        """``width=8, horizon=100``; empty where the claim speaks of one pair alone."""
        there = {path: value for path, value in self.cells.items() if value is not MISSING and value is not None}
        return ", ".join(f"{field_name(path)}={_word(there[path])}" for path in there)


def compare_cells(
    comparisons: Iterable[Comparison],
    records: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, pd.DataFrame],
    chosen: Sequence[str] | None = None,
) -> tuple[Compared, ...]:
    """Test every claim on every pair of cells that it speaks of.

    Args:
        comparisons: the study's.
        records: identity -> record.
        tables: ``replicas`` and ``curves`` over all records.
        chosen: identities of the trials that count, best first: of several trials of one cell, the first one that
            fits a side stands for it. None: all.

    Returns:
        In the order of the claims, then of the cells. Where one side of a pair has no result, and of a claim without
        any pair, there is an entry that is not measured.
    """
    identities = [identity for identity in (records if chosen is None else chosen) if identity in records]
    values = _Values(tables, identities)
    pairs = [(each, *pair) for each in comparisons for pair in _pairs(each, identities, records)]
    tests = [values.test(comparison, left, right) for comparison, _, left, right in pairs]
    return tuple(Compared(*pair, judged=found) for pair, found in zip(pairs, judged(tests), strict=True))


def compared_frame(compared: Sequence[Compared]) -> pd.DataFrame:
    """One row per pair of cells, with ``COMPARED_COLUMNS``."""
    claims = _by_claim(compared)
    return pd.DataFrame([_row(each, *claims[each.comparison.text]) for each in compared], columns=[*COMPARED_COLUMNS])


def _by_claim(compared: Sequence[Compared]) -> dict[str, tuple[Support, int]]:
    texts = dict.fromkeys(each.comparison.text for each in compared)
    return {text: together([each.judged for each in compared if each.comparison.text == text]) for text in texts}


class _Values:
    """The metrics of trials, each read from the tables once."""

    def __init__(self, tables: Mapping[str, pd.DataFrame], identities: Sequence[str]) -> None:
        self._rows = {name: _by_identity(tables[name], identities) for name in ("replicas", "curves")}
        self._found: dict[tuple[str, str], list[SeedValue]] = {}

    def test(self, comparison: Comparison, left: str, right: str) -> PairTest:
        sides = (self._of(comparison.metric, identity) for identity in (left, right))
        return paired_test(comparison.metric, comparison.op, *sides)

    def _of(self, metric: str, identity: str) -> list[SeedValue]:
        if (metric, identity) not in self._found:
            rows = {name: parts.get(identity, pd.DataFrame()) for name, parts in self._rows.items()}
            self._found[metric, identity] = _measured(metric, rows)
        return self._found[metric, identity]


def _by_identity(table: pd.DataFrame, identities: Sequence[str]) -> dict[Any, pd.DataFrame]:
    if table.empty:
        return {}
    return dict(tuple(table[table["identity"].isin(identities)].groupby("identity", sort=False)))


def _measured(metric: str, rows: Mapping[str, pd.DataFrame]) -> list[SeedValue]:
    if rows["replicas"].empty:
        return []
    try:
        return per_seed(metric, rows)
    except MemsweepError:  # results of other settings, which lack it: the claim is not measured
        return []


def _pairs(
    comparison: Comparison, identities: Iterable[str], records: Mapping[str, Mapping[str, Any]]
) -> list[tuple[dict[str, Any], str, str]]:
    """Where a claim's pairs stand, on the axes in which they differ, and both trials; empty where one is missing."""
    left: dict[str, str] = {}
    right: dict[str, str] = {}
    places: dict[str, dict[str, Any]] = {}
    for identity in identities:
        config = records[identity]["config"]
        place = {path: at_path(config, path) for path in comparison.same}
        for side, condition in ((left, comparison.left), (right, comparison.right)):
            if comparison.covers(condition, config):
                side.setdefault(key(list(place.values())), identity)
                places.setdefault(key(list(place.values())), place)
    varied = [path for path in comparison.same if len({key(place[path]) for place in places.values()}) > 1]
    pairs = [
        ({path: place[path] for path in varied}, left.get(at, ""), right.get(at, "")) for at, place in places.items()
    ]
    return pairs or [({}, "", "")]


def _row(each: Compared, support: Support, more_seeds: int) -> dict[str, Any]:
    test = each.judged.test
    row: dict[str, Any] = {"claim": each.comparison.text, "verdict": str(support), "more_seeds": more_seeds}
    row |= {
        "cells": each.place,
        "test": in_words(each.judged.support, each.judged.more_seeds),
        "metric": each.comparison.metric,
    }
    row |= {"left_identity": each.left, "right_identity": each.right, "seeds": test.n, "ties": test.ties}
    row |= {"left": test.left, "right": test.right, "scale": "ratio" if test.ratio else "difference"}
    return row | {
        "effect": test.effect,
        "low": test.low,
        "high": test.high,
        "p": test.p,
        "p_holm": each.judged.adjusted,
    }


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = ", ".join(f"{key}={_word(inner)}" for key, inner in value.items() if key != "name")
        return f"{value.get('name', '')}({fields})" if fields else str(value.get("name", ""))
    return str(value)
