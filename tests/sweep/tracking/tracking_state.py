"""All that MLflow holds of one study, as plain data that two servers can be compared by.

Left out, because no two ways to the same state can agree on it: ids of runs and experiments, and what is made of
them (``mlflow.parentRunId``, artifact URIs); when the sweep's own run began and ended, which no result says; what is
in the trash. MLflow's own tags of a run beside the parent's id (``mlflow.runName``, ``mlflow.source.name``,
``mlflow.note.content``) are compared.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from tracking_data import PARENT, client_of

os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

_IDENTITY, _SWEEP = "memsweep.identity", "memsweep.sweep"


def state_of(uri: str, study: str) -> dict[str, Any]:
    """The experiment, and under a name for each run what it holds; runs of one name make a list longer than one."""
    client = client_of(uri)
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None, f"{uri} has no experiment {study!r}"
    runs = client.search_runs([experiment.experiment_id], max_results=5000)
    parents = {run.info.run_id: run.data.tags.get(_SWEEP, "not ours") for run in runs if PARENT not in run.data.tags}
    state: dict[str, Any] = {"experiment": (experiment.lifecycle_stage, dict(experiment.tags))}
    for run in runs:
        own = run.info.run_id in parents
        sweep = parents[run.info.run_id] if own else parents.get(run.data.tags[PARENT], "an orphan")
        name = f"sweep {sweep}" if own else f"sweep {sweep} trial {run.data.tags.get(_IDENTITY)}"
        state.setdefault(name, []).append(_content(client, run, own))
    return state


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Where two states differ, in words; empty when they are equal."""
    found = [f"{name} is in one only" for name in sorted(one.keys() ^ other.keys())]
    for name in sorted(one.keys() & other.keys()):
        if one[name] == other[name]:
            continue
        if name == "experiment" or (len(one[name]), len(other[name])) != (1, 1):
            found.append(f"{name}: {one[name]} against {other[name]}")
            continue
        left, right = one[name][0], other[name][0]
        found += [f"{name}: {key}: {left[key]} against {right[key]}" for key in left if left[key] != right[key]]
    return found


def duplicates(state: dict[str, Any]) -> list[str]:
    """The names under which there is more than one run."""
    return [name for name, runs in state.items() if name != "experiment" and len(runs) > 1]


def _content(client: Any, run: Any, own: bool) -> dict[str, Any]:
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "times": None if own else (run.info.start_time, run.info.end_time),
        "params": dict(run.data.params),
        "tags": {key: _plain(run, value) for key, value in run.data.tags.items() if key != PARENT},
        "metrics": {
            # As text: a NaN is equal to itself here.
            key: sorted(repr((point.step, point.timestamp, point.value)) for point in _history(client, run, key))
            for key in run.data.metrics
        },
        "artifacts": _artifacts(client, run.info.run_id, ""),
    }


def _plain(run: Any, text: str) -> str:
    """A tag without the ids that the report's address has."""
    return text.replace(f"experiments/{run.info.experiment_id}/runs/{run.info.run_id}/", "")


def _history(client: Any, run: Any, key: str) -> list[Any]:
    return list(client.get_metric_history(run.info.run_id, key))


def _artifacts(client: Any, run_id: str, folder: str) -> dict[str, tuple[int, str]]:
    """path -> size and hash of the bytes."""
    found: dict[str, tuple[int, str]] = {}
    for file in client.list_artifacts(run_id, folder or None):
        if file.is_dir:
            found |= _artifacts(client, run_id, file.path)
        else:
            data = Path(client.download_artifacts(run_id, file.path)).read_bytes()
            found[file.path] = (len(data), hashlib.sha256(data).hexdigest())
    return found
