"""A finished study in Trackio: its real store, in a folder, without a network."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("trackio", reason="the package trackio is not installed")

import memsweep as ms

SMALL = {
    "task.kernel": "exponential", "model.parameterization": "exp", "model.width": [2, 3], "task.horizon": 8,
    "training.steps": 30, "training.seeds": 2, "perturbation.radii.count": 4,
    "perturbation.starts": 0, "perturbation.ascent_steps": 1, "name": "small",
}  # fmt: skip


def exported(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a user types it, where pip put it; Trackio takes its folder from the environment."""
    program = Path(sysconfig.get_path("scripts"), "memsweep-trackio")
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [program, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_what_trackio_stores_is_what_the_study_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = ms.sweep("quickstart", SMALL, inline=True, progress=False)
    done = exported(tmp_path, "results/small")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "5 runs in Trackio's project small: trackio show --project small"

    with sqlite3.connect(tmp_path / "trackio" / "small.db") as base:
        stored = base.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        configs = {name: json.loads(text) for name, text in base.execute("SELECT run_name, config FROM configs")}
    history = results.history
    for replica in results.replicas.to_dict("records"):
        name = f"{replica['identity'][:12]}-{replica['seed']}"
        assert configs[name]["model.width"] == replica["model.width"]
        rows = [(step, json.loads(metrics)) for run, step, metrics in stored if run == name]
        own = history[(history["identity"] == replica["identity"]) & (history["seed"] == replica["seed"])]
        told = {step: row["validation_loss"] for step, row in rows if "validation_loss" in row}
        assert told == dict(zip(own["step"], own["validation_loss"], strict=True))
        assert rows[-1][1]["error"] == replica["error"]
        curves = results.curves.query("threshold.isna() and ball == 'recurrent'")
        pushed = curves[(curves["identity"] == replica["identity"]) & (curves["seed"] == replica["seed"])]
        assert [row["recurrent/drift"] for _, row in rows if "recurrent/drift" in row] == pushed["change"].tolist()
    (last,) = [json.loads(metrics) for run, _, metrics in stored if run == "verdicts"]
    assert [row["verdict"] for row in last["verdicts"]["_value"]] == results.verdicts["verdict"].tolist()

    again = exported(tmp_path, "results/small")
    assert again.returncode == 2
    assert again.stderr.startswith("Trackio's project 'small' has runs already: name another with --project")
    assert exported(tmp_path, "results/none").returncode == 2
