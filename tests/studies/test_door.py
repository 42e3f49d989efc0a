"""``import memsweep``: runs, tables, figures and weights in Python are those of the commands and of the report."""

from __future__ import annotations

import ast
import builtins
import io
import json
import math
import pydoc
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import rich.console
import torch
import yaml
from matplotlib.image import imread

import memsweep as ms
from memsweep.cli import main
from memsweep.report.read.weights import weights
from memsweep.sweep.driver import progress
from paths import ROOT
from sweeping import FAST, ready

TASK = '''
from dataclasses import dataclass

import torch

from memsweep.config.core.fields import setting
from memsweep.data.api import LinearFunctionalTask
from memsweep.registry import register_task


@register_task("two_lags")
class TwoLags(LinearFunctionalTask):
    """Two lags of white noise."""

    weight_power = 0.0
    variance = 1.0

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Which lags."""

        second: int = setting(3, "the later lag")
        horizon: int = setting(8, "sequence length", at_least=2)

    @property
    def horizon(self):
        return self.config.horizon

    def kernel(self):
        if self.config.second < 0:
            raise ValueError("a lag in the future")
        values = torch.zeros(self.config.horizon, dtype=torch.float64)
        values[[0, self.config.second]] = 1.0
        return values
'''
STUDY = f"""
task: two_lags
model: {{name: diagonal_rnn, parameterization: exp}}
{FAST}
grid: {{task.second: [1, 2], model.width: [2, 3]}}
"""
HEAVY = {"torch", "numpy", "pandas", "ray", "mlflow", "hydra", "matplotlib", "rich", "yaml", "pyarrow"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a task of its own, and results of a study: a first plan of three trials, a second of four."""
    folder = tmp_path_factory.mktemp("door")
    (folder / "tasks").mkdir()
    (folder / "tasks" / "two_lags.py").write_text(TASK)
    (folder / "own.yaml").write_text(STUDY)
    ready(folder / "results")
    return folder


def place_of(folder: Path) -> dict[str, Any]:
    return {"results": folder / "results", "inline": True, "progress": False}


@pytest.fixture(scope="module")
def swept(place: Path) -> tuple[ms.Results, str]:
    """The results of the second plan, and what its run wrote to standard output."""
    run = {"results": place / "results", "workspace": place, "inline": True}
    with pytest.warns(UserWarning, match="stopped at a limit: --max-trials 1"):
        first = ms.sweep(place / "own.yaml", {"task.second": 7}, max_trials=1, progress=False, **run)
    assert (len(first.trials), first.missing["outcome"].tolist()) == (1, ["not run"])
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", shown)
        patch.setattr(progress, "PLAIN_INTERVAL", math.inf)  # a busy machine has more half minutes, and so more lines
        return ms.sweep(str(place / "own.yaml"), **run), shown.getvalue()


def test_tables_are_those_of_the_report(swept: tuple[ms.Results, str], place: Path) -> None:
    results, folder = swept[0], place / "results" / "own" / "report"
    files = sorted(path.stem for path in folder.glob("*.csv"))
    assert {"verdicts", "slopes", "radii", "trials"} <= {*files}
    for name in files:
        ours = pd.read_csv(io.StringIO(results.table(name).to_csv(index=False)))
        pd.testing.assert_frame_equal(ours, pd.read_csv(folder / f"{name}.csv"))
    pd.testing.assert_frame_equal(results.curves, pd.read_parquet(folder / "curves.parquet"))
    read = ms.results(place / "results" / "own")
    for name in ("verdicts", "slopes", "losses", "radii", "curves", "history", "replicas", "memory", "trials"):
        pd.testing.assert_frame_equal(getattr(read, name), results.table(name))
    stored = pd.read_parquet(place / "results" / "own" / "history")
    assert len(stored) == 5 * len(results.history) / 4  # with the trial of the first plan


def test_what_varies_is_a_column_and_old_trials_are_in_no_table(swept: tuple[ms.Results, str]) -> None:
    results, _ = swept
    for table in (results.radii, results.curves, results.history, results.replicas, results.memory, results.trials):
        assert table.groupby(["task.second", "model.width"]).ngroups == 4
        assert {*table["task.second"]} == {1, 2}  # and not 7, of the first plan
        assert table["task.second"].dtype == "int64"
    assert {*results.verdicts["task.second"]} == {1, 2}


def test_progress_is_a_few_plain_lines(swept: tuple[ms.Results, str]) -> None:
    said = swept[1].splitlines()
    lines = [line for line in said if not line.startswith("writing the report")]  # which a slow one says
    assert lines[0].startswith("own: 4 trials: 4 to run in ")
    assert lines[-1].startswith("own: 4/4 trials, ")
    assert swept[1].isprintable() or {*swept[1]} - {"\n"} <= {sign for sign in swept[1] if sign.isprintable()}
    assert len(lines) < 10


def test_figures_and_weights_are_the_stored_ones(swept: tuple[ms.Results, str], place: Path, tmp_path: Path) -> None:
    results, folder = swept[0], place / "results" / "own"
    drawn = {path.stem: path for path in (folder / "report" / "figures").iterdir()}
    extra = {*results.figures} - drawn.keys()  # drawn where formats are asked for
    assert drawn.keys() <= {*results.figures}
    assert all("-others" in name or name.startswith("slopes-") for name in extra), extra
    results.figure("error-recurrent").savefig(tmp_path / "own.png", dpi=200)
    pixels = [imread(path).tolist() for path in (tmp_path / "own.png", drawn["error-recurrent"])]
    assert pixels[0] == pixels[1]
    assert results.figure(f"trial-{results.trials.identity.iloc[0][:8]}").axes
    assert results.figure("memory")._repr_png_().startswith(b"\x89PNG")
    kept = results.weights({"task.second": 2, "model.width": 3}, seed=1)
    identity = results.trials.query("`task.second` == 2 and width == 3").identity.item()
    for name, value in weights(folder, [identity], 1).tensors.items():
        assert torch.equal(kept[name], value)
    with pytest.raises(
        ms.MemsweepError, match=r"means 2 of the 4 trials.*differ in task.second: [12], [12]\."
    ):  # not 3 of 5
        results.weights("model.width=2")


def test_repr_is_what_the_command_prints(
    swept: tuple[ms.Results, str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, _ = swept
    assert main(["report", "own", "--results", str(place / "results"), "--workspace", str(place)]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    text = repr(results)
    assert text.startswith(f"own: 4 of 4 trials have a result ({place}/results/own)")
    assert [line for line in text.splitlines()[2:] if line not in printed] == []
    assert "inconclusive" in text
    assert "<script" not in results._repr_html_()
    assert "inconclusive" in results._repr_html_()


def test_a_notebook_shows_the_same(swept: tuple[ms.Results, str], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich writes to a notebook instead of the text that it is to make, where it finds one."""
    plan = ms.plan(place / "own.yaml", results=place / "results", workspace=place)
    outside = [repr(swept[0]), swept[0]._repr_html_(), repr(plan), plan._repr_html_()]
    notebook = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: notebook, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a kernel of Jupyter sets it
    assert rich.console.Console().is_jupyter
    assert [repr(swept[0]), swept[0]._repr_html_(), repr(plan), plan._repr_html_()] == outside


def test_a_plan_says_what_would_run_and_writes_nothing(swept: tuple[ms.Results, str], place: Path) -> None:
    before = sorted(place.rglob("*"))
    plan = ms.plan(place / "own.yaml", {"model.width": [2, 5]}, results=place / "results", workspace=place)
    states = plan.trials.set_index(["task.second", "model.width"])["state"]
    assert states[1, 2] == states[2, 2] == "done"
    assert states[1, 5].startswith("to run, pack ")
    assert plan.to_run == 2
    assert "study own: 4 trials, 2 done or reused, 2 to run" in repr(plan)
    assert "to run, pack 1" in plan._repr_html_()
    words = ms.plan(place / "own.yaml", "model.width=2,5", results=place / "results", workspace=place)
    pd.testing.assert_frame_equal(words.trials, plan.trials)
    assert sorted(place.rglob("*")) == before


def test_a_study_is_extended_and_retried(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"results": place / "results", "workspace": place, "inline": True, "progress": False}
    changes = {"name": "grown", "task.second": [-1, 1], "model.width": 2}
    with pytest.warns(UserWarning, match="1 trials without a result"):
        ms.sweep(place / "own.yaml", changes, **run)
    status = ms.status("grown", results=place / "results")
    assert main(["status", "grown", "--results", str(place / "results"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {key: told[key] for key in status.document} == status.document
    assert (status.done, status.left, status.complete, status.running) == (1, 1, False, None)
    assert sorted(status.trials["state"]) == ["done", "failed"]
    assert "grown: 1 of 2 trials have a result (1 done, 1 failed); not running" in repr(status)
    healed = (place / "tasks" / "two_lags.py").read_text()
    with pytest.warns(UserWarning, match="a lag in the future"):
        retried = ms.retry("grown", **run)
    assert retried.missing["outcome"].tolist() == ["failed"]
    assert healed == TASK
    assert ms.status("grown", results=place / "results").trials["failures"].max() == 2
    with pytest.warns(UserWarning, match="2 trials without a result"):  # a lag in the future at either width
        grown = ms.extend(place / "own.yaml", {**changes, "model.width": [2, 3]}, **run)
    assert sorted(grown.trials["width"]) == [2, 3]
    with pytest.raises(ms.MemsweepError, match="there are no results of a study 'never'"):
        ms.extend(place / "own.yaml", {"name": "never"}, **run)


def test_a_description_is_that_of_the_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ms.describe("two_lags", workspace=place)
    assert main(["describe", "two_lags", "--workspace", str(place)]) == 0
    assert repr(found) == capsys.readouterr().out.rstrip("\n")
    assert {"second", "horizon"} <= {path.rpartition(".")[2] for path in found.fields["path"]}
    assert found.items[0]["kind"] == "task"
    with pytest.raises(ms.ConfigError, match="Did you mean 'two_lags'"):
        ms.describe("two_lag", workspace=place)


def test_the_page_is_inline_in_a_notebook(swept: tuple[ms.Results, str], place: Path, tmp_path: Path) -> None:
    page, written = swept[0].page(), (place / "results" / "own" / "report" / "index.html").read_text()
    assert page.save(tmp_path / "page.html").read_text() == page.text
    assert 0.9 < len(page.text) / len(written) < 1.1
    for words in ("Where the numbers come from", "inconclusive", "<h2>How to read this</h2>"):
        assert words in page.text
        assert words in written
    frames: list[dict[str, str | None]] = []

    class Frames(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            frames.append({"tag": tag, **dict(attrs)})

    Frames().feed(page._repr_html_())
    (frame,) = frames  # nothing of the page is part of the notebook itself
    assert frame["tag"] == "iframe"
    assert frame["srcdoc"] == page.text
    assert "allow-same-origin" not in str(frame["sandbox"])
    assert len(page._repr_html_()) < 4e6


def test_other_criteria_judge_without_training(swept: tuple[ms.Results, str], place: Path) -> None:
    results, _ = swept
    other = results.judge(thresholds=[0.05], slope_limit=-0.1)
    assert [*other.radii["threshold"].unique()] == [0.05]
    assert len(results.radii["threshold"].unique()) > 1
    with pytest.raises(ms.ConfigError, match="at most 1, got 3"):
        results.judge(thresholds=[3])


def test_stored_weights_are_measured_again(swept: tuple[ms.Results, str], place: Path) -> None:
    again = {"perturbation.norm": "entrywise", "name": "again"}
    run = {"workspace": place, **place_of(place)}
    measured = ms.measure("own", again, **run)
    assert {*measured.curves["norm"]} == {"entrywise"}
    keys = ["task.second", "model.width", "seed"]
    before, after = (table.replicas.set_index(keys)["validation_loss"] for table in (swept[0], measured))
    pd.testing.assert_series_equal(before.sort_index(), after.sort_index())
    with pytest.raises(ms.ConfigError, match=r"training\.steps: is no setting of a measurement"):
        ms.measure("own", "training.steps=3", **run)


def test_a_comparison_is_that_of_the_command(
    swept: tuple[ms.Results, str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ms.measure("own", "perturbation.starts=2", "name=more", workspace=place, **place_of(place))
    found = ms.compare(swept[0], "more", results=place / "results")
    assert found.names == ("own", "more")
    assert main(["report", "own", "more", "--results", str(place / "results"), "--workspace", str(place)]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in repr(found).splitlines() if line not in printed] == []
    assert {*found.verdicts["study"]} == {"own", "more"}
    assert "perturbation.starts" in found.settings.to_csv()
    assert found.figure()._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ms.MemsweepError, match="given twice"):
        ms.compare(other, place / "results" / "more")
    with pytest.raises(ms.MemsweepError, match="same criteria"):
        ms.compare(swept[0], other.judge(slope_limit=-0.3))


def test_a_searched_learning_rate_is_a_column(place: Path) -> None:
    """In a study that is a dict."""
    settings = yaml.safe_load(FAST) | {"perturbation": {"radii": {"from": 1e-3, "to": 1.0, "count": 3}}}
    study = {
        "name": "searched",
        "task": {"name": "two_lags"},
        "model": {"name": "diagonal_rnn", "width": 2},
        **settings,
    }
    study["search"] = {"training.learning_rate": {"log_uniform": (1e-4, 0.3)}, "algorithm": "random", "trials": 3}
    results = ms.sweep(study, results=place / "results", workspace=place, inline=True, progress=False)
    assert results.trials["training.learning_rate"].nunique() == 3
    assert results.trials["training.learning_rate"].dtype == "float64"
    assert results.history["training.learning_rate"].nunique() == 3
    (winner,) = results.table("winners")["training.learning_rate"]
    assert [*results.radii["training.learning_rate"].unique()] == [winner]  # of which the verdict speaks
    files = pd.read_csv(place / "results" / "searched" / "report" / "radii.csv").fillna({"censored": ""})
    pd.testing.assert_frame_equal(results.radii, files, check_dtype=False)


def test_failures_are_warnings_and_rows(place: Path) -> None:
    run = {"results": place / "results", "workspace": place, "inline": True, "progress": False}
    with pytest.warns(UserWarning, match=r"broken: 1 trials without a result.*\n.*a lag in the future"):
        results = ms.sweep(place / "own.yaml", {"name": "broken", "task.second": [-1, 1], "model.width": 2}, **run)
    assert len(results.trials) == 1
    assert results.missing["outcome"].tolist() == ["failed"]
    assert "a lag in the future" in results.missing["traceback"].item()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: ms.sweep("own.yaml", {"model.with": 3, "task.secnd": 1}), r"2 problems in .*(?s:.)*secnd"),
        (lambda: ms.sweep({"task": {"name": "two_lags"}}), "name: is missing"),
        (lambda: ms.plan("own.yaml", 3), "an override is text or a dict, got int"),
        (lambda: ms.plan("own.yaml", {"model.width": object()}), "which no study file can hold"),
        (lambda: ms.sweep("own.yaml", max_hours=-1), "max_hours must be a number above 0, got -1"),
        (lambda: ms.sweep("own.yaml", max_hours="1"), "max_hours must be a number above 0, got '1'"),  # type: ignore[arg-type]
        (lambda: ms.results("results/own").judge(thresholds="0.02"), "are numbers, got '0.02'"),  # type: ignore[arg-type]
        (lambda: ms.results("results/own").judge(thresholds=[True]), "are numbers, got True"),
        (lambda: ms.results("results/own").judge(slope_limit="0"), "are numbers, got '0'"),  # type: ignore[arg-type]
        (
            lambda: ms.results("results/own").page().save("nowhere/x.html"),
            "cannot be written to nowhere/x.html: No such",
        ),
        (lambda: ms.describe(3), "nothing is named '3'"),  # type: ignore[arg-type]
        (lambda: ms.plan("own", workspace="nowhere"), "The workspace nowhere is not there"),
        (lambda: ms.plan("own", workspace="own.yaml"), "The workspace own.yaml is no folder"),
        (lambda: ms.describe("lru", workspace="nowhere"), "The workspace nowhere is not there"),
        (lambda: ms.sweep("own.yaml", inline="yes"), "inline is True, False or None, got 'yes'"),  # type: ignore[arg-type]
        (lambda: ms.sweep("own.yaml", inline=True, address="auto"), "give one of the two"),
        (lambda: ms.compare(["own", "other"]), r"each an argument of its own.*got \['own', 'other'\]"),  # type: ignore[arg-type]
        (lambda: ms.results("results/own").figure(None), "has no figure None"),  # type: ignore[arg-type]
        (lambda: ms.results("results/own").weights(None), "of its fields .* got None"),  # type: ignore[arg-type]
        (lambda: ms.results("results/own").model(3), "of its fields .* got 3"),  # type: ignore[arg-type]
        (lambda: ms.results("results/own").weights({"model.widht": 2}), "none of .* Did you mean 'model.width'"),
        (lambda: ms.results("nothing"), "there are no results of a study 'nothing'"),
        (lambda: ms.results("results/own").table("verdict"), "Did you mean 'verdicts'"),
        (lambda: ms.results("results/own").figure("memory-recurrent"), "It has: error-recurrent"),
    ],
)
def test_errors_are_sentences(
    swept: tuple[ms.Results, str], place: Path, call: object, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(ms.MemsweepError, match=told):
        call()  # type: ignore[operator]


def test_values_arrive_as_they_are_given() -> None:
    from memsweep.config.load.overrides import parse
    from memsweep.studies.overrides import words_of

    name = "it's a 'name' \\ with \\"
    words = words_of([{"name": name, "training.steps": torch.tensor(5), "training.dtype": None, "model.width": (2, 4)}])
    read = parse([*words, *words_of([{"perturbation.balls": ["all"], "task": {"name": "copy", "on": True}}])], ROOT)
    assert read.problems == []
    assert read.axes == [("model.width", [2, 4])]
    assert dict(read.values) == {
        "name": name,
        "training.steps": 5,
        "training.dtype": None,
        "perturbation.balls": ["all"],  # a field that holds a list: this is its value
        "task": {"name": "copy", "on": True},
    }


def test_the_import_is_light() -> None:
    code = "import sys, memsweep; dir(memsweep); memsweep.MemsweepError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {*done.stdout.split()}
    assert not HEAVY & loaded
    own = {name for name in loaded if name.partition(".")[0] == "memsweep"}
    assert own == {"memsweep", "memsweep.sweep", "memsweep.errors"}


def test_importing_the_room_of_a_function_replaces_no_function() -> None:
    """``sweep`` is a function and a room: the package can be called, so that either import leaves both."""
    code = (
        "import importlib, pkgutil, memsweep as ms\n"
        "rooms = [room.name for room in pkgutil.iter_modules(ms.__path__) if room.name in ms.__all__]\n"
        "for name in rooms: importlib.import_module(f'memsweep.{name}')\n"
        "import memsweep.sweep.store\n"
        "print(rooms, *(callable(getattr(ms, name)) for name in ms.__all__ if name[0].islower()))\n"
        "ms.sweep({})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("['sweep'] True ")  # another function with a room of its name would need the same
    assert "False" not in done.stdout
    assert "name: is missing" in done.stderr


def test_help_teaches_and_types_agree() -> None:
    text = re.sub(
        r"\(\s+", "(", pydoc.plain(pydoc.render_doc(ms))
    )  # from Python 3.13 on a line each, of many arguments
    for words in ('ms.sweep("quickstart"', "plan(study", "results(study", "class Results"):
        assert words in text
    assert "max_hours" in str(pydoc.inspect.signature(ms.sweep))
    stub = ast.parse((ROOT / "platform/memsweep/__init__.pyi").read_text())
    typed = {alias.name for line in stub.body if isinstance(line, ast.ImportFrom) for alias in line.names}
    assert typed == {*ms.__all__} <= {*dir(ms)}
    for name in ms.__all__:
        assert pydoc.inspect.getdoc(getattr(ms, name)) or name == "sweep"
