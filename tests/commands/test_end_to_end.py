"""From the words of a command line to the files, tables, runs and sentences that others rely on."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pandas as pd
import pytest

from memsweep.cli import main
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from paths import ROOT
from sweeping import (
    BASE,
    client_of,
    memsweep,
    ready,
    runs_of,
    snapshot,
    sweep,
    without_phases,
)

NAME = "<script>alert(1)</script>"
STUDY = f"""# Which names are safe? <b>All</b> of them.
name: "{NAME}"
{BASE.replace("balls: [recurrent]", "balls: [recurrent, all]")}
grid:
  task.horizon: [8, 12]
  model.parameterization: [direct, exp]
"""
VERDICT_COLUMNS = (
    "task,task.kernel,model,model.parameterization,ball,reference,verdict,slope_horizon,slope_horizon_low,slope_horizon_high,"
    "slope_width,slope_width_low,slope_width_high,threshold,deciding,largest_width,fit_error,rule_version,found_share,reasons"
)
TABLES = ("curves", "replicas", "memory", "history")


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("studies") / "tiny.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def on_ray(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompletedProcess[str]]:
    """The results folder of one sweep on real Ray, and how its command ended. Not to be changed by a test."""
    results = tmp_path_factory.mktemp("ray") / "results"
    ended = memsweep("sweep", study_file, "--ray", "--results", results)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return results, ended


@pytest.fixture
def copied(on_ray: tuple[Path, CompletedProcess[str]], tmp_path: Path) -> Path:
    """A copy of that results folder that a test may change; its MLflow database is left behind."""
    leave = shutil.ignore_patterns("mlflow.db", "mlartifacts")
    return ready(Path(shutil.copytree(on_ray[0], tmp_path / "results", ignore=leave)))


def assert_same_numbers(one: Store, other: Store) -> None:
    assert one.identities() == other.identities() != frozenset()
    for identity in one.identities():
        assert one.record(identity)["summary"] == other.record(identity)["summary"]
        mine, theirs = one.tables(identity), other.tables(identity)
        for name in TABLES:
            pd.testing.assert_frame_equal(mine[name], theirs[name], check_exact=True)


# what a finished sweep leaves


def test_the_files_that_others_rely_on(on_ray: tuple[Path, CompletedProcess[str]]) -> None:
    results, ended = on_ray
    assert "4/4 done" in ended.stdout
    assert ended.stderr == ""
    folder = results / "%3Cscript%3Ealert%281%29%3C%2Fscript%3E"
    assert {path.name for path in results.iterdir() if not path.name.startswith(".")} == {
        folder.name,
        "mlflow.db",
        "mlartifacts",
    }
    visible = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert visible == {"records", *TABLES, "weights", "plan.json", "plan.copy.json", "journal", "lease", "report"}
    assert [path for path in folder.rglob("*") if path.is_file() and ".partial" in path.parts] == []
    report = folder / "report"
    assert {path.name for path in report.iterdir()} == {
        "index.html",
        "verdicts.csv",
        "slopes.csv",
        "radii.csv",
        "trials.csv",
        "curves.parquet",
        "figures",
    }
    assert len(list((report / "figures").glob("*.png"))) >= 3

    assert (report / "verdicts.csv").read_text().splitlines()[0] == VERDICT_COLUMNS
    verdicts = pd.read_csv(report / "verdicts.csv")
    assert sorted(zip(verdicts["model.parameterization"], verdicts["ball"], strict=True)) == [
        (part, ball) for part in ("direct", "exp") for ball in ("all", "recurrent")
    ]
    assert set(verdicts["verdict"]) <= {"stable", "unstable", "inconclusive"}
    radii = pd.read_csv(report / "radii.csv")
    assert len(radii) == 4 * 2 * 2 * 3  # trials, seeds, balls, thresholds
    assert {"width", "horizon", "seed", "threshold", "radius", "ball"} <= set(radii.columns)
    curves = pd.read_parquet(report / "curves.parquet")
    assert {"width", "horizon", "seed", "radius", "error", "zero_loss", "method"} <= set(curves.columns)
    assert len(curves) == 4 * 2 * 2 * (5 + 1 + 3)  # trials, seeds, balls; radii, 0, and those at the thresholds


def test_pandas_reads_the_whole_study_from_a_folder(on_ray: tuple[Path, CompletedProcess[str]]) -> None:
    folder = on_ray[0] / folder_name(NAME)
    curves = pd.read_parquet(folder / "curves")
    assert len(curves) == 4 * 2 * 2 * (6 + 3)
    assert curves["identity"].nunique() == 4
    assert sorted(set(curves["horizon"])) == [8, 12]
    for name in TABLES[1:]:
        assert pd.read_parquet(folder / name)["identity"].nunique() == 4


def test_a_name_of_markup_is_only_ever_text(on_ray: tuple[Path, CompletedProcess[str]]) -> None:
    page = (on_ray[0] / folder_name(NAME) / "report" / "index.html").read_text()
    assert NAME not in page
    assert "<b>All</b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert runs_of(on_ray[0])[0].name == NAME


def test_mlflow_has_one_experiment_one_parent_and_a_child_for_each_trial(
    on_ray: tuple[Path, CompletedProcess[str]],
) -> None:
    results, _ = on_ray
    store = Store(results / folder_name(NAME))
    client = client_of(results)
    _, (parent,), children = runs_of(results)
    assert parent.info.status == "FINISHED"
    assert parent.data.params["trials"] == "4"
    assert {run.data.tags["memsweep.identity"] for run in children} == store.identities()
    assert len(children) == 4
    for run in children:
        record = store.record(run.data.tags["memsweep.identity"])
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.params["model.width"] == str(record["config"]["model"]["width"])
        assert run.data.params["task.horizon"] == str(record["config"]["task"]["horizon"])
        assert run.data.metrics["final/error"] == pytest.approx(record["summary"]["error"])
        assert run.data.tags["memsweep.host"] == socket.gethostname()
        assert "torch " in run.data.tags["memsweep.versions"]
        assert run.data.tags["ball_recurrent/verdict"] == "inconclusive"
        assert run.data.metrics.get("ball_recurrent/radius", 1.0) > 0
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "validation_loss")]
        assert steps == [0, 10, 20]
        files = {item.path for item in client.list_artifacts(run.info.run_id)}
        assert files == {"record.json", "curves.csv", "memory.csv"}
    mirrored = {item.path for item in client.list_artifacts(parent.info.run_id, "report")}
    assert mirrored == {f"report/{path.name}" for path in (store.folder / "report").iterdir()}


# the second time


def test_the_same_command_again_writes_nothing(
    on_ray: tuple[Path, CompletedProcess[str]], study_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, first = on_ray
    before = snapshot(results)
    assert sweep(study_file, results) == 0
    told = capsys.readouterr().out
    assert "4/4 done, 4 of them reused" in told
    after = snapshot(results)
    leased = {name for name in after if Path(name).name.startswith("lease")}
    assert {name: after[name] for name in after.keys() - leased} == {
        name: before[name] for name in before.keys() - leased
    }
    ended = [line for line in first.stdout.splitlines() if line.startswith(("report: ", "MLflow"))]
    assert ended
    assert all(line in told for line in ended)
    _, parents, children = runs_of(results)
    assert (len(parents), len(children)) == (1, 4)
    assert parents[0].info.status == "FINISHED"


@pytest.mark.more
def test_another_study_shares_its_trials(copied: Path, study_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("name=other", "model.width=2,4", "task.horizon=8", "--inline")
    assert (
        main(["plan", str(study_file), *words[:-1], "--no-probe", "--results", str(copied), "--workspace", str(ROOT)])
        == 0
    )
    planned = capsys.readouterr().out
    assert planned.count("reused from %3Cscript") == 2
    assert "4 trials, 2 done or reused, 2 to run" in planned
    assert not (copied / "other").exists()
    before = snapshot(copied / folder_name(NAME))
    assert sweep(study_file, copied, *words) == 0
    assert "4/4 done, 2 of them reused" in capsys.readouterr().out
    assert snapshot(copied / folder_name(NAME)) == before
    first, other = Store(copied / folder_name(NAME)), Store(copied / "other")
    shared = first.identities() & other.identities()
    assert len(shared) == 2
    for identity in shared:  # byte for byte: the record still says which study computed it
        assert first.record(identity) == other.record(identity)
    assert len(runs_of_study(copied, "other")) == 4


def runs_of_study(results: Path, name: str) -> list[Any]:
    client = client_of(results)
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id])
    return [run for run in runs if "mlflow.parentRunId" in run.data.tags]


def test_no_reuse_computes_the_same_numbers_again_and_inline_equals_ray(
    on_ray: tuple[Path, CompletedProcess[str]],
    copied: Path,
    study_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ray_store, store = Store(on_ray[0] / folder_name(NAME)), Store(copied / folder_name(NAME))
    assert sweep(study_file, copied, "--no-reuse", "--inline") == 0
    out = capsys.readouterr().out
    assert "4/4 done" in out
    assert "reused" not in out
    for identity in store.identities():  # computed, not left over
        assert store.record(identity)["provenance"] != ray_store.record(identity)["provenance"]
    assert_same_numbers(store, ray_store)
    assert len(list((store.folder / ".set-aside").iterdir())) == 4


# refusals: exit code 2, nothing written


@pytest.mark.parametrize("words", [("resources.cpus=4096", "training.steps=21"), ("resources.gpus=64", "--no-reuse")])
def test_a_request_that_no_machine_meets_touches_nothing(
    copied: Path, study_file: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(copied)
    assert sweep(study_file, copied, *words) == 2
    told = capsys.readouterr()
    assert without_phases(told.out) == ""
    assert words[0].partition("=")[0].rpartition(".")[2] in told.err
    assert snapshot(copied) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("training.checkpoint_every=5,6",), "grid.training.checkpoint_every: cannot change"),
        (("name=" + "x" * 300,), "Give the study another name"),
    ],
)
def test_a_study_that_cannot_be_is_refused(
    study_file: Path, tmp_path: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("plan", "sweep"):
        place = ("--results", str(tmp_path / "results"), "--workspace", str(ROOT))
        assert main([command, str(study_file), *words, *place]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_tracking_address_of_no_use_is_refused(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./mlruns")
    assert sweep(study_file, tmp_path / "results", "--inline") == 2
    assert "neither a server nor a database" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_results_folder_that_is_a_file_is_told_in_words(
    study_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").write_text("not a folder")
    assert sweep(study_file, tmp_path / "results", "--inline") == 4
    assert capsys.readouterr().err.startswith(f"results cannot go to {tmp_path / 'results'}")


MISTAKES = """
task: {name: linear_functional, kernel: exponental, horizon: 1}
model: {name: diagonal_rnn, widht: 2, dt: -1}
training: {seeds: 0, steps: many, learning_rat: 0.1}
perturbation: {norm: frobenius}
resources: {cpus: 0}
grid:
  model.widths: [2, 3]
"""


def test_ten_mistakes_are_ten_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "wrong.yaml"
    study.write_text(MISTAKES)
    assert sweep(study, tmp_path / "results") == 2
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert without_phases(told.out) == ""
    assert len([line for line in lines if line.startswith("  - ")]) == 10, told.err
    assert len(lines) == 11
    assert lines[0].startswith("10 problems in")
    assert told.err.count("Did you mean") >= 3
    assert not (tmp_path / "results").exists()
