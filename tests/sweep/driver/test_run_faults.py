"""Faults while a sweep runs, and what is left of it: everything that had finished."""

from __future__ import annotations

import math
import os
import signal
import socket
import uuid
from pathlib import Path

import pandas as pd
import pytest

from memsweep.sweep.store.results import Store
from processes import carriers_of, wait_for
from sweeping import BASE, FAST, PERTURBATION, end, environment, memsweep, ready, runs_of, snapshot, start, sweep


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(BASE)
    return path


@pytest.mark.more
def test_a_divergence_is_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "wild.yaml"
    study.write_text(f"{BASE}grid: {{training.learning_rate: [0.01, 1000.0]}}\n")
    words = ("task.horizon=200", "model.parameterization=direct", "training.steps=6", "training.validate_every=2")
    assert sweep(study, ready(tmp_path / "results"), *words, "--inline") == 0
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


@pytest.mark.more
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

from memsweep.config.core.fields import setting
from memsweep.data.api import LinearFunctionalTask
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
        if self.config.mood in (13, 15):
            raise ZeroDivisionError("a bad mood <b>")
        return torch.exp(-torch.arange(self.horizon, dtype=torch.float64))
"""


@pytest.mark.more  # on Ray as well: test_runner.py
def test_trials_that_raise_fail_alone_and_one_traceback_is_printed_once(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "moody.py").write_text(RAISING)
    (tmp_path / "search_spaces").mkdir()
    grid = "grid: {task.mood: [12, 13, 14, 15]}\n"
    study = f"task: {{name: moody}}\nmodel: {{name: diagonal_rnn, width: 2}}\n{FAST}\n{grid}"
    (tmp_path / "search_spaces" / "moods.yaml").write_text(study)
    ended = memsweep("sweep", "moods", "--inline", "--verbose", cwd=tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    store = Store(tmp_path / "results" / "moods")
    assert sorted(record["config"]["task"]["mood"] for record in store.records()) == [12, 14]
    assert len(store.failures()) == 2
    assert "2/4 done" in ended.stdout
    for failure in store.failures().values():
        assert failure["error"] == "ZeroDivisionError: a bad mood <b>"
    told = " ".join(ended.stdout.split())
    assert "2 of 4 trials failed (task.mood=13,15): ZeroDivisionError at moody.py:" in told
    assert "a bad mood <b>" in told
    assert not [identity for identity in store.failures() if identity in told]
    assert ended.stderr.count("Traceback (most recent call last)") == 1
    assert "moody.py" in ended.stderr
    page = (store.folder / "report" / "index.html").read_text()
    assert all(identity[:12] in page for identity in store.failures())
    assert "a bad mood &lt;b&gt;" in page
    _, (parent,), children = runs_of(tmp_path / "results")
    assert parent.info.status == "FAILED"
    assert sorted(run.info.status for run in children) == ["FAILED", "FAILED", "FINISHED", "FINISHED"]


GATED = """
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from memsweep.config.core.fields import setting
from memsweep.data.api import LinearFunctionalTask
from memsweep.registry import register_task


@register_task("gated")
class Gated(LinearFunctionalTask):
    \"\"\"An exponential memory whose batches are slow while a gate is there, except for the shortest horizon.\"\"\"

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
        if self.horizon > 8 and gate.exists():
            gate.with_suffix(".reached").touch()
            time.sleep(0.5)
        return super().white_noise(stream, index, size)
"""


@pytest.mark.drill
@pytest.mark.long
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

    process = start("sweep", "gates", "--ray", cwd=tmp_path, env=env)
    try:
        wait_for(lambda: gate.with_suffix(".reached").exists() and store.identities(), process.poll)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=600)
    finally:
        end(process)
    assert process.returncode == 130, out + err
    assert "1/3 done" in out
    assert (
        out.splitlines()[-1]
        == "interrupted: what is finished is kept. Run the same command again to go on, or: memsweep resume gates"
    )
    assert err == ""
    assert store.failures() == {}
    assert "not run" in (store.folder / "report" / "index.html").read_text()
    assert [run.info.status for run in runs_of(tmp_path / "results")[1]] == ["KILLED"]
    wait_for(lambda: not carriers_of(token))
    kept = snapshot(store.folder / "records")

    gate.unlink()
    ended = memsweep("sweep", "gates", "--ray", cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3/3 done, 1 of them reused" in ended.stdout
    assert kept.items() <= snapshot(store.folder / "records").items()
    _, (parent,), children = runs_of(tmp_path / "results")
    assert parent.info.status == "FINISHED"
    assert len(children) == 3
    assert not carriers_of(token)
