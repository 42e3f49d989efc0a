"""What is written to MLflow's tables directly is, row by row, what MLflow's client writes."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tracking_data import client_of, identity_of, make_config, store_trial
from tracking_state import differences, state_of

from memsweep.sweep.tracking import Tracker, tables
from memsweep.sweep.tracking.run_content import Verdicts
from memsweep.sweep.tracking.uri import tracking_uri

FAILURE = {"outcome": "failed", "error": "it broke", "traceback": "line 1", "time": "2026-01-01T00:00:00+00:00"}


@pytest.fixture
def by_mlflow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on no database is known, so that MLflow's client writes all."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return lambda: monkeypatch.setattr(tables, "KNOWN", frozenset())


def sweep(results: Path, report: Path) -> str:
    """A study from its first result to its verdicts, then the same again with another verdict; gives the URI."""
    report.mkdir(exist_ok=True)
    (report / "deeper").mkdir(exist_ok=True)
    (report / "index.html").write_text("<p>", encoding="utf-8")
    (report / "deeper" / "a b.csv").write_text("1", encoding="utf-8")
    for verdict, radius in (("stable", 0.5), ("unstable", 0.25)):
        tracker = Tracker(None, results, "a study", "described", {"trials": 2, "grid.task.horizon": "[8]"}, {"t": "x"})
        for number, loss in ((2, 0.1), (3, float("inf")), (4, float("nan"))):
            tracker.log_stored(store_trial(results, number, "a study", summary={"loss": loss, "word": verdict}))
        tracker.log_failure(identity_of(5), FAILURE, make_config(5))
        about = Verdicts({"ball_all/radius": radius, "ball_all/slope": float("nan")}, {"ball_all/verdict": verdict}, 7)
        tracker.log_verdicts({identity_of(number): about for number in (2, 3, 4)})
        tracker.log_report(report, Verdicts({"x": 1.0}, {"memsweep.headline": verdict}, 8))
        assert tracker.finish() == ""
    return tracking_uri(None, results)


def rows(results: Path) -> list[str]:
    """All tables as SQL, without places, times of this run, and ids; in order."""
    with contextlib.closing(sqlite3.connect(results / "mlflow.db")) as database:
        text = "\n".join(line.replace("\n", " ") for line in database.iterdump()).replace(results.as_uri(), "HERE")
    return sorted(re.sub(r"\b[0-9a-f]{32}\b", "ID", re.sub(r"\b1[789]\d{11}\b", "TIME", text)).splitlines())


def test_every_row_is_the_one_that_mlflows_client_writes(tmp_path: Path, by_mlflow: Callable[[], None]) -> None:
    direct, client = tmp_path / "direct", tmp_path / "client"
    uri = sweep(direct, tmp_path / "report")
    by_mlflow()
    other = sweep(client, tmp_path / "report")
    assert differences(state_of(uri, "a study"), state_of(other, "a study")) == []
    assert rows(direct) == rows(client)


def test_two_ways_continue_one_another(tmp_path: Path, by_mlflow: Callable[[], None]) -> None:
    """What one wrote the other finds, and repeats nothing."""
    results = tmp_path / "results"
    uri = sweep(results, tmp_path / "report")
    before = state_of(uri, "a study")
    by_mlflow()
    sweep(results, tmp_path / "report")
    assert differences(before, state_of(uri, "a study")) == []


def test_the_tables_of_the_mlflow_that_is_installed_are_known(tmp_path: Path) -> None:
    """Where this fails, compare the migrations of that MLflow with KNOWN, and run the test of every row with it."""
    Tracker(None, tmp_path, "s").finish()
    assert tables.knows(tmp_path / "mlflow.db")


@pytest.mark.parametrize("words", ["'x' is no database", ""])
def test_a_file_that_is_no_database_of_mlflow_is_not_known(tmp_path: Path, words: str) -> None:
    (tmp_path / "mlflow.db").write_text(words, encoding="utf-8")
    assert not tables.knows(tmp_path / "mlflow.db")
    assert not tables.knows(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_sweep_of_its_own_database_does_not_import_mlflow(tmp_path: Path) -> None:
    Tracker(None, tmp_path, "before").finish()  # the first on a machine makes the empty database, by MLflow
    code = (
        "import sys, pathlib; from memsweep.sweep.tracking import Tracker\n"
        f"tracker = Tracker(None, pathlib.Path({str(tmp_path / 'results')!r}), 's', 'words', {{'a': 1}})\n"
        f"tracker.log_report(pathlib.Path({str(tmp_path)!r}))\n"
        "assert tracker.finish() == '', tracker.finish()\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'mlflow', 'sqlalchemy', 'alembic'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_run_that_somebody_deletes_meanwhile_is_mlflows_to_refuse(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path, "s")
    assert tracker.run_id is not None
    client_of(tracking_uri(None, tmp_path)).delete_run(tracker.run_id)
    tracker.log_report(tmp_path)
    assert tracker.finish().startswith("Not in MLflow yet: ")
