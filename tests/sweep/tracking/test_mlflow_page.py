"""docs/mlflow.md: its tags and metrics exist, and each of its questions is answered by a real database of MLflow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

import memsweep as ms
from memsweep.report.headline.answer import answer_of
from memsweep.report.publish import build
from memsweep.report.tracked import study_run_of, verdicts_of
from memsweep.sweep.tracking import Tracker, Verdicts, sync
from paths import ROOT
from report_study import THEORY, write_study
from sweeping import ready

PAGE = (ROOT / "docs" / "mlflow.md").read_text(encoding="utf-8")
WIDTHS, HORIZONS = 4, 4


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the blocks of the page define in a folder with stored results; these, and the folder."""
    place = tmp_path_factory.mktemp("asked")
    ready(place / "results")
    write_study(place / "results" / "quickstart", THEORY[1:3], name="quickstart", balls=["recurrent"], memory=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("MLFLOW_TRACKING_URI", "")  # mlflow.set_tracking_uri of the page sets it, for all later tests
        results = ms.results("quickstart")
        configs = {name: record["config"] for name, record in results.contents.study.records.items()}
        report = build(Path("results/quickstart")).folder
        said = verdicts_of(results.contents), study_run_of(results.contents)
        assert sync(Path("results"), "quickstart", configs, {"description": "asked"}, "done", report, *said) == ""
        names: dict[str, Any] = {"results": results, "place": place}
        for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(code, "docs/mlflow.md", "exec"), names)
    return names


def test_every_question_has_the_answer_of_the_report(answers: dict[str, Any]) -> None:
    results: ms.Results = answers["results"]
    verdicts = results.verdicts.set_index("model.parameterization")
    assert verdicts["verdict"].to_dict() == {"direct": "unstable", "exp": "stable"}
    of_unstable = results.trials.query("`model.parameterization` == 'direct'")["identity"]
    assert {*answers["unstable"]["tags.memsweep.identity"]} == {*of_unstable}
    assert len(of_unstable) == WIDTHS * HORIZONS
    order = answers["steepest"]["metrics.ball_recurrent/slope"]
    assert order.is_monotonic_increasing
    assert order.iloc[0] == pytest.approx(verdicts.loc["direct", "slope_horizon"])
    threshold = results.verdicts["threshold"].iloc[0]
    radii = results.radii[(results.radii["threshold"] == threshold) & (results.radii["width"] == 5)]
    small = radii.groupby("identity")["radius"].median().loc[lambda radius: radius < 0.01]
    assert {*answers["fragile"]["tags.memsweep.identity"]} == {*small.index}
    assert 0 < len(small) < len(radii["identity"].unique())
    assert len(answers["failed"]) == len(answers["diverged"]) == 0
    assert len(answers["of_this_run"]) == len(results.trials)


def test_the_study_s_own_run_has_headline_verdicts_and_numbers(answers: dict[str, Any]) -> None:
    results: ms.Results = answers["results"]
    client = MlflowClient(f"sqlite:///{answers['place']}/results/mlflow.db")
    data = client.get_run(answers["own"]).data
    answer = answer_of(results.contents)
    assert data.tags["memsweep.headline"] == answer.headline.replace("`", "")
    assert data.tags["memsweep.headline"] in data.tags["mlflow.note.content"]
    assert data.tags["memsweep.decide"] == (answer.decide or "none")
    assert [*answers["studies"]["tags.memsweep.headline"]] == [data.tags["memsweep.headline"]]
    counts = {name: value for name, value in data.metrics.items() if name.startswith("verdicts/")}
    assert counts == {"verdicts/stable": 1, "verdicts/unstable": 1, "verdicts/inconclusive": 0}
    assert (data.metrics["trials"], data.metrics["without_result"]) == (len(results.trials), 0)
    said = {name: text for name, text in data.tags.items() if name.endswith("/ball_recurrent/verdict")}
    assert sorted(said.values()) == ["stable", "unstable"]
    for name in said:
        condition = name.removesuffix("/verdict")
        (row,) = results.verdicts[results.verdicts["verdict"] == said[name]].to_dict("records")
        assert data.metrics[f"{condition}/slope"] == pytest.approx(row["slope_horizon"])
        of_it = results.radii[results.radii["model.parameterization"] == row["model.parameterization"]]
        at = of_it[of_it["threshold"] == row["threshold"]]
        smallest = at.groupby(["width", "horizon"])["radius"].median().min()
        assert data.metrics[f"{condition}/radius"] == pytest.approx(smallest)


def test_the_printed_page_is_in_the_order_of_slopes(answers: dict[str, Any]) -> None:
    tracker = Tracker(None, answers["place"] / "results", "another")
    assert "final%2Ferror" in tracker.page
    about = verdicts_of(answers["results"].contents)
    tracker.log_verdicts({})
    assert "final%2Ferror" in tracker.page
    radii = {name: value for name, value in next(iter(about.values())).metrics.items() if name.endswith("radius")}
    for metrics, order in ((radii, "radius"), (next(iter(about.values())).metrics, "slope")):
        tracker.log_verdicts({"nothing stored": Verdicts(metrics, {}, 0)})
        assert f"orderByKey=metrics.%60ball_recurrent%2F{order}%60" in tracker.page
    tracker.finish(patience=0.1)


def test_names_on_the_page_are_written() -> None:
    """Every tag and metric of the tables, but for ``CONDITION``, which stands for a name."""
    sources = "".join(path.read_text() for path in (ROOT / "platform/memsweep").rglob("*.py"))
    for name in re.findall(r"`(memsweep\.\w+|verdicts/\w+|rule_version|deciding)`", PAGE):
        assert name.rpartition("/")[2] in sources
