"""Tests of a study's claims: one row per pair of cells, and the verdict on each claim."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.schema.canonical import MISSING
from memsweep.config.schema.claims import Comparison, at_path
from memsweep.config.schema.search import BALL_OF
from memsweep.errors import MemsweepError
from memsweep.report.analysis.contents import Contents
from memsweep.report.naming.conditions import Cell, cells_of
from memsweep.report.read.fields import short_names
from memsweep.stability.comparison.metrics import TABLES, SeedValue, fitting_seeds, per_seed
from memsweep.stability.comparison.paired import CorrectedTest, Support, combine, correct, paired_test, support_text

_Measured = tuple[SeedValue, float]  # of one seed, and whether its model fits: nan where that is not asked
_CLAIM = ("claim", "verdict", "more_seeds")
_PAIR = (
    *("cells", "test", "metric", "left_identity", "right_identity", "seeds", "ties", "left", "right"),
    *("left_fits", "right_fits"),
)
_FIGURES = ("scale", "effect", "low", "high", "p", "p_holm", "p_against")
COMPARED_COLUMNS = (*_CLAIM, *_PAIR, *_FIGURES)
"""Of ``compared_frame``.

``verdict`` and ``more_seeds`` belong to the claim, and speak of its measured pairs. ``test`` is the verdict on the pair
of cells alone, which may not be measured. ``cells`` names the values of the axes in which the claim's pairs differ.
``left_identity`` and ``right_identity`` name the trials, with a blank between those of a cell to which seeds were
added. ``left`` and ``right`` are medians over the seeds that both have. Of radii, ``left_fits`` and ``right_fits``
count those seeds whose models fit, as a verdict asks. ``effect`` (left / right or left - right, by ``scale``) is the
Hodges-Lehmann estimate with its 95 % interval; where radii are censored, that of the smallest differences possible.
``p_holm`` is ``p``, one-sided, under Holm's correction over all rows, and ``p_against`` that of the opposite claim in
the place of this one.
"""


@dataclass(frozen=True)
class CellPair:
    """One pair of cells of a claim, tested.

    Attributes:
        comparison: the claim.
        cells: dotted path -> value, equal on both sides, of the other axes in which the claim's pairs differ.
        left, right: identities of the trials of each cell; empty where a side has none.
        common: how many seeds both cells have.
        result: of the test, corrected for all tests of the study.
        fits: of radii: on each side, for how many of these seeds the model fits; nan of other metrics.
    """

    comparison: Comparison
    cells: Mapping[str, Any]
    left: tuple[str, ...]
    right: tuple[str, ...]
    common: int
    result: CorrectedTest
    fits: tuple[float, float] = (math.nan, math.nan)

    @property
    def where(self) -> str:
        """``width=8, horizon=100``; empty where the claim has one pair alone."""
        known = {path: value for path, value in self.cells.items() if value is not MISSING and value is not None}
        return ", ".join(f"{name}={_word(known[path])}" for path, name in short_names(known).items())


def compare_cells(
    comparisons: Iterable[Comparison],
    records: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, pd.DataFrame],
    cells: Mapping[str, Cell],
    planned: Iterable[Mapping[str, Any]] = (),
) -> tuple[CellPair, ...]:
    """Test every claim on each of its pairs of cells, over all seeds that a cell has.

    Args:
        comparisons: the study's.
        records: identity -> record, of the trials that count.
        tables: ``replicas``, ``metrics`` and ``curves`` over all records.
        cells: identity -> cell, as of ``memsweep.report.naming.conditions.cells_of``. Of several cells that fit one
            side, the first one stands for it; of a seed that a cell has twice, the first one counts.
        planned: configs of all trials of the study, with and without a result.

    Returns:
        In the order of the claims, then of the cells. Where a side of a pair, or both, has no result, and of a claim
        without any pair, there is an entry that is not measured.
    """
    rows = {name: _by_identity(tables[name], [*records]) for name in TABLES if name in tables}
    known: dict[tuple[str, str], list[_Measured]] = {}  # cells of several claims are read from the tables once

    def values(metric: str, identities: Iterable[str]) -> dict[int, _Measured]:
        pooled: dict[int, _Measured] = {}
        for identity in identities:
            if (metric, identity) not in known:
                of_trial = {name: rows.get(name, {}).get(identity, pd.DataFrame()) for name in TABLES}
                known[metric, identity] = _measured(metric, of_trial)
            for value, fits in known[metric, identity]:
                pooled.setdefault(value.seed, (value, fits))
        return pooled

    pairs = [(each, *pair) for each in comparisons for pair in _pairs(each, records, cells, planned)]
    sides = [(values(each.metric, left), values(each.metric, right)) for each, _, left, right in pairs]
    tests = [
        paired_test(each.metric, each.direction, *([value for value, _ in side.values()] for side in both))
        for (each, *_), both in zip(pairs, sides, strict=True)
    ]
    return tuple(
        CellPair(*pair, len({*left} & {*right}), result, (_fits(left, right), _fits(right, left)))
        for pair, (left, right), result in zip(pairs, sides, correct(tests), strict=True)
    )


def seeds_to_decide(pairs: Iterable[CellPair]) -> int:
    """The seeds of each cell with which all underpowered claims would be decided, if effects are as large as they look.

    0 where no claim is underpowered.
    """
    by_claim = _by_claim(pairs).values()
    lacking = [own for own in by_claim if combine([pair.result for pair in own])[0] is Support.UNDERPOWERED]
    return max((pair.common + pair.result.more_seeds for own in lacking for pair in own), default=0)


def compared_frame(pairs: Sequence[CellPair]) -> pd.DataFrame:
    """One row per pair of cells, with ``COMPARED_COLUMNS``."""
    verdicts = {text: combine([pair.result for pair in own]) for text, own in _by_claim(pairs).items()}
    rows = []
    for pair in pairs:
        support, more_seeds = verdicts[pair.comparison.text]
        test = pair.result.test
        claim = (pair.comparison.text, str(support), more_seeds)
        own = (pair.where, support_text(pair.result.support, pair.result.more_seeds), pair.comparison.metric)
        measured = (" ".join(pair.left), " ".join(pair.right), test.n, test.ties, test.left, test.right, *pair.fits)
        figures = ("ratio" if test.ratio else "difference", test.effect, test.low, test.high, test.p)
        rows.append((*claim, *own, *measured, *figures, pair.result.adjusted, pair.result.against))
    return pd.DataFrame(rows, columns=[*COMPARED_COLUMNS])


def compared_of(contents: Contents) -> tuple[CellPair, ...]:
    """The claims of a study that compare cells; those of a search are tested on its retrained winners."""
    measured = contents.measured
    claims = measured.claims.compare if measured.claims is not None else ()
    if not claims:
        return ()
    cells = cells_of(contents.grouping.conditions, measured.tables["replicas"])
    return compare_cells(claims, measured.records, measured.tables, cells, contents.study.rows.values())


def _by_claim(pairs: Iterable[CellPair]) -> dict[str, list[CellPair]]:
    claims: dict[str, list[CellPair]] = {}
    for pair in pairs:
        claims.setdefault(pair.comparison.text, []).append(pair)
    return claims


def _by_identity(table: pd.DataFrame, identities: Sequence[str]) -> dict[Any, pd.DataFrame]:
    if table.empty:
        return {}
    return dict(tuple(table[table["identity"].isin(identities)].groupby("identity", sort=False)))


def _measured(metric: str, rows: Mapping[str, pd.DataFrame]) -> list[_Measured]:
    if rows["replicas"].empty:
        return []
    try:
        values = per_seed(metric, rows)
    except MemsweepError:  # results of other settings, which lack it: the claim is not measured
        return []
    if metric not in BALL_OF:
        return [(value, math.nan) for value in values]
    fitting = fitting_seeds(BALL_OF[metric], rows["curves"])
    return [(value, float(value.seed in fitting)) for value in values]


def _fits(side: Mapping[int, _Measured], other: Mapping[int, _Measured]) -> float:
    """How many of the seeds that both sides have fit on one of them; nan of metrics without this, and without seeds."""
    fits = [fit for seed, (_, fit) in side.items() if seed in other]
    return sum(fits) if fits else math.nan


def _pairs(
    comparison: Comparison,
    records: Mapping[str, Mapping[str, Any]],
    cells: Mapping[str, Cell],
    planned: Iterable[Mapping[str, Any]],
) -> list[tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]]:
    """Each pair's values on the axes in which the claim's pairs differ, and the trials of both cells."""
    conditions = {"left": comparison.left, "right": comparison.right}
    trials: dict[str, dict[str, list[str]]] = {side: {} for side in conditions}
    places: dict[str, dict[str, Any]] = {}
    measured = {identity: record["config"] for identity, record in records.items()}
    for identity, config in [*measured.items(), *(("", config) for config in planned)]:
        place = {path: at_path(config, path) for path in comparison.same}
        at = _key([*place.values()])
        for side, condition in conditions.items():
            if not comparison.covers(condition, config):
                continue
            places.setdefault(at, place)
            own = trials[side].setdefault(at, [])
            if identity and (not own or cells.get(identity, identity) == cells.get(own[0])):
                own.append(identity)
    varied = [path for path in comparison.same if len({_key(place[path]) for place in places.values()}) > 1]
    pairs = [
        ({path: place[path] for path in varied}, tuple(trials["left"].get(at, ())), tuple(trials["right"].get(at, ())))
        for at, place in places.items()
    ]
    return pairs or [({}, (), ())]


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = ", ".join(f"{key}={_word(inner)}" for key, inner in value.items() if key != "name")
        return f"{value.get('name', '')}({fields})" if fields else str(value.get("name", ""))
    return str(value)
