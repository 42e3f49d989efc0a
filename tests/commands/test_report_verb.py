"""``memsweep report``: studies side by side in 80 columns and as files, one table, and flags that would do nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from jsonschema import Draft7Validator

import memsweep as ms
from memsweep.cli import main
from memsweep.documents.schema import document_schema
from memsweep.errors import MemsweepError
from memsweep.stability.verdict.judgement import RULE_VERSION
from memsweep.sweep.store.layout import folder_name
from report_study import THEORY, write_study

SMALL = {"widths": [2, 3], "horizons": [50], "balls": ["recurrent"], "memory": False}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two studies of one width and horizon, of which one has other steps and losses."""
    for place, name in enumerate(("first", "a second one")):
        folder = tmp_path / "results" / folder_name(name)
        folder.mkdir(parents=True)
        condition = replace(THEORY[1], loss=0.002 / (place + 1), training={"steps": 1000 * (place + 1)})
        write_study(folder, [condition], name=name, first_identity=100 * place, **SMALL)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_studies_are_compared_within_80_columns_and_as_files(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert (
        main(["report", "first", f"results/{folder_name('a second one')}", "--out", "side by side", "--figures", "svg"])
        == 0
    )
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)  # without colours
    assert max(map(len, shown.splitlines())) <= 80
    assert "A = first, B = a second one" in shown
    assert "× 0.5 [0.5, 0.5]" in shown
    assert "no slope" in shown
    assert "training.steps  1000  2000" in shown
    folder = Path("side by side")
    assert {path.name for path in folder.iterdir()} == {
        *("index.html", "verdicts.csv", "losses.csv", "settings.csv", "radius.svg")
    }
    losses = pd.read_csv(folder / "losses.csv").set_index("study")
    assert losses["loss_ratio"]["a second one"] == pytest.approx(0.5)
    assert "Settings that differ" in (folder / "index.html").read_text()
    assert main(["report", "first", "a second one", "--out", "results"]) == 2
    assert "nothing was written there" in capsys.readouterr().err
    assert sorted(path.name for path in results.iterdir()) == [folder_name("a second one"), "first"]


def test_a_printed_table_is_all_that_is_printed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "first", "--table", "verdicts", "--format", "latex"]) == 0
    assert capsys.readouterr().out.startswith("% \\usepackage")
    assert main(["report", "first", "a second one", "--table", "losses"]) == 0
    assert "| A  first |" in capsys.readouterr().out
    assert main(["report", "first", "--table", "losse"]) == 2
    assert "Tables with rows: verdicts, slopes" in capsys.readouterr().err
    assert not (results / "first" / "report").exists()


def test_flags_that_would_do_nothing_are_refused_at_once(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "first", "--out", "x", "--format", "csv"]) == 2
    told = capsys.readouterr().err
    assert "--out is for a comparison" in told
    assert "add --table NAME" in told
    assert main(["report", "first", "first"]) == 2
    assert "cannot be compared with itself" in capsys.readouterr().err
    assert [path.name for path in results.parent.iterdir()] == ["results"]


def test_the_document_of_a_comparison_fits_its_schema(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "first", "a second one", "--thresholds", "0.02", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    Draft7Validator(document_schema("report")).validate(document)
    assert document["comparison"]["studies"] == ["first", "a second one"]
    assert document["criteria"] == {"thresholds": [0.02], "slope_limit": -0.2, "rule_version": RULE_VERSION}
    assert [row["study"] for row in document["comparison"]["tables"]["losses"]] == ["first", "a second one"]


@pytest.mark.parametrize(("paper", "inches"), [("single", 3.25), pytest.param("double", 6.75, marks=pytest.mark.more)])
def test_figures_are_as_wide_as_the_columns_of_a_paper(results: Path, paper: str, inches: float) -> None:
    """Measured in the files: the page of each PDF in points, of 72 to the inch. The pictures of the page stay."""
    page = results / "first" / "report" / "index.html"
    assert main(["report", "first", "--figures", "pdf,svg"]) == 0
    before, files = page.read_text(), {path.name for path in (page.parent / "figures").iterdir()}
    for name in ("--figures", "pdf,svg", "--paper", paper), ("--paper", paper):
        assert main(["report", "first", *name]) == 0
        drawn = [*(page.parent / "figures").glob("*.pdf")]
        assert drawn
        for path in drawn:
            box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", path.read_bytes())
            assert box is not None
            assert float(box[1]) == pytest.approx(72 * inches, abs=0.01)
            assert float(box[2]) < 72 * 9.5  # the text of a page
    assert {path.name for path in (page.parent / "figures").iterdir()} >= {n for n in files if n.endswith(".pdf")}
    pictures = [re.findall(r"data:image/[^\"]*", text) for text in (before, page.read_text())]
    assert pictures[0] == pictures[1]
    assert main(["report", "first", "a second one", "--paper", paper, "--out", "beside"]) == 0
    assert re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", Path("beside/radius.pdf").read_bytes())[1] == b"%g" % (72 * inches)


def test_a_figure_of_python_is_as_wide_as_a_paper_asks(results: Path) -> None:
    found = ms.results("first")
    name = found.figures[0]
    assert found.figure(name, paper="single").get_figwidth() == 3.25
    assert found.figure(name, paper="double").get_figwidth() == 6.75
    with pytest.raises(MemsweepError, match="allowed: double, single"):
        found.figure(name, paper="A4")
