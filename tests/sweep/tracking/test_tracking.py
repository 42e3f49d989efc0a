"""MLflow mirrors the store: completely when it can, silently never, and never at the sweep's expense."""

from __future__ import annotations

import itertools
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tracking_data import (
    PARENT,
    RADII,
    STEPS,
    client_of,
    identity_of,
    make_config,
    make_record,
    make_tables,
    no_requests,
    runs_of,
    store_trial,
)

from memsweep.config.load.study import load_study, study_of
from memsweep.config.schema.canonical import to_dict
from memsweep.errors import ConfigError
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker, run_content
from memsweep.sweep.tracking.run_content import Verdicts
from memsweep.sweep.tracking.uri import tracking_uri
from paths import ROOT
from processes import no_hang, wait_for
from sweeping import ready
from tracking_server import free_port


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return ready(tmp_path / "results")


def test_a_sweep_is_one_parent_run_with_a_child_for_each_trial(results: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    (report / "figures").mkdir(parents=True)
    (report / "index.html").write_text("<p>stable</p>")
    (report / "figures" / "one.png").write_bytes(b"png")
    tracker = Tracker(
        None, results, "s", "what is asked", {"grid.model.width": "2, 3"}, {"memsweep.host": "h"}, ["model.width"]
    )
    for number in (2, 3):
        tracker.log_stored(store_trial(results, number))
    tracker.log_report(report)
    assert tracker.finish() == ""
    assert not set(tracker._threads).intersection(threading.enumerate())

    uri = tracking_uri(None, results)
    assert uri == f"sqlite:///{results.resolve()}/mlflow.db"
    client = client_of(uri)
    experiment = client.get_experiment_by_name("s")
    assert experiment.artifact_location == (results.resolve() / "mlartifacts").as_uri()
    parent = client.get_run(tracker.run_id)
    assert (parent.info.run_name, parent.info.status) == ("s", "FINISHED")
    assert parent.data.params == {"grid.model.width": "2, 3"}
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("what is asked\n\n[The report")
    assert f"/runs/{tracker.run_id}/artifacts/report/index.html" in note
    assert {file.path for file in client.list_artifacts(tracker.run_id, "report")} == {
        "report/index.html",
        "report/figures",
    }

    runs = runs_of(uri, tracker)
    assert set(runs) == {identity_of(2), identity_of(3)}
    child = runs[identity_of(3)]
    assert (child.info.run_name, child.info.status) == ("m=3", "FINISHED")
    assert child.info.end_time - child.info.start_time == 2500
    assert child.data.params["model.width"] == "3"
    assert child.data.params["task.exponent"] == "1.1"
    assert "perturbation.balls" not in child.data.params  # as by default: record.json has it
    assert "memsweep.nonfinite" not in child.data.tags
    tags = child.data.tags
    assert tags["memsweep.outcome"] == "done"
    assert tags["memsweep.code_revision"] == "abc1234"
    assert tags["memsweep.versions"] == "torch 2.13.0, memsweep 0.1"
    assert tags["memsweep.host"] == "h"
    assert tags["memsweep.method"] == "worst_case"
    assert child.data.metrics["final/error"] == 0.25
    history = client.get_metric_history(child.info.run_id, "validation_loss")
    assert [(point.step, point.value) for point in sorted(history, key=lambda p: p.step)] == [
        (50 * k, 4.0) for k in range(STEPS)
    ]
    assert child.data.metrics["validation_loss_worst"] == 6.0
    folder = Path(client.download_artifacts(child.info.run_id, ""))
    assert sorted(path.name for path in folder.iterdir()) == ["curves.csv", "memory.csv", "record.json"]
    curves = pd.read_csv(folder / "curves.csv")
    assert len(curves) == 2 * 5 * RADII
    assert np.isinf(curves["error"]).any()
    assert json.loads((folder / "record.json").read_text())["identity"] == identity_of(3)
    assert str(folder).startswith(str(results.resolve() / "mlartifacts"))


def test_the_same_sweep_again_continues_its_parent_and_repeats_nothing(results: Path) -> None:
    first = Tracker(None, results, "s", params={"a": 1})
    first.log_stored(store_trial(results, 2))
    first.log_stored(store_trial(results, 2))
    assert first.finish("interrupted") == ""
    uri = tracking_uri(None, results)
    assert client_of(uri).get_run(first.run_id).info.status == "KILLED"

    again = Tracker(None, results, "s", params={"a": 1})
    again.log_stored(store_trial(results, 2))
    again.log_stored(store_trial(results, 3))
    assert again.finish() == ""
    assert again.run_id == first.run_id
    assert set(runs_of(uri, again)) == {identity_of(2), identity_of(3)}
    assert client_of(uri).get_run(first.run_id).info.status == "FINISHED"

    other = Tracker(None, results, "s", params={"a": 2})
    assert other.finish() == ""
    assert (other.experiment_id, other.run_id != first.run_id) == (first.experiment_id, True)


def test_runs_are_named_by_what_the_study_varies() -> None:
    one, other = make_config(3), make_config(4)
    other["model"]["parameterization"] = {"name": "softplus"}
    other["training"]["learning_rate"] = 0.1
    varied = run_content.varied_fields([one, other])
    assert varied == ["model.width", "model.parameterization"]  # the rate follows from them
    assert run_content.run_name(other, varied) == "m=4 softplus"
    again = make_config(4) | {"training": {"seeds": 5, "steps": 2500, "learning_rate": 0.123456}}
    varied = run_content.varied_fields([one, other, make_config(4), again])
    assert varied == ["model.width", "training.learning_rate", "model.parameterization"]
    assert run_content.run_name(again, varied) == "m=4 lr=0.1235 exp"
    assert run_content.run_name(other, ()) == "diagonal_rnn linear_functional"


@pytest.mark.parametrize(
    ("field", "part"),
    [({"unit": {"name": "s6"}}, "model.unit.name"), ({"units": [{"name": "s6"}, {"name": "lru"}]}, "model.units")],
)
def test_parameters_name_a_part_whose_fields_are_at_their_defaults(field: dict[str, Any], part: str) -> None:
    model = {"name": "residual_stack", "width": 8, "features": 8, "layers": 2, **field}
    study = study_of({"task": {"name": "parity"}, "model": model}, ["protocol=tokens"], ROOT, "")
    assert "s6" in run_content.parameters(to_dict(study.rows[0]))[part]
    stable = make_config(3)
    stable["model"]["parameterization"] = {"name": "best", "a": 1.0, "b": 0.5}
    assert run_content.parameters(stable)["model.parameterization.name"] == "best"


def test_runs_are_named_by_a_unit_though_a_rule_tells_them_apart() -> None:
    def row(unit: str, rule: str) -> dict[str, Any]:
        model = {"name": "residual_stack", "width": 8, "features": 8, "layers": 1, "unit": {"name": unit}}
        return {"model": model, "training": {"rule": rule}}

    written = {"task": {"name": "parity"}, "grid": {"rows": [row("gru", "bptt"), row("lru", "online_truncated")]}}
    study = study_of(written, ["protocol=tokens"], ROOT, "")
    configs = [to_dict(trial) for trial in study.rows]
    varied = run_content.naming_fields(study)
    assert [run_content.run_name(config, varied) for config in configs] == ["gru bptt", "lru online_truncated"]
    gru, lru = (run_content.parameters(config, varied) for config in configs)
    assert (gru["model.unit"], lru["model.unit.name"]) == ("gru", "lru")  # of lru, the default, nothing was told


def test_a_list_tells_runs_apart() -> None:
    one, other = make_config(3), make_config(3)
    other["perturbation"] = {**one["perturbation"], "balls": ["recurrent"]}
    varied = run_content.varied_fields([one, other])
    assert [run_content.run_name(each, varied) for each in (one, other)] == ["balls=recurrent,all", "balls=recurrent"]


def test_a_run_that_was_cut_short_is_completed(results: Path) -> None:
    """A driver killed between two calls leaves a child that is RUNNING: the next sweep fills that very run."""
    first = Tracker(None, results, "s")
    assert first.finish() == ""
    uri = tracking_uri(None, results)
    client = client_of(uri)
    tags = {PARENT: first.run_id, "memsweep.identity": identity_of(2), "memsweep.outcome": "done"}
    half = client.create_run(first.experiment_id, run_content.stamp_of_result(make_record(2)).started, tags)
    again = Tracker(None, results, "s")
    again.log_stored(store_trial(results, 2))
    assert again.finish() == ""
    run = runs_of(uri, again)[identity_of(2)]
    assert (run.info.run_id, run.info.status) == (half.info.run_id, "FINISHED")
    assert run.data.tags["memsweep.outcome"] == "done"


def test_infinities_are_named_because_mlflow_cannot_hold_them(results: Path) -> None:
    store, tables = Store(results / "s"), make_tables(2)
    late = tables["history"]["step"] >= 2000
    tables["history"].loc[late, "train_loss"] = math.inf
    tables["history"].loc[tables["history"]["seed"] == 4, "validation_loss"] = math.nan
    record = make_record(2, outcome="diverged", summary={"error": math.inf, "margin": math.nan})
    store.write(identity_of(2), record, tables)
    tracker = Tracker(None, results, "s")
    tracker.log_stored([identity_of(2)])
    assert tracker.finish() == ""
    tags = runs_of(tracking_uri(None, results), tracker)[identity_of(2)].data.tags
    assert tags["memsweep.nonfinite"].splitlines() == [
        "final/error = inf",
        "final/margin = nan",
        f"train_loss = inf at {STEPS - 40} of {STEPS - 1} points, first at step 2000",
        f"validation_loss = nan at {STEPS} of {STEPS} points, first at step 0",
        f"validation_loss_worst = nan at {STEPS} of {STEPS} points, first at step 0",
    ]
    assert "learning_rate" in tags["mlflow.note.content"]


def test_a_long_history_keeps_its_ends_and_a_hundred_points(results: Path) -> None:
    history = pd.DataFrame({"seed": 0, "step": np.arange(5000), "train_loss": 1.0, "validation_loss": 1.0})
    run = run_content.finished_run(make_record(2), {"history": history})
    steps = [point.step for point in run.metrics if point.key == "train_loss"]
    assert len(steps) == run_content.POINTS
    assert (steps[0], steps[-1]) == (0, 4999)


def test_a_failed_trial_is_shown_and_a_later_success_takes_its_place(results: Path) -> None:
    failure = {"outcome": "failed", "error": "ValueError: no", "traceback": "Traceback …\nValueError: no"}
    failure["time"] = "2026-01-02T03:05:00+00:00"
    tracker = Tracker(None, results, "s")
    tracker.log_failure(identity_of(2), failure, make_config(2))
    assert tracker.finish("failed") == ""
    uri = tracking_uri(None, results)
    failed = runs_of(uri, tracker)[identity_of(2)]
    assert (failed.info.status, failed.data.tags["memsweep.outcome"]) == ("FAILED", "failed")
    folder = client_of(uri).download_artifacts(failed.info.run_id, "traceback.txt")
    assert "ValueError: no" in Path(folder).read_text()
    again = Tracker(None, results, "s")
    again.log_stored(store_trial(results, 2))
    assert again.finish() == ""
    run = runs_of(uri, again)[identity_of(2)]
    assert (run.info.status, run.data.tags["memsweep.outcome"]) == ("FINISHED", "done")
    # Nothing of the failure clings to it: a run cannot lose an artifact or change its start, so it is another run.
    assert run.info.run_id != failed.info.run_id
    assert "mlflow.note.content" not in run.data.tags
    assert "traceback.txt" not in {file.path for file in client_of(uri).list_artifacts(run.info.run_id)}


def test_hostile_names_and_large_configs_are_mirrored(results: Path) -> None:
    config, study = make_config(2), "<script>alert(1)</script>"
    config["task"] |= {f"field_{i}": "v" * (7000 if i == 0 else 3) for i in range(250)}
    tracker = Tracker(None, results, study, "'; drop table runs; --")
    tracker.log_stored(store_trial(results, 2, study, config=config))
    assert tracker.finish() == ""
    run = runs_of(tracking_uri(None, results), tracker)[identity_of(2)]
    assert run.data.params["task.field_249"] == "vvv"
    assert len(run.data.params["task.field_0"]) == 6000


def test_an_experiment_in_the_trash_is_taken_out(results: Path) -> None:
    first = Tracker(None, results, "s")
    assert first.finish() == ""
    client_of(tracking_uri(None, results)).delete_experiment(first.experiment_id)
    again = Tracker(None, results, "s")
    again.log_stored(store_trial(results, 2))
    assert again.finish() == ""
    assert len(runs_of(tracking_uri(None, results), again)) == 1


def test_one_result_that_mlflow_refuses_does_not_hold_up_the_others(results: Path, tmp_path: Path) -> None:
    config = make_config(2)
    config["task"]["a[b]"] = 1  # no name that MLflow takes
    tracker = Tracker(None, results, "s")
    tracker.log_stored(store_trial(results, 2, config=config))
    tracker.log_stored(store_trial(results, 3))
    tracker.log_report(tmp_path / "no such folder")
    sentence = tracker.finish()
    assert sentence.startswith("Not in MLflow yet: 1 of 2 trials, the report (")
    assert "a[b]" in sentence
    assert str(results / "s") in sentence
    runs = runs_of(tracking_uri(None, results), tracker)
    assert runs[identity_of(3)].info.status == "FINISHED"
    assert runs[identity_of(2)].info.status == "RUNNING"


def test_a_verdict_that_mlflow_lacks_is_no_trial_that_it_lacks(results: Path) -> None:
    tracker = Tracker(None, results, "s")
    for number in (2, 3):
        tracker.log_stored(store_trial(results, number))
    wait_for(lambda: not tracker.waiting)
    tracker.log_verdicts({identity_of(3): Verdicts({"a[b]": 0.1}, {}, 1)})  # no name that MLflow takes
    assert tracker.finish().startswith("Not in MLflow yet: 1 of 2 verdicts (")
    assert set(runs_of(tracking_uri(None, results), tracker)) == {identity_of(2), identity_of(3)}


@pytest.mark.more
def test_the_database_is_created_without_noise(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from memsweep.sweep.tracking import Tracker; import sys;"
        "t = Tracker(None, Path(sys.argv[1]), 's'); print(t.finish(), end='')"
    )
    source = ROOT / "platform"
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    # Two at once: the lock keeps them from creating the tables at the same time.
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            env=env | {"PYTHONPATH": str(source)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        output, _ = process.communicate(timeout=600)
        assert (process.returncode, output) == (0, "")


def test_mlflow_opens_with_the_first_result_or_after_a_while(results: Path) -> None:
    (database := results / "mlflow.db").unlink()
    with no_hang():
        tracker = Tracker(None, results, "s", patience=0.0, delay=3600.0)
        assert tracker.page == ""
        assert not database.exists(), "nothing is to be written"
        tracker.log_stored(store_trial(results, 2))
        assert tracker.finish() == ""
        assert set(runs_of(tracking_uri(None, results), tracker)) == {identity_of(2)}
        waiting = Tracker(None, results, "another", patience=0.0, delay=0.1)
        wait_for(lambda: waiting.page != "")
        assert waiting.finish() == ""


def test_a_sweep_that_is_interrupted_before_anything_does_not_wait_for_mlflow(results: Path) -> None:
    (database := results / "mlflow.db").unlink()
    with no_hang():
        tracker = Tracker(None, results, "s", patience=0.0, delay=3600.0)
        assert tracker.finish("interrupted") == ""
        wait_for(lambda: not any(thread.is_alive() for thread in tracker._threads))
    assert not database.exists()


def test_a_server_that_is_not_there_costs_a_sentence(results: Path) -> None:
    uri = f"http://me:secret@127.0.0.1:{free_port()}"
    with no_hang():
        tracker = Tracker(uri, results, "s")
        with no_requests():
            for number in range(2, 5):
                tracker.log_stored(store_trial(results, number))
        sentence = tracker.finish()
    assert sentence.startswith("Not in MLflow yet: ")
    assert "3 of 3 trials" in sentence
    assert "no answer from http://127.0.0.1" in sentence
    assert "secret" not in sentence
    assert f"safe in {results / 's'}; memsweep sync s --results {results} adds what is missing." in sentence


def test_a_server_that_never_answers_is_waited_for_as_long_as_was_said(results: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        with no_hang():
            tracker = Tracker(f"http://127.0.0.1:{silent.getsockname()[1]}", results, "s", patience=1.0)
            tracker.log_stored(store_trial(results, 2))
            sentence = tracker.finish(patience=1.0)
    assert "1 of 1 trials" in sentence
    assert "was still busy after 1 s" in sentence


@pytest.mark.parametrize("uri", ["mlruns", "file:///tmp/mlruns", "./x", "ftp://host/x", "sqlite:x.db"])
def test_a_file_store_is_refused_before_anything_starts(tmp_path: Path, uri: str) -> None:
    with pytest.raises(ConfigError, match="neither a server nor a database"):
        Tracker(uri, tmp_path / "results", "s")
    assert not (tmp_path / "results").exists()


def test_the_beginning_of_a_name_tells_most() -> None:
    """MLflow's page shows some twenty characters: they tell apart more runs than those of any other order would."""
    study = load_study("quickstart")
    configs = [to_dict(row) for row in study.rows]
    varied = run_content.naming_fields(study)
    told = {order: _told(configs, order) for order in itertools.permutations(varied)}
    assert told[tuple(varied)] == max(told.values())
    assert run_content.run_name(configs[0], varied).startswith("m=")


def _told(configs: list[dict[str, Any]], order: Sequence[str]) -> int:
    return len({run_content.run_name(config, order)[:20] for config in configs})
