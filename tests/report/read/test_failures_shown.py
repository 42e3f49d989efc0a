"""A study of which trials failed says the causes first: page, terminal, status and JSON in the same words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memsweep import report
from memsweep.cli import main
from memsweep.commands import console
from memsweep.commands.answers.run import report_item
from memsweep.report.headline.answer import answer_of
from memsweep.studies.ending import Ending
from memsweep.sweep.driver.runner import RunSummary
from memsweep.sweep.store.filesystem import Location
from report_study import Condition, write_study

ONE = 'Traceback:\n  File "/srv/ann/my_nets.py", line 13, in forward\n    h = h * self.scale\nAttributeError: no scale'
OTHER = 'Traceback:\n  File "/srv/ann/my_nets.py", line 28, in forward\n    raise E\nValueError: bad'
SAID = (
    "All 4 trials failed: 2 (task.horizon=50) ValueError at my_nets.py:13 (bad), "
    "2 (task.horizon=100) ValueError at my_nets.py:28"
)
SMALL = {"widths": [2, 3], "horizons": [50, 100], "balls": ["recurrent"], "memory": False}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a study of which all trials failed, by two causes."""
    folder = tmp_path_factory.mktemp("results")
    write_study(folder / "dead", [Condition()], name="dead", failed={0: ONE, 1: ONE, 2: OTHER, 3: OTHER}, **SMALL)
    return folder


def test_page_and_json_say_the_causes_first(results: Path) -> None:
    paths = report.build(results / "dead")
    page = paths.page.read_text()
    assert answer_of(paths.contents).headline.startswith(SAID)
    assert f"<h1>{SAID}" in page
    assert "No verdict yet" not in page
    assert page.index("Failures by cause") < page.index("4 planned trials without a result")
    assert page.index("task.horizon 50") < page.index(f"{0:032x}")  # no hash without its settings
    assert "/srv/ann/my_nets.py:13" in page
    item = report_item(paths)["failures"]
    assert item["words"][0].startswith(SAID)
    assert [(cause["line"], cause["settings"]) for cause in item["causes"]] == [
        (13, {"task.horizon": [50]}),
        (28, {"task.horizon": [100]}),
    ]


def test_terminal_and_status_say_the_same(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("report", "status"):
        assert main([verb, "dead", "--results", str(results)]) in (0, 1)
        told = " ".join(capsys.readouterr().out.split())
        assert SAID in told
        assert "/srv/ann/my_nets.py:13: h = h * self.scale" in told
        assert "Mend it, and run the same command again: resume, retry and extend refuse code" in told
        assert f"{0:032x}" not in told
        assert "Traceback" not in told
    assert main(["status", "dead", "--results", str(results), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failures"]["words"][0].startswith(SAID)


def test_a_few_failures_stand_above_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path / "some", [Condition()], name="some", failed={3: OTHER}, **SMALL)
    assert main(["report", "some", "--results", str(tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    said = "1 of 4 trials failed (task.horizon=100, model.width=3): ValueError at my_nets.py:28: bad."
    assert told.index(said) < told.index("report:")
    assert said in (tmp_path / "some" / "report" / "index.html").read_text()


def test_an_ending_names_no_file_that_was_not_written(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = report.build(results / "dead")
    console.print_ending(
        Ending(3, "dead", 4, 0, 0, RunSummary(), paths, 3.0, None, "", True, "memsweep resume dead"),
        Location.at(results),
    )
    told = capsys.readouterr().out
    files = [Path(line.split()[1]) for line in told.splitlines() if line.endswith((".csv", ".html"))]
    assert files
    assert all(file.exists() for file in files), told
