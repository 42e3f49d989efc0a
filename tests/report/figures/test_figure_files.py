"""Figure files in every format: the same bytes each time, and no date in them."""

from __future__ import annotations

import base64
import math
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from memsweep import report
from memsweep.analyses.claims.charts import claim_charts
from memsweep.report.figures.charts import gallery_of
from memsweep.report.figures.panels import embedded
from memsweep.report.formats import FIGURES
from memsweep.report.values.chart import ChartSet, chart
from memsweep.stability.verdict.judgement import Criteria
from report_study import THEORY, write_study

STARTS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
SMALL = {"widths": [2], "horizons": [50], "balls": ["recurrent"], "memory": False}


def test_the_same_data_gives_the_same_bytes_in_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    write_study(tmp_path, THEORY[1:2], **SMALL)  # type: ignore[arg-type]
    files: list[dict[str, bytes]] = []
    for _ in range(2):
        folder = report.build(tmp_path, formats=FIGURES).folder / "figures"
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert files[0] == files[1]
    assert {name.partition(".")[2] for name in files[0]} == {*FIGURES}
    for name, content in files[0].items():
        assert content.startswith(STARTS[name.partition(".")[2]])
        assert b"CreationDate" not in content
        assert b"dc:date" not in content


def test_a_report_by_other_criteria_leaves_the_studys_own_as_it_is(tmp_path: Path) -> None:
    write_study(tmp_path, THEORY[1:2], **SMALL)  # type: ignore[arg-type]
    own = report.build(tmp_path)
    before = {path: path.read_bytes() for path in own.folder.rglob("*") if path.is_file()}
    other = report.build(tmp_path, criteria=Criteria((0.02, 0.2), -0.3))
    assert {path: path.read_bytes() for path in own.folder.rglob("*") if path.is_file()} == before
    assert other.folder.relative_to(tmp_path).as_posix() == "judged/thresholds=0.02,0.2_slope_limit=-0.3"
    for text in (other.page.read_text(), " ".join(other.text().split())):
        assert "at thresholds of 2 % and 20 % and a slope limit of −0.3" in text
        assert "chosen after the results were seen" in text
    for report_of, power in ((own, "−0.2"), (other, "−0.3")):  # what the page says that stable means
        assert f"shrinks no faster than T<sup>{power}</sup> as the sequence" in report_of.page.read_text()


@pytest.mark.parametrize("whole", ["", "y"])
def test_an_axis_that_counts_is_labelled_by_whole_numbers(whole: str) -> None:
    shown = chart("bits", "horizon", "bits", "x", {"exp": [[10, 5], [100, 5], [1000, 6]]}, whole=whole)
    (panel,) = gallery_of(ChartSet("bits", [shown])).panels
    axes = Figure().subplots()
    panel.draw(axes)
    assert all(place.is_integer() for place in axes.get_yticks()) is bool(whole)


def test_claims_have_a_picture_of_effects_with_their_intervals() -> None:
    rows = [
        {
            "claim": "error(exp) < error(direct)",
            "cells": "width 8",
            "scale": "ratio",
            "effect": 0.5,
            "low": 0.4,
            "high": 0.7,
        },
        {"claim": "error(a) < error(b)", "cells": None, "scale": "ratio", "effect": 1.2, "low": 0.0, "high": math.inf},
        {
            "claim": "margin(a) > margin(b)",
            "cells": "",
            "scale": "difference",
            "effect": -2.0,
            "low": -3.0,
            "high": -1.0,
        },
        {
            "claim": "never measured",
            "cells": "",
            "scale": "ratio",
            "effect": math.nan,
            "low": math.nan,
            "high": math.nan,
        },
    ]
    compared = pd.DataFrame(rows).assign(seeds=5, verdict="supported", test="supported", more_seeds=0, p=0.01, ties=0)
    source, words = embedded(gallery_of(ChartSet("claims", claim_charts(compared))))
    text = base64.b64decode(source.partition(",")[2]).decode()
    assert "error(exp) < error(direct), width 8 0.5 [0.4, 0.7]" in words
    assert "margin(a) > margin(b) −2 [−3, −1]" in words
    assert ["error(exp) &lt; error(direct), width 8" in text, "margin(a)" in text, "never" in text] == [
        True,
        True,
        False,
    ]
    assert not [*claim_charts(pd.DataFrame())]
