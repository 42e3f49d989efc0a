"""Claims of which some cells are not measured: what is said of them, and of each pair of cells."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pytest

from memsweep.analyses.claims.cells import CellPair, compared_frame
from memsweep.analyses.claims.charts import claim_charts
from memsweep.analyses.claims.tables import claim_table, counted
from memsweep.config.schema.claims import Comparison
from memsweep.stability.comparison.metrics import SeedValue
from memsweep.stability.comparison.paired import correct, paired_test

SEEDS = 8
WIDER, AGAINST, NONE = (1, SEEDS), (-1, SEEDS), (1, 0)
"""The sign of the differences between a pair of cells, and its seeds."""


def compared(pairs: Mapping[int, tuple[int, int]]) -> pd.DataFrame:
    """One claim on a pair of cells at each width."""
    claim = Comparison("wider", "margin", "greater", {}, {}, {}, ("model.width",))
    tests = [
        paired_test(
            claim.metric,
            claim.direction,
            [SeedValue(seed, sign * (1.0 + 0.1 * seed)) for seed in range(seeds)],
            [SeedValue(seed, 0.0) for seed in range(seeds)],
        )
        for sign, seeds in pairs.values()
    ]
    return compared_frame(
        [
            CellPair(claim, {"model.width": width}, ("a",), ("b",), result.test.n, result)
            for width, result in zip(pairs, correct(tests), strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ({2: WIDER, 4: WIDER}, "supported"),
        ({2: WIDER, 4: WIDER, 8: NONE}, "supported where measured"),
        ({2: WIDER, 4: AGAINST, 8: NONE}, "contradicted"),
        ({2: NONE, 4: NONE}, "not measured"),
    ],
)
def test_a_claim_is_supported_alone_where_all_its_cells_are_measured(
    pairs: Mapping[int, tuple[int, int]], verdict: str
) -> None:
    frame = compared(pairs)
    assert set(frame["verdict"]) == {verdict}
    assert counted(frame).startswith(f"Of 1 claim, 1 is {verdict}.")


def test_the_chart_says_of_each_pair_of_cells_what_the_table_says() -> None:
    for pairs in ({2: WIDER, 4: AGAINST, 8: NONE}, {2: WIDER, 4: AGAINST}, {2: WIDER, 8: NONE}):
        frame = compared(pairs)
        (chart,) = claim_charts(frame)
        table = claim_table(frame)
        (column,) = (column for column in table.columns if column.name == "conclusion")
        assert column.cell is not None
        cells = [column.cell(row) for row in table.rows if row["seeds"]]
        assert [(row["words"], row["tone"]) for row in chart["rows"]] == [(cell.text, cell.tone) for cell in cells]
    assert cells[0].text == "✓ supported at width=2"
