"""The cost of a trial in MLflow: time of the client and of the servers, one run at a time and several at once."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from benchmarks.harness import ROOT, Row
from benchmarks.scale.proc import tree_cpu
from benchmarks.scale.study import study_of
from benchmarks.studies import noop
from memsweep.config.load.study import load_study
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker, tracker

_FIRST = 4  # trials that are not counted: connections are made then


def compared(trials: int, folder: str, servers: dict[str, tuple[int, ...]], pairs: int) -> Row:
    """Write the same stored results to MLflow one at a time and several at once, in turn.

    Args:
        trials: at most ``noop.PER_RATE``.
        folder: for the results.
        servers: name -> processes.
        pairs: rounds.
    """
    results = Path(folder) / "mirror"
    store = _stored(results)
    names = sorted(store.identities())[:trials]
    apart, together = [], []
    for number in range(pairs):
        apart.append(_side(f"apart{number}", store, names, servers, 1))
        together.append(_side(f"together{number}", store, names, servers, tracker.AT_ONCE))
    began = time.process_time()
    for name in names:
        store.result(name)
    read = 1000 * (time.process_time() - began) / len(names)
    middle = {key: statistics.median(row[key] for row in together) for key in together[0]}
    ratio = statistics.median(one["wall_ms"] / other["wall_ms"] for one, other in zip(apart, together, strict=True))
    one_at_a_time = statistics.median(row["wall_ms"] for row in apart)
    return {"trials": len(names), **middle, "one_at_a_time_ms": one_at_a_time, "ratio": ratio, "read_ms": read}


def _stored(results: Path) -> Store:
    study, overrides = study_of(noop.PER_RATE, results.parent)
    config = load_study(study, overrides, ROOT)
    plan = make_plan(config, identified(config), set())
    run(plan, workspace=ROOT, results=results, launch=Launch(inline=True), work=noop.no_work)
    return Store(results / config.name)


def _side(
    label: str, store: Store, names: Sequence[str], servers: dict[str, tuple[int, ...]], at_once: int
) -> dict[str, float]:
    with mock.patch.object(tracker, "AT_ONCE", at_once):
        writer = Tracker(
            os.environ["MLFLOW_TRACKING_URI"], store.location.parent, store.location.name, label, {"n": label}
        )
        _written(writer, names[:_FIRST])
        before = {name: sum(map(tree_cpu, pids)) for name, pids in servers.items()}
        own, began = time.process_time(), time.perf_counter()
        _written(writer, names[_FIRST:])
        wall, own = time.perf_counter() - began, time.process_time() - own
        used = {f"{name}_ms": sum(map(tree_cpu, pids)) - before[name] for name, pids in servers.items()}
        if complaint := writer.finish("done"):
            raise RuntimeError(complaint)
    per = 1000 / (len(names) - _FIRST)
    return {key: per * seconds for key, seconds in {"wall_ms": wall, "client_ms": own, **used}.items()}


def _written(writer: Tracker, names: Sequence[str]) -> None:
    writer.log_stored(names)
    while writer.waiting:
        time.sleep(0.01)
