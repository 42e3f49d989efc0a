"""Tests of a study's claims: one row per pair of cells, and the verdict on each claim."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.schema.canonical import MISSING
from memsweep.config.schema.claims import Comparison, at_path
from memsweep.errors import MemsweepError
from memsweep.report.analysis.contents import Contents
from memsweep.report.read.fields import short_names
from memsweep.stability.comparison.metrics import TABLES, SeedValue, per_seed
from memsweep.stability.comparison.paired import CorrectedTest, combine, correct, paired_test, support_text

_CLAIM = ("claim", "verdict", "more_seeds")
_PAIR = ("cells", "test", "metric", "left_identity", "right_identity", "seeds", "ties", "left", "right")
_FIGURES = ("scale", "effect", "low", "high", "p", "p_holm")
COMPARED_COLUMNS = (*_CLAIM, *_PAIR, *_FIGURES)
"""Of ``compared_frame``.

``verdict`` and ``more_seeds`` belong to the claim, ``test`` is the verdict on the pair of cells alone. ``cells`` names
the values of the axes in which the claim's pairs differ. ``left`` and ``right`` are medians over the seeds that both
have. ``effect`` (left / right or left - right, by ``scale``) is the Hodges-Lehmann estimate with its 95 % interval;
where radii are censored, that of the smallest differences possible. ``p_holm`` is ``p``, one-sided, under Holm's
correction over all rows.
"""


@dataclass(frozen=True)
class CellPair:
    """One pair of cells of a claim, tested.

    Attributes:
        comparison: the claim.
        cells: dotted path -> value, equal on both sides, of the other axes in which the claim's pairs differ.
        left, right: identities of the trials; empty where a side has none.
        result: of the test, corrected for all tests of the study.
    """

    comparison: Comparison
    cells: Mapping[str, Any]
    left: str
    right: str
    result: CorrectedTest

    @property
    def where(self) -> str:
        """``width=8, horizon=100``; empty where the claim has one pair alone."""
        known = {path: value for path, value in self.cells.items() if value is not MISSING and value is not None}
        return ", ".join(f"{name}={_word(known[path])}" for path, name in short_names(known).items())


def compare_cells(
    comparisons: Iterable[Comparison],
    records: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, pd.DataFrame],
    chosen: Sequence[str] | None = None,
) -> tuple[CellPair, ...]:
    """Test every claim on each of its pairs of cells.

    Args:
        comparisons: the study's.
        records: identity -> record.
        tables: ``replicas``, ``metrics`` and ``curves`` over all records.
        chosen: identities of the trials that count, best first: of several trials of one cell, the first one that
            fits a side stands for it. None: all.

    Returns:
        In the order of the claims, then of the cells. Where one side of a pair has no result, and of a claim without
        any pair, there is an entry that is not measured.
    """
    identities = [identity for identity in (records if chosen is None else chosen) if identity in records]
    rows = {name: _by_identity(tables[name], identities) for name in TABLES if name in tables}
    known: dict[tuple[str, str], list[SeedValue]] = {}  # cells of several claims are read from the tables once

    def values(metric: str, identity: str) -> list[SeedValue]:
        if (metric, identity) not in known:
            of_trial = {name: rows.get(name, {}).get(identity, pd.DataFrame()) for name in TABLES}
            known[metric, identity] = _measured(metric, of_trial)
        return known[metric, identity]

    pairs = [(each, *pair) for each in comparisons for pair in _pairs(each, identities, records)]
    tests = [
        paired_test(each.metric, each.direction, values(each.metric, left), values(each.metric, right))
        for each, _, left, right in pairs
    ]
    return tuple(CellPair(*pair, result=result) for pair, result in zip(pairs, correct(tests), strict=True))


def compared_frame(pairs: Sequence[CellPair]) -> pd.DataFrame:
    """One row per pair of cells, with ``COMPARED_COLUMNS``."""
    claims: dict[str, list[CorrectedTest]] = {}
    for pair in pairs:
        claims.setdefault(pair.comparison.text, []).append(pair.result)
    verdicts = {text: combine(results) for text, results in claims.items()}
    rows = []
    for pair in pairs:
        support, more_seeds = verdicts[pair.comparison.text]
        test = pair.result.test
        claim = (pair.comparison.text, str(support), more_seeds)
        own = (pair.where, support_text(pair.result.support, pair.result.more_seeds), pair.comparison.metric)
        measured = (pair.left, pair.right, test.n, test.ties, test.left, test.right)
        figures = ("ratio" if test.ratio else "difference", test.effect, test.low, test.high, test.p)
        rows.append((*claim, *own, *measured, *figures, pair.result.adjusted))
    return pd.DataFrame(rows, columns=[*COMPARED_COLUMNS])


def compared_of(contents: Contents) -> pd.DataFrame:
    """The claims of a study that compare cells; those of a search are tested on its retrained winners."""
    measured, searched = contents.measured, contents.searched
    claims = measured.claims.compare if measured.claims is not None else ()
    chosen = searched.measured if searched is not None else None
    return compared_frame(compare_cells(claims, measured.records, measured.tables, chosen) if claims else ())


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
    """Each pair's values on the axes in which the claim's pairs differ, and both trials; empty where one is missing."""
    trials: dict[str, dict[str, str]] = {"left": {}, "right": {}}
    places: dict[str, dict[str, Any]] = {}
    for identity in identities:
        config = records[identity]["config"]
        place = {path: at_path(config, path) for path in comparison.same}
        for side, condition in (("left", comparison.left), ("right", comparison.right)):
            if comparison.covers(condition, config):
                trials[side].setdefault(_key(list(place.values())), identity)
                places.setdefault(_key(list(place.values())), place)
    varied = [path for path in comparison.same if len({_key(place[path]) for place in places.values()}) > 1]
    pairs = [
        ({path: place[path] for path in varied}, trials["left"].get(at, ""), trials["right"].get(at, ""))
        for at, place in places.items()
    ]
    return pairs or [({}, "", "")]


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = ", ".join(f"{key}={_word(inner)}" for key, inner in value.items() if key != "name")
        return f"{value.get('name', '')}({fields})" if fields else str(value.get("name", ""))
    return str(value)
