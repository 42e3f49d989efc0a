"""A search in Optuna's own storage: written round by round, read by Optuna and by the real optuna-dashboard."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from conftest import requires
from memsweep.config.schema.search import Domain, SearchConfig
from memsweep.search.optuna_storage import OptunaExport
from memsweep.search.suggest.sampler import ask
from memsweep.search.suggestions import SearchTrial, Suggestion, SuggestionRecord, SuggestionState
from tracking_server import free_port

RATE, WIDTH, FORM, EXTRA = "training.learning_rate", "model.width", "model.parameterization", "model.bias"
SPACE = {
    RATE: Domain("log_uniform", 1e-4, 1.0),
    WIDTH: Domain("int", 1, 16),
    FORM: Domain("choice", values=("exp", {"name": "best", "a": 1}, None)),
    EXTRA: Domain("uniform", 0.0, 1.0, when={FORM: ("exp",)}),
}
NAME = "lr_width/m=8 T=100 exp"


def mirror(url: str, **changed: Any) -> OptunaExport:
    return replace(OptunaExport(url, NAME, "a1b2c3d4e5f6", SPACE, ("validation_loss",), ("min",)), **changed)


def members(ended: int, running: int = 0) -> list[SuggestionRecord]:
    """Suggestions of a real sampler in every state; those from ``ended`` on are at a rung, or have none yet."""
    states = [
        SuggestionState.DONE,
        SuggestionState.STOPPED,
        SuggestionState.DONE,
        SuggestionState.DIVERGED,
        SuggestionState.FAILED,
    ]
    found = []
    for one in ask(SearchConfig(algorithm="random"), SPACE, {}, ["min"], [], [], ended + running, 3):
        state = states[one.number % 5] if one.number < ended else SuggestionState.RUNNING
        steps = 900 if state in (SuggestionState.DONE, SuggestionState.DIVERGED) else 300
        values: tuple[float, ...] | None = (0.5 + one.number,)
        if state is SuggestionState.DIVERGED:
            values = (math.inf,)
        if state is SuggestionState.FAILED or one.number >= ended + 1:
            values, steps = None, 0
        row = SearchTrial(f"{one.number:032x}", 0, 0, one.number)
        found.append(
            SuggestionRecord(0, one, (row,), values, steps, state, rank=1 if one.number == 0 and not running else 0)
        )
    return found


@pytest.fixture(params=["journal", pytest.param("sqlite", marks=pytest.mark.drill)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty storage; databases take Optuna seconds to set up."""
    return f"journal://{tmp_path}/search.log" if request.param == "journal" else f"sqlite:///{tmp_path}/search.db"


def read(url: str, name: str = NAME) -> optuna.Study:
    if not url.startswith("journal"):
        return optuna.load_study(storage=url, study_name=name)
    backend = optuna.storages.journal.JournalFileBackend(url.removeprefix("journal://"))
    return optuna.load_study(storage=optuna.storages.JournalStorage(backend), study_name=name)


def table(study: optuna.Study) -> list[Any]:
    return [
        (t.number, t.state, t.params, t.values, t.intermediate_values, t.user_attrs, t.distributions)
        for t in study.trials
    ]


def test_every_member_is_a_trial_and_writing_again_changes_nothing(url: str) -> None:
    assert mirror(url).write(members(5, running=2)) == ""
    study = read(url)
    states = optuna.trial.TrialState
    found = [states.COMPLETE, states.PRUNED, states.COMPLETE, states.FAIL, states.FAIL, states.RUNNING, states.RUNNING]
    assert [trial.state for trial in study.trials] == found
    assert [trial.values for trial in study.trials] == [[0.5], None, [2.5], None, None, None, None]
    assert study.trials[1].intermediate_values == {300: 1.5}
    assert study.trials[5].intermediate_values == {300: 5.5}
    assert study.best_trial.number == 0
    for trial, member in zip(study.trials, members(5, running=2), strict=True):
        want = {"number": member.suggestion.number, "identity": f"{trial.number:032x}"}
        assert trial.user_attrs == want | {"steps": member.steps, "state": str(member.state)}
        values = dict(member.suggestion.values)
        if isinstance(values[FORM], dict):
            values[FORM] = '{"a": 1, "name": "best"}'
        assert trial.params == values
    before = table(study)
    assert mirror(url).write(members(5, running=2)) == ""
    assert table(read(url)) == before

    # they end, others begin; what was written stays
    assert mirror(url).write(members(9)) == ""
    after = table(read(url))
    assert after[:5] == before[:5]
    assert len(after) == 9
    assert [row[1] for row in after[5:]] == [states.COMPLETE, states.PRUNED, states.COMPLETE, states.FAIL]
    assert read(url).user_attrs["winners"] == {"1": 0}
    assert read(url).metric_names == ["validation_loss"]


def test_an_interrupted_write_is_completed(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [0]
    kind = optuna.storages.JournalStorage if url.startswith("journal") else optuna.storages.RDBStorage
    original = kind.set_trial_state_values

    def cut(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 4:
            raise OSError("the power is gone")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(kind, "set_trial_state_values", cut)
    assert "the power is gone" in mirror(url).write(members(8))
    assert len(read(url).trials) == 4
    assert mirror(url).write(members(8)) == ""
    whole = f"journal://{tmp_path}/whole.log"
    assert mirror(whole).write(members(8)) == ""
    assert table(read(url)) == table(read(whole))


def test_another_search_of_the_same_name_is_left_as_it_is(url: str) -> None:
    mirror(url).write(members(4))
    before = table(read(url))
    other = {RATE: Domain("uniform", 0.0, 1.0)}
    mine = [replace(one, suggestion=Suggestion(one.suggestion.number, {RATE: 0.5})) for one in members(2)]
    assert mirror(url, identity="ffff0000aaaa", space=other).write(mine) == ""
    assert table(read(url)) == before
    assert len(read(url, f"{NAME} ffff0000").trials) == 2


def test_several_objectives_and_changing_settings(url: str) -> None:
    several = mirror(url, objective=("validation_loss", "radius"), modes=("min", "max"))
    both = [replace(one, values=one.values and (one.values[0], 2.0 * one.values[0])) for one in members(3)]
    assert several.write(both) == ""
    assert read(url).directions == [optuna.study.StudyDirection.MINIMIZE, optuna.study.StudyDirection.MAXIMIZE]
    assert [trial.values for trial in read(url).trials] == [[0.5, 1.0], None, [2.5, 5.0]]

    turning = mirror(url, name="population", settled=False)
    (one,) = members(1)
    assert turning.write([replace(one, state=SuggestionState.RUNNING, rank=0)]) == ""
    assert read(url, "population").trials[0].params == {}
    changed = Suggestion(0, {**one.suggestion.values, RATE: 0.125})
    assert turning.write([replace(one, suggestion=changed)]) == ""
    assert read(url, "population").trials[0].params[RATE] == 0.125


@pytest.mark.parametrize(
    "url",
    ["sqlite:////nowhere/at/all/search.db", "postgresql://ada:Hidden-0007@127.0.0.1:1/search", "nonsense", "odd://x"],
)
def test_a_storage_that_is_away_costs_a_warning(url: str) -> None:
    warning = mirror(url).write(members(2))
    assert "was not written" in warning
    assert "Hidden" not in warning
    assert "\n" not in warning


@contextmanager
def dashboard(url: str, log: Path) -> Iterator[str]:
    """optuna-dashboard on a free port."""
    port = free_port()
    program = shutil.which("optuna-dashboard") or str(Path(sys.executable).with_name("optuna-dashboard"))
    command = [sys.executable, program, url, "--host", "127.0.0.1", "--port", str(port), "--server", "wsgiref"]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=log.parent, start_new_session=True)
    try:
        deadline = time.monotonic() + 600
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/meta", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)


def answer(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=20) as reply:
        return json.load(reply)


def shows(address: str) -> None:
    """What the dashboard's own interface says about the studies that ``members(9)`` made."""
    studies = {one["study_name"]: one for one in answer(f"{address}/api/studies")["study_summaries"]}
    assert set(studies) == {NAME, "lr_width/other"}
    assert studies[NAME]["directions"] == ["minimize"]
    found = answer(f"{address}/api/studies/{studies[NAME]['study_id']}")
    trials = found["trials"]
    assert len(trials) == 9
    assert [one["state"] for one in trials[:5]] == ["Complete", "Pruned", "Complete", "Fail", "Fail"]
    assert trials[2]["values"] == [2.5]
    assert trials[1]["intermediate_values"] == [{"step": 300, "value": 1.5}]
    rates = [float(p["param_external_value"]) for one in trials for p in one["params"] if p["name"] == RATE]
    assert rates == [one.suggestion.values[RATE] for one in members(9)]
    assert {"key": "identity", "value": json.dumps(f"{2:032x}")} in trials[2]["user_attrs"] or {
        "key": "identity",
        "value": f"{2:032x}",
    } in trials[2]["user_attrs"]
    assert answer(f"{address}/api/studies/{studies['lr_width/other']['study_id']}")["trials"]


@pytest.mark.drill
def test_the_real_dashboard_answers_what_the_search_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/search.db"
    mirror(url).write(members(9))
    mirror(url, name="lr_width/other").write(members(3, running=1))
    with dashboard(url, tmp_path / "dashboard.log") as address:
        shows(address)
        # what a later round writes appears
        mirror(url, name="lr_width/other").write(members(6))
        studies = {one["study_name"]: one["study_id"] for one in answer(f"{address}/api/studies")["study_summaries"]}
        deadline = time.monotonic() + 60
        while len(answer(f"{address}/api/studies/{studies['lr_width/other']}")["trials"]) < 6:
            assert time.monotonic() < deadline, "the dashboard keeps trials for some seconds, not for a minute"
            time.sleep(0.5)


@pytest.mark.drill
@pytest.mark.browser
def test_its_page_shows_the_search(tmp_path: Path, chromium: str) -> None:
    from playwright.sync_api import expect, sync_playwright

    url = f"sqlite:///{tmp_path}/search.db"
    mirror(url).write(members(9))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with dashboard(url, tmp_path / "dashboard.log") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{address}/dashboard/")
        page.get_by_text(NAME).first.click()
        expect(page.get_by_text("Best Trial").first).to_be_visible(timeout=30_000)
        expect(page.get_by_text("0.5", exact=False).first).to_be_visible()
        page.screenshot(path=tmp_path / "dashboard.png")
        browser.close()


@contextmanager
def postgres() -> Iterator[str]:
    """PostgreSQL's own server on a free port, with an empty database; as root it runs as the user ``postgres``."""
    programs = (Path(requires("postgres")) / "initdb").resolve().parent
    run: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "timeout": 60, "cwd": "/"}
    # a folder of pytest's is not open to another user
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            shutil.chown(name, "postgres")
            run["user"] = "postgres"
        data, port = f"{name}/data", free_port()
        subprocess.run([programs / "initdb", "-D", data, "-U", "memsweep", "-A", "trust"], **run)
        options = f"-p {port} -k {name} -c listen_addresses=127.0.0.1 -c fsync=off"
        subprocess.run([programs / "pg_ctl", "-D", data, "-w", "-l", f"{name}/log", "-o", options, "start"], **run)
        try:
            where = ["-h", "127.0.0.1", "-p", str(port), "-U", "memsweep"]
            subprocess.run([programs / "createdb", *where, "search"], **run)
            yield f"postgresql+psycopg2://memsweep@127.0.0.1:{port}/search"
        finally:
            subprocess.run([programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **run)


@pytest.mark.drill
@pytest.mark.postgres
def test_postgresql_shows_the_same_as_sqlite(tmp_path: Path) -> None:
    pytest.importorskip("psycopg2")
    plain = f"sqlite:///{tmp_path}/search.db"
    with postgres() as url:
        for step in (members(5, running=2), members(9), members(9)):
            # as a person writes it, whichever driver is there
            assert mirror(url.replace("+psycopg2", "")).write(step) == ""
            assert mirror(plain).write(step) == ""
            assert table(read(url)) == table(read(plain))
        mirror(url, name="lr_width/other").write(members(3, running=1))
        with dashboard(url, tmp_path / "dashboard.log") as address:
            shows(address)
