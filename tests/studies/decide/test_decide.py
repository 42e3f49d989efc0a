"""``memsweep decide`` on a real study: rounds until it is decided, limits, and kills in the middle of a round."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import numpy as np
import pytest

import memsweep as ms
from benchmarks.studies.by_hand import STUDY
from memsweep import registry
from memsweep.cli import main
from memsweep.config.core.reflect import keys
from memsweep.config.load.study import load_study
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.study import DecideConfig
from memsweep.documents.schema import document_schema
from memsweep.errors import ConfigError, Exit, StoreError
from memsweep.report.analysis import effort
from memsweep.report.analysis.contents import Finding
from memsweep.report.read.study import load_study as load_stored
from memsweep.studies.decide.choice import REPAIRED
from memsweep.studies.decide.first_round import SHARE, first_rounds, seconds_of
from memsweep.studies.decide.growing import GrowingTrials
from memsweep.studies.decide.options import ABOVE, LONGER, Option
from memsweep.studies.decide.question import HORIZON, Design, Obstacle, Question
from memsweep.studies.decide.reading import Subject, question_of
from memsweep.studies.decide.request import limits_of_study
from memsweep.studies.decide.round_log import Round, RoundLog, Step
from memsweep.studies.decide.rows import Cells
from memsweep.sweep.driver.launch import LIMITS, Limits
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location
from sweeping import end, environment, memsweep, start

PAIRS = """
task: {name: linear_functional, kernel: exponential}
model: {name: module, factory: "pairs:Pairs"}
training: {seeds: 5, steps: 1}
perturbation: {balls: [recurrent]}
grid: {model.width: [4, 6], task.horizon: [3, 6]}
"""
PAIRS_MODULE = """
from torch import nn


class Pairs(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        assert width % 2 == 0, "units come in pairs"
        self.rnn = nn.RNN(inputs, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.rnn(x)[0])
"""
WORDS = ("decide", "small.yaml", "--inline", "--no-page", "--json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(STUDY)
    return tmp_path


def told(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, document_schema("decide"))
    return dict(document)


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "results/small/report").glob("*.csv")}


@pytest.mark.more
def test_a_study_that_lacks_everything_is_decided_and_every_command_knows_its_trials(folder: Path) -> None:
    found = told(memsweep(*WORDS, cwd=folder))
    (decision,) = found["decisions"]
    assert decision["state"] == "decided"
    assert decision["verdict"] in ("stable", "unstable")
    assert decision["core_seconds"] > 0
    assert found["rounds"] >= 1
    assert found["hopeless"] == []
    registry.discover(folder)
    plan = read_plan(folder / "results/small")
    assert plan is not None
    asked = [
        config
        for one in RoundLog(Location.at(folder / "results/small"), plan.sweep().rows).read()
        for config in one.added
    ]
    assert {json.dumps(to_dict(each), sort_keys=True) for each in asked} <= {
        json.dumps(each, sort_keys=True) for each in plan.rows.values()
    }
    assert ms.status("small", results=folder / "results").complete
    again = told(memsweep(*WORDS, cwd=folder))
    assert (again["rounds"], again["run"]["finished"]) == (found["rounds"], {})
    swept = memsweep("sweep", "small.yaml", "--inline", "--no-page", cwd=folder)
    assert swept.returncode == 2  # it would drop the trials of the rounds
    assert "--drop-extended" in swept.stderr


def test_sizes_at_which_the_modules_code_fails_are_in_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pairs.yaml").write_text(PAIRS)
    (tmp_path / "pairs.py").write_text(PAIRS_MODULE)
    monkeypatch.chdir(tmp_path)
    trials = {str(place): row for place, row in enumerate(load_study("pairs.yaml", workspace=tmp_path).rows)}
    sizes = {name: (cast(Any, row.model).width, cast(Any, row.task).horizon) for name, row in trials.items()}
    cells = Cells(Subject("", "", cast(Finding, None), trials, sizes))
    assert [cells.possible(width, 6) for width in (4, 5, 6, 8)] == [True, False, True, True]
    assert cells.possible(4, 12)


@pytest.mark.parametrize(
    ("training", "made"), [("{seeds: 5, steps: 3}", 4), ("{seeds: 5, steps: 3, until: 2, validate_every: 1}", 0)]
)
def test_a_longer_training_takes_the_place_of_every_cell(tmp_path: Path, training: str, made: int) -> None:
    text = PAIRS.replace("{seeds: 5, steps: 1}", training)
    (tmp_path / "pairs.yaml").write_text(text.replace('"pairs:Pairs"', '"torch.nn:GRU", wrap: true'))
    trials = {str(place): row for place, row in enumerate(load_study(str(tmp_path / "pairs.yaml"), (), tmp_path).rows)}
    sizes = {name: (cast(Any, row.model).width, cast(Any, row.task).horizon) for name, row in trials.items()}
    cells = Cells(Subject("", "", cast(Finding, None), trials, sizes))
    asked = cast(Question, SimpleNamespace(misfit={}))
    addition = cells.addition(asked, Option(Design(5, (4, 6), (3, 6), 6), (LONGER,)))
    assert (addition is None) == (made == 0)
    if addition is not None:
        assert addition.trained
        assert len(addition.removed) == made
        assert {row.training.steps for row in addition.added} == {6}


@pytest.mark.more
def test_the_next_round_can_be_looked_at_and_a_limit_is_no_answer(folder: Path) -> None:
    assert memsweep("sweep", "small.yaml", "--inline", "--no-page", cwd=folder).returncode == 0
    shown = told(memsweep(*WORDS, "--plan", cwd=folder))
    assert shown["decisions"][0]["state"] == "open"
    does = shown["next_round"][0]["does"]
    assert re.match(r"\d+ seeds in the place of 3, horizons 11 and 64, widths 3 and 8", does)
    assert shown["run"] is None
    assert not (folder / "results/small/decide").exists()
    found = told(memsweep(*WORDS, "--max-trials", "2", cwd=folder), code=3)
    assert found["decisions"][0]["state"] == "limit"
    found = told(memsweep("decide", "results/small", "--inline", "--no-page", "--json", cwd=folder))
    assert found["decisions"][0]["state"] == "decided"


def test_what_is_planned_comes_first_and_nothing_is_hopeless_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit is that of the study's file."""
    monkeypatch.chdir(folder)
    (folder / "small.yaml").write_text(f"{STUDY}decide: {{max_trials: 2}}\n")
    with pytest.warns(UserWarning, match="--max-trials 2"):
        found = ms.decide("small.yaml", "training.steps=2", inline=True, progress=False)
    assert [*found.decisions["state"]] == ["limit"]
    done = load_stored(Location.at(folder / "results/small")).records
    trials = identified(load_study("small.yaml", ("training.steps=2",), folder))
    took = sum(map(effort.seconds_of, done.values()))
    modelled = sum(cost.seconds([trial.config]) for trial in trials if trial.identity in done)
    rest = sum(cost.seconds([trial.config]) for trial in trials if trial.identity not in done)
    expected = rest * took / modelled  # such trials took so long here
    for study in ("small.yaml", "small"):  # by its file, and by the name of what is stored
        words = ["training.steps=2"] if study == "small.yaml" else []
        assert main(["decide", study, *words, "--plan", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["trials_left"], document["hopeless"]) == (4, [])
        (step,) = document["next_round"]
        assert step["does"].startswith("the planned 4 trials without a result")
        assert step["core_seconds"] == pytest.approx(expected)
    for words, told_of in (
        (["small", "model.width=3"], "model.width=3 would change nothing of the stored study small"),
        (["small", "--kernel", "polynomial"], "--kernel is the memory for a module"),
        (["smal"], "there is no study 'smal'"),
    ):
        assert main(["decide", *words, "--plan"]) == 2
        assert told_of in capsys.readouterr().err


def test_a_study_file_has_every_limit_of_the_command_line_which_wins(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {*keys(DecideConfig)} == {f"max_{name}" for name in LIMITS}
    (folder / "small.yaml").write_text(f"{STUDY}decide: {{max_trials: 2, max_core_hours: 0.5}}\n")
    study, plain = (load_study(str(folder / "small.yaml"), words, folder) for words in ((), ("~decide",)))
    assert limits_of_study(Limits(trials=7), study) == Limits(trials=7, core_hours=0.5)
    assert limits_of_study(Limits(), None) == limits_of_study(Limits(), plain) == Limits()
    assert [one.identity for one in identified(study)] == [one.identity for one in identified(plain)]
    dear = load_study(str(folder / "small.yaml"), ("decide.max_cost=3",), folder)
    with pytest.raises(ConfigError, match="say first what an hour of a node costs"):
        limits_of_study(Limits(), dear)
    monkeypatch.setenv("MEMSWEEP_NODE", "cpus=16,price=0.5")
    assert limits_of_study(Limits(), dear) == Limits(trials=2, core_hours=0.5, cost=6.0)
    assert limits_of_study(Limits(cost=1.0), dear).cost == 1.0
    with pytest.raises(ConfigError, match=r"decide.max_hours: must be above 0.0, got -1") as caught:
        load_study(str(folder / "small.yaml"), ("decide.max_hours=-1", "decide.max_trial=3"), folder)
    assert len(caught.value.problems) == 2


@pytest.mark.more
def test_more_than_the_limit_is_hopeless_and_says_how_much_would_be_needed(folder: Path) -> None:
    assert memsweep("sweep", "small.yaml", "--inline", "--no-page", cwd=folder).returncode == 0
    found = told(memsweep(*WORDS, "--max-core-hours", "1e-6", cwd=folder))
    (decision,) = found["decisions"]
    assert found["hopeless"] == [decision["name"]]
    assert decision["needed_core_hours"] > 1e-6
    assert "core hours" in decision["why"]
    text = memsweep(*WORDS[:-1], "--max-core-hours", "1e-6", cwd=folder).stdout
    assert f"{decision['name']}: hopeless" in " ".join(text.split())
    assert "To decide" not in text  # the advice of the rule alone: it is other work than what a round would do
    assert "To decide: memsweep extend small.yaml" in memsweep("report", "small", cwd=folder).stdout


@pytest.mark.more
def test_what_does_not_fit_into_the_rest_of_the_limit_is_named_with_its_price(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["sweep", "small.yaml", "--inline", "--no-page"]) == 0
    monkeypatch.setattr(GrowingTrials, "_spent", lambda trials, study: trials._limit)
    capsys.readouterr()
    assert main([*WORDS, "--max-core-hours", "1", "--plan"]) == 0
    (decision,) = json.loads(capsys.readouterr().out)["decisions"]
    assert decision["state"] == "limit"
    assert decision["needed_core_hours"] > 0.0
    assert re.search(
        r"\d+ seeds in the place of 3, horizons 11 and 64.* core hours, does not fit into what is left of the limit",
        decision["why"],
    )
    assert main([*WORDS[:-1], "--max-core-hours", "1"]) == Exit.LIMIT
    assert "the same command goes on: a limit is that of one run" in capsys.readouterr().out


def only_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question lacks seeds alone."""
    fits = {"misfit": {}, "below": False, "above": False, "found": 1.0, "grows": ()}
    fits |= {"valid_widths": 4, "valid_horizons": 4, "complete": 5}

    def noisy(subject: Subject, possible: Any) -> Question:
        return replace(question_of(subject, possible), **fits)

    monkeypatch.setattr("memsweep.studies.decide.growing.question_of", noisy)
    monkeypatch.setattr(Question, "gaps", ())
    monkeypatch.setattr(Question, "aims", ((Obstacle(HORIZON, 0.07, 0.3, 0.0, 5, 0.95),),))
    monkeypatch.setitem(REPAIRED, LONGER, 0)


@pytest.mark.more
def test_each_condition_costs_what_its_own_trials_took_and_the_cheap_one_runs_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of two conditions takes ten times as long as the cost model says."""
    monkeypatch.chdir(folder)
    sizes = ["model.width=2,3,4,6", "task.horizon=8,16,32,64", "training.seeds=5", "training.steps=2"]
    sizes.append("model.parameterization=exp,direct")
    assert main(["sweep", "small.yaml", *sizes, "--inline", "--no-page"]) == 0
    only_noise(monkeypatch)
    times = {"exp": 10.0, "direct": 1.0}
    monkeypatch.setattr(
        "memsweep.studies.decide.growing.seconds_of",
        lambda record: (
            times[record["config"]["model"]["parameterization"]["name"]]
            * cost.seconds([trial_from_dict(record["config"])])
        ),
    )
    limit = ("--max-core-hours", "1")
    capsys.readouterr()
    assert main([*WORDS, *sizes, *limit, "--plan"]) == 0
    cheap, dear = json.loads(capsys.readouterr().out)["next_round"]
    assert ("direct" in cheap["name"], "exp" in dear["name"]) == (True, True)
    assert dear["core_seconds"] == pytest.approx(10.0 * cheap["core_seconds"])
    assert main([*WORDS, *sizes, *limit, "--max-trials", "1"]) == Exit.LIMIT
    registry.discover(folder)
    study = Location.at(folder / "results/small")
    plan = read_plan(study)
    assert plan is not None
    (new,) = [record for record in load_stored(study).records.values() if record["identity"] in plan.extended]
    assert new["config"]["model"]["parameterization"]["name"] == "direct"


@pytest.mark.more
def test_what_is_hopeless_needs_more_than_the_limit_and_what_is_chosen_fits_into_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On machines that take a third of what the cost model says, as long, and three times as long."""
    monkeypatch.chdir(folder)
    sizes = ("model.width=2,3,4,6", "task.horizon=8,16,32,64", "training.seeds=5", "training.steps=2")
    assert main(["sweep", "small.yaml", *sizes, "--inline", "--no-page"]) == 0
    only_noise(monkeypatch)
    states = set()
    for factor in (0.3, 1.0, 3.0):
        monkeypatch.setattr(GrowingTrials, "_factor", lambda self, *_, factor=factor: factor)
        for hours in np.geomspace(1e-5, 1e-2, 13):
            capsys.readouterr()
            assert main([*WORDS, *sizes, "--plan", "--max-core-hours", str(hours)]) == 0
            found = json.loads(capsys.readouterr().out)
            (one,) = found["decisions"]
            states.add(one["state"])
            if one["state"] == "hopeless":
                assert one["needed_core_hours"] > hours
            assert sum(step["core_seconds"] for step in found["next_round"]) <= 3600.0 * hours
    assert states == {"hopeless", "open"}


@pytest.mark.more
def test_repairs_take_the_place_of_what_was_wrong_and_every_command_counts_the_same(folder: Path) -> None:
    """Radii far below the crossings."""
    text = STUDY.replace("{from: 0.001, to: 3, count: 8}", "{from: 0.0001, to: 0.001, count: 3}")
    text = text.replace("seeds: 3, steps: 300", "seeds: 5, steps: 200").replace("[8, 16, 32]", "[8, 16]")
    (folder / "small.yaml").write_text(text)
    before = told(memsweep(*WORDS, "--max-trials", "4", cwd=folder), code=3)
    assert (before["rounds"], before["trials_left"]) == (0, 0)  # at a limit no round begins
    first = tables(folder)
    begun = told(memsweep(*WORDS, "--max-trials", "1", cwd=folder), code=3)
    assert (begun["rounds"], begun["trials_left"]) == (1, 3)
    # until all are replaced, a condition has its verdict by the old trials, its costs by both, and no more advice
    assert tables(folder)["verdicts.csv"] == re.sub(rb"to decide: [^;]*; ", b"", first["verdicts.csv"])
    assert tables(folder)["radii.csv"] == first["radii.csv"]
    (was,), (now,) = before["decisions"], begun["decisions"]
    assert (now["name"], now["state"]) == (was["name"], "limit")
    assert now["core_seconds"] > was["core_seconds"]
    assert "until then 4 earlier trials are shown" in memsweep("report", "small", cwd=folder).stdout
    mixed = load_stored(folder / "results/small")
    assert (mixed.finished, len(mixed.standing_in), len(mixed.waiting)) == (1, 4, 1)
    assert (len(mixed.replaced), mixed.left_out) == (0, 0)
    found = told(memsweep(*WORDS, "--max-trials", "4", cwd=folder), code=3)
    assert tables(folder)["radii.csv"] != first["radii.csv"]
    whole = load_stored(folder / "results/small")
    assert (len(whole.standing_in), len(whole.waiting), len(whole.replaced), whole.left_out) == (0, 0, 4, 0)
    registry.discover(folder)
    study = Location.at(folder / "results/small")
    plan = read_plan(study)
    assert plan is not None
    rounds = RoundLog(study, plan.sweep().rows).read()
    repairs = [name for one in rounds for step in one.steps for name in step.repairs]
    assert repairs[0] == ABOVE
    replaced = {name for one in rounds for name in one.removed}
    assert replaced
    assert not replaced & plan.rows.keys()
    run = found["run"]
    done = len(run["finished"]) + run["reused"]
    assert run["trials"] == len(plan.rows) == done + run["left"]
    status = ms.status("small", results=folder / "results")
    assert (status.done, len(status.trials)) == (done, run["trials"])
    assert memsweep("resume", "small", "--inline", "--no-page", cwd=folder).returncode == 0
    assert ms.status("small", results=folder / "results").complete
    refused = memsweep("extend", "small.yaml", "training.seeds=7", "--inline", cwd=folder)
    assert refused.returncode == Exit.REFUSED
    assert "perturbation.radii.to: 0.001) than those that are stored" in re.sub(r"\s+", " ", refused.stderr)


@pytest.mark.long
def test_a_first_plan_that_the_limit_made_small_is_kept_by_every_later_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped in the middle and gone on with, by the same limit and by others: trials and tables are the same."""
    text = (
        "name: small\ntask: {name: linear_functional, kernel: polynomial, rate: 0.6}\n"
        "model: {name: diagonal_rnn}\ntraining: {steps: 2}\ndecide: {}\n"
    )
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    (tmp_path / "small.yaml").write_text(text)
    costs = [seconds_of(plan) for plan in first_rounds(load_study(str(tmp_path / "small.yaml"), (), tmp_path))]
    hours = (costs[-1] + costs[-2]) / 2 / SHARE / 3600.0
    for place in (whole, stopped):
        place.mkdir()
        (place / "small.yaml").write_text(text.replace("{}", f"{{max_core_hours: {hours}}}"))
    for place, most in ((whole, "4"), (stopped, "2")):
        done = memsweep(*WORDS, "--max-trials", most, cwd=place)
        assert done.returncode in (Exit.DONE, Exit.LIMIT), done.stderr  # the limit is one of the clock
        (*every,) = told(memsweep(*WORDS, "--max-core-hours", "100", cwd=place))["decisions"]
        assert {one["state"] for one in every} == {"hopeless"}  # nothing is learned in two steps
        assert "for five of 40 to do so, too few of 3 seeds learn" in every[0]["why"]
    assert tables(whole) == tables(stopped)
    before = [read_plan(place / "results/small") for place in (whole, stopped)]
    assert [len(plan.rows) for plan in before if plan is not None] == [4, 4]
    assert before[0] is not None
    assert before[1] is not None
    assert before[0].rows == before[1].rows
    monkeypatch.chdir(stopped)
    capsys.readouterr()
    assert main([*WORDS, "--max-core-hours", f"{costs[-2] / SHARE / 3600.0}", "--plan"]) == 0  # that of the next size
    assert json.loads(capsys.readouterr().out)["trials_left"] == 0


@pytest.mark.drill
@pytest.mark.long
def test_kills_in_the_middle_of_rounds_change_no_byte_of_the_tables(folder: Path, tmp_path: Path) -> None:
    (whole := tmp_path / "undisturbed").mkdir()
    (whole / "small.yaml").write_text(STUDY)
    told(memsweep(*WORDS, cwd=whole))
    rounds, records = (folder / "results/small" / name for name in ("decide", "records"))
    for more in (0, 2):  # as the first round begins, and after two of its results
        stored, process = len([*records.glob("*.json")]), start(*WORDS, cwd=folder, env=environment())
        try:
            until = time.monotonic() + 300.0
            while not (rounds / "000000.json").exists() or len([*records.glob("*.json")]) < stored + more:
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGKILL)
        finally:
            end(process)
    told(memsweep(*WORDS, cwd=folder))
    assert tables(folder) == tables(whole)
    assert chosen_in(rounds) == chosen_in(whole / "results/small/decide")


def chosen_in(rounds: Path) -> list[dict[str, Any]]:
    """The rounds of a study, less what their trials took, which they are priced by."""
    found = [json.loads(path.read_text()) for path in sorted(rounds.iterdir())]
    return [one | {"sha256": "", "steps": [step | {"cost": 0.0} for step in one["steps"]]} for one in found]


def test_a_round_is_read_as_it_was_written_and_a_damaged_one_is_chosen_again(tmp_path: Path) -> None:
    from memsweep.config.load.study import study_of

    text = {"name": "small", "task": {"name": "linear_functional"}, "model": {"name": "diagonal_rnn"}}
    (row,) = study_of(text, (), tmp_path, "", "a test").rows
    made = Round(10, (Step("key", "name", "seeds 3 to 5", (), 1.5),), (row,), ("abc",))
    log = RoundLog(Location.at(tmp_path), [row])
    log.write(0, made)
    log.write(1, made)
    assert log.read() == [made, made]
    assert trial_from_dict(to_dict(row)) == row
    others = study_of({**text, "model": {"name": "vanilla_rnn"}}, (), tmp_path, "", "a test").rows
    assert RoundLog(Location.at(tmp_path), others).read() == []  # it names a model that the study has not
    (tmp_path / "decide/000001.json").write_bytes(b"{")
    assert log.read() == [made]
    log.write(2, made)
    with pytest.raises(StoreError, match=r"000001\.json is missing or damaged, and rounds after it are there"):
        log.read()
    path = tmp_path / "decide/000000.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 9'))
    with pytest.raises(StoreError, match="newer"):
        log.read()
