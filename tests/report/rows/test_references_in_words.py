"""Every view says in one sentence of which reading a verdict is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
import pytest

from memsweep import report
from memsweep.documents.keys.runs import VerdictItem
from memsweep.report.analysis.contents import judge
from memsweep.report.headline.evidence import gap_of
from memsweep.report.rows.verdicts import REFERENCES, referred
from memsweep.report.tracked import verdicts_of
from report_study import Condition, write_study


def written(folder: Path, reading: str, floor: float, count: int) -> Path:
    """A study of one condition, whose radii were read so, and whose errors begin at a share of chance.

    It has ``count`` widths and as many horizons, and a seed more.
    """

    def read_so(_: int, tables: dict[str, pd.DataFrame]) -> None:
        tables["curves"]["reading"] = reading

    widths, horizons = ([start * 2**power for power in range(count)] for start in (2, 20))
    sizes: dict[str, Any] = {"widths": widths, "horizons": horizons, "seeds": count + 1}
    write_study(folder, [Condition(floor=floor)], complete=read_so, balls=["recurrent"], memory=False, **sizes)
    return folder


@pytest.mark.parametrize("reading", ["drift", "metric", "self"])
def test_page_terminal_csv_and_mlflow_say_of_which_reading_a_verdict_is(tmp_path: Path, reading: str) -> None:
    name = reading if reading in REFERENCES else "target"
    paths = report.build(written(tmp_path / "synthetic", reading, 1e-3, 2))
    (finding,) = paths.contents.verdicts
    assert finding.reference == name
    sentence = f"Verdicts are {REFERENCES[name]}."
    assert referred([finding]) == sentence
    page = paths.page.read_text(encoding="utf-8")
    assert sentence.replace("'", "&#39;") in page
    assert " ".join(sentence.split()) in " ".join(paths.text().split())
    (row,) = pd.read_csv(paths.folder / "verdicts.csv").to_dict("records")
    assert row["reference"] == name
    assert (REFERENCES[name] in row["reasons"]) == (name != "target")
    assert {tags.tags["ball_recurrent/reference"] for tags in verdicts_of(paths.contents).values()} == {name}
    assert {*get_args(get_args(get_type_hints(VerdictItem, include_extras=True)["reference"])[0])} == {*REFERENCES}


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        ("drift", "no model fits: error 50 % or more of the zero predictor's, at most 0.5 % counts"),
        ("metric", "no model solves the task: error rate 33 % or more of that at chance, at most 5 % counts"),
    ],
)
def test_a_study_without_a_fit_says_what_of(tmp_path: Path, reading: str, said: str) -> None:
    (finding,) = judge(written(tmp_path / "synthetic", reading, 0.5, 4)).verdicts
    assert gap_of(finding).text == said
