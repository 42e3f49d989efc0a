"""Records and tables as a sweep produces them, and a look at what MLflow then holds."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import requests

from memsweep import registry
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.record import SCHEMA
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker
from paths import ROOT

registry.discover(ROOT)  # as every command does first: a run's params are what differs from the defaults of its parts

STEPS, RADII = 51, 31
PARENT = "mlflow.parentRunId"


def identity_of(number: int) -> str:
    return f"{number:032x}"


def make_config(number: int) -> dict[str, Any]:
    return {
        "task": {"name": "linear_functional", "kernel": "polynomial", "rate": 0.1, "exponent": 1.1, "horizon": 100},
        "model": {"name": "diagonal_rnn", "width": number, "parameterization": {"name": "exp"}, "normalize": False},
        "training": {"seeds": 5, "steps": 2500, "learning_rate": 0.01},
        "perturbation": {"balls": ["recurrent", "all"], "radii": {"from": 1e-4, "to": 3.0, "count": 30}},
    }


def make_record(number: int, **changes: Any) -> dict[str, Any]:
    record = {
        "schema": SCHEMA,
        "identity": identity_of(number),
        "study": "s",
        "outcome": "done",
        "config": make_config(number),
        "summary": {"error": 0.25, "zero_loss": 1.0, "steps": 2500, "method": "worst_case"},
        "provenance": {
            "code_fingerprint": "f" * 16,
            "code_revision": "abc1234",
            "versions": {"torch": "2.13.0", "memsweep": "0.1"},
            "host": "h",
            "device": "cpu",
            "finished": "2026-01-02T03:04:05+00:00",
            "seconds": 2.5,
        },
    }
    return record | changes


def make_tables(number: int) -> dict[str, pd.DataFrame]:
    """Tables of the size that a trial of the quickstart has: 5 seeds, 30 radii, 2 balls."""
    identity = identity_of(number)
    head = {"identity": identity, "horizon": 100, "width": number}
    curves = [
        {**head, "seed": seed, "ball": ball, "norm": "spectral", "method": "worst_case", "radius": float(radius)}
        | {"error": math.inf if radius > 1 else 0.1 + radius**2, "zero_loss": 1.0, "exact": False, "stronger": math.nan}
        | {"reading": "drift", "change": math.inf if radius > 1 else radius**2, "threshold": math.nan}
        for seed in range(5)
        for ball in ("recurrent", "all")
        for radius in (0.0, *np.geomspace(1e-4, 3.0, RADII - 1))
    ]
    memory = [
        {
            "identity": identity,
            "seed": s,
            "lag": t,
            "learned": 0.1,
            "target": 0.2,
            "gradient": 0.5,
            "gradient_bound": math.nan,
        }
        for s in range(5)
        for t in range(100)
    ]
    history = [
        {"identity": identity, "seed": s, "step": 50 * k, "validation_loss": 2.0 + s}
        | {"train_loss": 1.0 + s if k else math.nan}
        for s in range(5)
        for k in range(STEPS)
    ]
    return {"curves": pd.DataFrame(curves), "memory": pd.DataFrame(memory), "history": pd.DataFrame(history)}


def store_trial(results: Path, number: int, study: str = "s", **changes: Any) -> list[str]:
    """Store a result, for ``Tracker.log_stored``; its tables are those of ``make_tables``."""
    Store(results / folder_name(study)).write(identity_of(number), make_record(number, **changes), make_tables(number))
    return [identity_of(number)]


def client_of(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def runs_of(uri: str, tracker: Tracker) -> dict[str, Any]:
    """identity -> child run; the tracker's children only."""
    found = client_of(uri).search_runs([tracker.experiment_id], f"tags.`{PARENT}` = '{tracker.run_id}'")
    runs = {run.data.tags["memsweep.identity"]: run for run in found}
    assert len(runs) == len(found), "an identity was logged twice"
    return runs


@contextmanager
def no_requests() -> Iterator[None]:
    """Whoever hands results over asks no tracking server: the thread that writes to MLflow does."""
    send, mine = requests.Session.send, threading.get_ident()

    def refuse_mine(*args: Any, **options: Any) -> requests.Response:
        assert threading.get_ident() != mine, "the sweep itself waited for MLflow"
        return send(*args, **options)

    with mock.patch.object(requests.Session, "send", refuse_mine):
        yield
