"""The real command line as a person types it, on studies that take seconds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

from memsweep.cli import main
from paths import ROOT

RADII = "radii: {from: 1e-3, to: 1.0, count: 5}"
PERTURBATION = f"perturbation: {{{RADII}, balls: [recurrent], starts: 1, ascent_steps: 2, test_size: 16}}"
FAST = f"""
training: {{seeds: 2, steps: 20, batch_size: 8, validation_size: 16, validate_every: 10}}
{PERTURBATION}
"""
BASE = f"""
task: {{name: linear_functional, kernel: exponential, horizon: 8}}
model: {{name: diagonal_rnn, width: 2, parameterization: exp}}
{FAST}
"""


def without_phases(out: str) -> str:
    """The printed text without the phases, which a busy machine tells: ``reading the study: 2 s``."""
    return re.sub(r"^(reading the study|checking the study and this machine)(: .* s| …)\n", "", out, flags=re.MULTILINE)


def environment(*paths: Path, **more: str) -> dict[str, str]:
    """As in a person's shell (nothing says how Ray shall authenticate), with these folders on Python's path."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    return inherited | {"PYTHONPATH": os.pathsep.join(map(str, [*paths, ROOT / "platform"]))} | more


def start(
    *words: str | Path, cwd: Path, env: Mapping[str, str], stderr: int | IO[str] = subprocess.PIPE
) -> subprocess.Popen[str]:
    """``memsweep WORDS`` in a process group of its own, as a shell starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "memsweep", *map(str, words)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def memsweep(
    *words: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout: float = 600.0
) -> subprocess.CompletedProcess[str]:
    """``memsweep WORDS`` from start to end; what it started is gone when this returns or raises."""
    process = start(*words, cwd=cwd, env=env or environment())
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        end(process)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a command: by now there should be nothing."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=600)


def sweep(study: Path, results: Path, *words: str) -> int:
    """The same command in this process, where torch is imported already."""
    return main(["sweep", str(study), *words, "--results", str(results), "--workspace", str(ROOT)])


@cache
def _no_runs() -> bytes:
    """A database with MLflow's tables and nothing in them."""
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
        return Path(folder, "mlflow.db").read_bytes()


def ready(results: Path) -> Path:
    """The results folder with an empty database: MLflow takes a second to make each, and this one is made once."""
    results.mkdir(parents=True, exist_ok=True)
    (results / "mlflow.db").write_bytes(_no_runs())
    return results


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


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
