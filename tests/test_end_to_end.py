"""From the words of a command line to the files, tables, runs and sentences that others rely on."""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pandas as pd
import pytest

from memsweep.cli import main
from memsweep.sweep.store import Store, folder_name
from sweeping import FAST, PERTURBATION, ROOT, end, environment, memsweep, start

NAME = "<script>alert(1)</script>"
BASE = f"""
task: {{name: linear_functional, kernel: exponential, horizon: 8}}
model: {{name: diagonal_rnn, width: 2, parameterization: exp}}
{FAST}
"""
STUDY = f"""# Which names are safe? <b>All</b> of them.
name: "{NAME}"
{BASE}
grid:
  task.horizon: [8, 12]
  model.parameterization: [direct, exp]
  model.width: [2, 3]
"""
VERDICT_COLUMNS = (
    "kernel,rate,exponent,model,activation,parameterization,normalize,ball,threshold,verdict,slope_width,"
    "slope_width_low,slope_width_high,slope_horizon,slope_horizon_low,slope_horizon_high,reasons"
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
    ended = memsweep("sweep", study_file, "--results", results)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return results, ended


@pytest.fixture
def copied(on_ray: tuple[Path, CompletedProcess[str]], tmp_path: Path) -> Path:
    """A copy of that results folder that a test may change; its MLflow database is left behind."""
    leave = shutil.ignore_patterns("mlflow.db", "mlartifacts")
    return Path(shutil.copytree(on_ray[0], tmp_path / "results", ignore=leave))


def sweep(study: Path, results: Path, *words: str) -> int:
    """The same command in this process, where torch is imported already."""
    return main(["sweep", str(study), *words, "--results", str(results), "--workspace", str(ROOT)])


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def assert_same_numbers(one: Store, other: Store) -> None:
    assert one.identities() == other.identities() != frozenset()
    for identity in one.identities():
        assert one.record(identity)["summary"] == other.record(identity)["summary"]
        mine, theirs = one.tables(identity), other.tables(identity)
        for name in TABLES:
            pd.testing.assert_frame_equal(mine[name], theirs[name], check_exact=True)


def client_of(results: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{results / 'mlflow.db'}")


def runs_of(results: Path) -> tuple[Any, list[Any], list[Any]]:
    """The one experiment of a results folder, its parent runs and its child runs."""
    client = client_of(results)
    (experiment,) = [found for found in client.search_experiments() if found.name != "Default"]
    runs = list(client.search_runs([experiment.experiment_id], max_results=1000))
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    return experiment, [run for run in runs if run not in children], children


# what a finished sweep leaves


def test_the_files_that_others_rely_on(on_ray: tuple[Path, CompletedProcess[str]]) -> None:
    results, ended = on_ray
    assert "8/8 done" in ended.stdout
    assert ended.stderr == ""
    folder = results / "%3Cscript%3Ealert%281%29%3C%2Fscript%3E"
    assert {path.name for path in results.iterdir() if not path.name.startswith(".")} == {
        folder.name,
        "mlflow.db",
        "mlartifacts",
    }
    visible = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert visible == {"records", *TABLES, "plan.json", "report"}
    assert [path for path in folder.rglob("*") if path.is_file() and ".partial" in path.parts] == []
    report = folder / "report"
    assert {path.name for path in report.iterdir()} == {
        "index.html",
        "verdicts.csv",
        "radii.csv",
        "curves.parquet",
        "figures",
    }
    assert len(list((report / "figures").glob("*.png"))) >= 3

    assert (report / "verdicts.csv").read_text().splitlines()[0] == VERDICT_COLUMNS
    verdicts = pd.read_csv(report / "verdicts.csv")
    assert sorted(zip(verdicts["parameterization"], verdicts["ball"], strict=True)) == [
        (part, ball) for part in ("direct", "exp") for ball in ("all", "recurrent")
    ]
    assert set(verdicts["verdict"]) <= {"stable", "unstable", "inconclusive"}
    radii = pd.read_csv(report / "radii.csv")
    assert len(radii) == 8 * 2 * 2 * 3  # trials, seeds, balls, thresholds
    assert {"width", "horizon", "seed", "threshold", "radius", "ball"} <= set(radii.columns)
    curves = pd.read_parquet(report / "curves.parquet")
    assert {"width", "horizon", "seed", "radius", "error", "zero_loss", "method"} <= set(curves.columns)
    assert len(curves) == 8 * 2 * 2 * (5 + 1)  # trials, seeds, balls, radii and 0


def test_pandas_reads_the_whole_study_from_a_folder(on_ray: tuple[Path, CompletedProcess[str]]) -> None:
    folder = on_ray[0] / folder_name(NAME)
    curves = pd.read_parquet(folder / "curves")
    assert len(curves) == 8 * 2 * 2 * 6
    assert curves["identity"].nunique() == 8
    assert sorted(set(curves["horizon"])) == [8, 12]
    for name in TABLES[1:]:
        assert pd.read_parquet(folder / name)["identity"].nunique() == 8


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
    assert parent.data.params["trials"] == "8"
    assert {run.data.tags["memsweep.identity"] for run in children} == store.identities()
    assert len(children) == 8
    for run in children:
        record = store.record(run.data.tags["memsweep.identity"])
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.params["model.width"] == str(record["config"]["model"]["width"])
        assert run.data.params["task.horizon"] == str(record["config"]["task"]["horizon"])
        assert run.data.metrics["final/error"] == pytest.approx(record["summary"]["error"])
        assert run.data.tags["memsweep.host"] == socket.gethostname()
        assert "memsweep.version.torch" in run.data.tags
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "validation_loss")]
        assert steps == [0, 10, 20]
        files = {item.path for item in client.list_artifacts(run.info.run_id)}
        assert files == {"record.json", "curves.csv", "memory.csv"}
    mirrored = {item.path for item in client.list_artifacts(parent.info.run_id, "report")}
    assert mirrored == {f"report/{path.name}" for path in (store.folder / "report").iterdir()}


# the second time


def test_the_same_command_again_trains_nothing(
    on_ray: tuple[Path, CompletedProcess[str]], study_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, _ = on_ray
    folder = results / folder_name(NAME)
    before = {name: snapshot(folder / name) for name in ("records", *TABLES)}
    assert sweep(study_file, results) == 0
    assert "8/8 done, 8 of them reused" in capsys.readouterr().out
    assert {name: snapshot(folder / name) for name in ("records", *TABLES)} == before
    _, parents, children = runs_of(results)
    assert (len(parents), len(children)) == (1, 8)
    assert parents[0].info.status == "FINISHED"


def test_another_study_shares_its_trials(copied: Path, study_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("name=other", "model.width=2,4", "task.horizon=8", "--inline")
    assert main(["plan", str(study_file), *words[:-1], "--results", str(copied), "--workspace", str(ROOT)]) == 0
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
    assert "8/8 done" in out
    assert "reused" not in out
    for identity in store.identities():  # computed, not left over
        assert store.record(identity)["provenance"] != ray_store.record(identity)["provenance"]
    assert_same_numbers(store, ray_store)
    assert len(list((store.folder / ".set-aside").iterdir())) == 8


# refusals: exit code 2, nothing written


@pytest.mark.parametrize("words", [("resources.cpus=4096", "training.steps=21"), ("resources.gpus=64", "--no-reuse")])
def test_a_request_that_no_machine_meets_touches_nothing(
    copied: Path, study_file: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(copied)
    assert sweep(study_file, copied, *words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words[0].partition("=")[0].rpartition(".")[2] in told.err
    assert snapshot(copied) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("~grid.model.width", "training.checkpoint_every=5,6"), "grid.training.checkpoint_every: cannot change"),
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
    assert sweep(study_file, tmp_path / "results", "--inline") == 1
    assert capsys.readouterr().err.startswith(f"cannot write {tmp_path / 'results'}")


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
    assert told.out == ""
    assert len([line for line in lines if line.startswith("  - ")]) == 10, told.err
    assert len(lines) == 11
    assert lines[0].startswith("10 problems in")
    assert told.err.count("Did you mean") >= 3
    assert not (tmp_path / "results").exists()


# what goes wrong while a sweep runs


def test_a_divergence_is_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "wild.yaml"
    study.write_text(f"{BASE}grid: {{training.learning_rate: [0.01, 1000.0]}}\n")
    words = ("task.horizon=200", "model.parameterization=direct", "training.steps=6", "training.validate_every=2")
    assert sweep(study, tmp_path / "results", *words, "--inline") == 0
    out = capsys.readouterr().out
    assert "2/2 done" in out
    assert "1 diverged: their errors are inf in the report" in out
    store = Store(tmp_path / "results" / "wild")
    rate_of = {record["config"]["training"]["learning_rate"]: record for record in store.records()}
    tame, wild = rate_of[0.01], rate_of[1000.0]
    assert (tame["outcome"], wild["outcome"]) == ("done", "diverged")
    assert math.isinf(wild["summary"]["error"])
    assert wild["summary"]["diverged_replicas"] == 2
    curves = pd.read_parquet(store.folder / "report" / "curves.parquet").set_index("identity")
    assert curves.loc[wild["identity"], "error"].map(math.isinf).all()
    assert curves.loc[tame["identity"], "error"].map(math.isfinite).any()
    page = (store.folder / "report" / "index.html").read_text()
    assert "diverged" in page
    (run,) = [run for run in runs_of(tmp_path / "results")[2] if run.data.tags["memsweep.outcome"] == "diverged"]
    assert "final/error = inf" in run.data.tags["memsweep.nonfinite"]


def test_a_tracking_server_that_is_away_costs_a_sentence(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://someone:secret@127.0.0.1:{port}")
    words = ("name=alone", "task.horizon=8", "model.width=2", "model.parameterization=exp", "--inline")
    assert sweep(study_file, tmp_path / "results", *words) == 0
    told = capsys.readouterr()
    assert "1/1 done" in told.out
    assert (tmp_path / "results" / "alone" / "report" / "index.html").is_file()
    (sentence,) = told.err.splitlines()
    assert sentence.startswith("Not in MLflow yet: 1 of 1 trials")
    assert f"no answer from http://127.0.0.1:{port}" in sentence
    assert "secret" not in told.out + told.err


RAISING = """
from dataclasses import dataclass

import torch

from memsweep.config.fields import setting
from memsweep.learning.objectives import LinearFunctionalTask
from memsweep.registry import register_task


@register_task("moody")
class Moody(LinearFunctionalTask):
    \"\"\"An exponential memory that does not like some horizons.\"\"\"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        \"\"\"How long, and how moody.\"\"\"

        horizon: int = setting(8, "sequence length", at_least=2)
        mood: int = setting(0, "13 is one too many")

    weight_power = 0.0
    variance = 1.0
    pack_fields = frozenset({"mood"})

    @property
    def horizon(self):
        return self.config.horizon

    def kernel(self):
        if self.config.mood == 13:
            raise ZeroDivisionError("a mood of 13 <b>")
        return torch.exp(-torch.arange(self.horizon, dtype=torch.float64))
"""


def test_a_trial_that_raises_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "moody.py").write_text(RAISING)
    (tmp_path / "search_spaces").mkdir()
    study = (
        f"task: {{name: moody}}\nmodel: {{name: diagonal_rnn, width: 2}}\n{FAST}\ngrid: {{task.mood: [12, 13, 14]}}\n"
    )
    (tmp_path / "search_spaces" / "moods.yaml").write_text(study)
    ended = memsweep("sweep", "moods", "--inline", cwd=tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    store = Store(tmp_path / "results" / "moods")
    assert sorted(record["config"]["task"]["mood"] for record in store.records()) == [12, 14]
    ((identity, failure),) = store.failures().items()
    assert failure["error"] == "ZeroDivisionError: a mood of 13 <b>"
    assert "2/3 done" in ended.stdout
    assert f"failed: {identity}: ZeroDivisionError: a mood of 13 <b>" in ended.stderr
    assert ended.stderr.count("Traceback (most recent call last)") == 1
    assert "moody.py" in ended.stderr
    page = (store.folder / "report" / "index.html").read_text()
    assert identity[:12] in page
    assert "a mood of 13 &lt;b&gt;" in page
    _, (parent,), children = runs_of(tmp_path / "results")
    assert parent.info.status == "FAILED"
    assert sorted(run.info.status for run in children) == ["FAILED", "FINISHED", "FINISHED"]


GATED = """
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from memsweep.config.fields import setting
from memsweep.learning.objectives import LinearFunctionalTask
from memsweep.registry import register_task


@register_task("gated")
class Gated(LinearFunctionalTask):
    \"\"\"An exponential memory whose batches are slow while a gate is there, except for the longest horizon.\"\"\"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        \"\"\"How long.\"\"\"

        horizon: int = setting(8, "sequence length", at_least=2)

    weight_power = 0.0
    variance = 1.0

    @property
    def horizon(self):
        return self.config.horizon

    def kernel(self):
        return torch.exp(-torch.arange(self.horizon, dtype=torch.float64))

    def white_noise(self, stream, index, size):
        gate = Path(os.environ["MEMSWEEP_TEST_GATE"])
        if self.horizon < 16 and gate.exists():
            gate.with_suffix(".reached").touch()
            time.sleep(0.5)
        return super().white_noise(stream, index, size)
"""


@pytest.mark.drill
def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "gated.py").write_text(GATED)
    (tmp_path / "search_spaces").mkdir()
    training = "training: {seeds: 2, steps: 200, batch_size: 8, validation_size: 16, validate_every: 1}"
    study = f"task: {{name: gated}}\nmodel: {{name: diagonal_rnn, width: 2}}\n{training}\n{PERTURBATION}\n"
    study += "grid: {task.horizon: [8, 12, 16]}\n"
    (tmp_path / "search_spaces" / "gates.yaml").write_text(study)
    gate, token = tmp_path / "gate", f"memsweep-test-{uuid.uuid4().hex}"
    gate.touch()
    env = environment(MEMSWEEP_TEST_GATE=str(gate), MEMSWEEP_TEST_TOKEN=token)
    store = Store(tmp_path / "results" / "gates")

    process = start("sweep", "gates", cwd=tmp_path, env=env)
    try:
        _wait_for(lambda: gate.with_suffix(".reached").exists() and store.identities(), process.poll)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=90)
        took = time.monotonic() - began
    finally:
        end(process)
    assert process.returncode == 130, out + err
    assert took < 30  # report and tracking included; about ten seconds on an idle machine
    assert "1/3 done" in out
    assert out.splitlines()[-1] == "interrupted: what is finished is kept. Run the same command again to go on."
    assert err == ""
    assert store.failures() == {}
    assert "not run" in (store.folder / "report" / "index.html").read_text()
    assert [run.info.status for run in runs_of(tmp_path / "results")[1]] == ["KILLED"]
    _wait_for(lambda: not _carriers_of(token))
    kept = snapshot(store.folder / "records")

    gate.unlink()
    ended = memsweep("sweep", "gates", cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3/3 done, 1 of them reused" in ended.stdout
    assert kept.items() <= snapshot(store.folder / "records").items()
    _, (parent,), children = runs_of(tmp_path / "results")
    assert parent.info.status == "FINISHED"
    assert len(children) == 3
    assert not _carriers_of(token)


def _wait_for(
    condition: Callable[[], object], ended: Callable[[], object] = lambda: None, seconds: float = 90.0
) -> None:
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last, "waited in vain"
        assert ended() is None, "the process ended too soon"
        time.sleep(0.1)


def _carriers_of(token: str) -> list[int]:
    """Living processes that inherited the token: the sweep's own, wherever they moved in the process tree."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if token.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
