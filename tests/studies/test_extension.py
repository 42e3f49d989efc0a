"""Extensions: a later sweep does not drop one unasked, and more steps go on from a kept state, bit for bit."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

import memsweep as ms
from memsweep.cli import main
from memsweep.config.load.study import load_study as read_study
from memsweep.config.schema.canonical import to_dict
from memsweep.learning.state.warm_start import WarmStart
from memsweep.report.read.command_line import grown_words
from memsweep.report.read.study import load_study
from memsweep.studies.decide.round_log import Round, RoundLog
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import FILES, read_plan, write_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.record import sealed
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from paths import ROOT
from report_study import write_planned
from sweeping import BASE, ready


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(f"# Two small trials.\n{BASE}grid: {{model.width: [2, 3]}}\n")
    return path


def run(verb: str, study: Path, *words: str) -> int:
    results = ready(study.parent / "results")
    return main([verb, str(study), "--inline", "--results", str(results), "--workspace", str(ROOT), *words])


def test_a_sweep_drops_what_extend_added_only_when_it_is_told_to(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", study) == 0
    assert run("extend", study, "model.width=4") == 0
    capsys.readouterr()
    assert run("sweep", study) == 2
    told = capsys.readouterr().err
    assert "to this study 1 trial (model.width: 4) came later" in told
    assert "--drop-extended" in told
    assert "memsweep resume small" in told
    assert run("sweep", study, "--drop-extended") == 0
    assert "1 trial no longer planned" in capsys.readouterr().out
    for name in FILES:  # a damaged plan names no extension, and a sweep writes it again
        (study.parent / "results" / "small" / name).write_bytes(b"")
    assert run("sweep", study) == 0
    assert "2/2 done" in capsys.readouterr().out


def test_an_extended_study_whose_code_has_changed_is_offered_what_works(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", study) == 0
    assert run("extend", study, "model.width=4") == 0
    for name in FILES:
        path = study.parent / "results" / "small" / name
        plan = json.loads(path.read_text())
        plan["trials"][0]["identity"] = "f" * 32
        path.write_text(json.dumps(sealed(plan)))
    capsys.readouterr()
    assert run("sweep", study) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "memsweep resume" not in told
    assert "the same command with --drop-extended, then the extend or decide" in told
    assert "came later, by memsweep extend or decide" in str(ms.plan(study, results=study.parent / "results"))
    assert run("extend", study, "model.width=4") == 2
    assert f"memsweep sweep {study} --drop-extended" in capsys.readouterr().err
    assert run("sweep", study, "--drop-extended") == 0
    assert run("extend", study, "model.width=4") == 0
    assert "3/3 done, 3 of them reused" in capsys.readouterr().out


def test_more_seeds_reach_the_sizes_that_an_earlier_extension_added(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", study, "training.seeds=1") == 0
    assert run("extend", study, "model.width=2,4", "training.seeds=1") == 0
    for ended in ("6/6 done, 3 of them reused", "6/6 done, 6 of them reused"):
        capsys.readouterr()
        assert run("extend", study, "training.seeds=2") == 0
        assert ended in capsys.readouterr().out


def test_the_command_that_a_report_gives_extends_a_study_of_another_name(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file is not called like it, and without the overrides of its sweep other trials would be added, too."""
    words = ('name="an other"', "task.horizon=8", "grid.model.width=[2]", "training.seeds=1")
    assert run("sweep", study, *words) == 0
    folder = study.parent / "results" / "an%20other"
    command = load_study(Location.at(folder)).extended_by("model.width=3")
    first = ["memsweep", "extend", str(study), *words[:2], words[3], "model.width=3"]
    assert shlex.split(command)[: len(first) + 2] == [*first, "--results", str(study.parent / "results")]
    assert run("extend", study, *shlex.split(command)[3:]) == 0
    assert "2/2 done, 1 of them reused" in capsys.readouterr().out
    assert main(["resume", str(folder), "--inline", "--workspace", str(ROOT)]) == 0
    assert load_study(Location.at(folder)).extended_by("model.width=3") == command


def test_what_a_report_advises_after_an_extension_reaches_all_sizes_and_seeds(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The overrides of the first sweep name the sizes that it began with."""
    first = ("grid.model.width=[2]", "task.horizon=8", "training.seeds=1")
    assert run("sweep", study, *first) == 0
    assert run("extend", study, "model.width=2,3", "task.horizon=4,8", "training.seeds=2") == 0
    folder = Location.at(study.parent / "results" / "small")
    for words, trials in (("task.horizon=16", 7), ("model.width=5", 10), ("model.width=7,8 training.seeds=3", 16)):
        command = shlex.split(load_study(folder).extended_by(words))
        assert run("extend", study, *command[3:]) == 0
        assert load_study(folder).planned == trials
    cells: dict[tuple[int, int], set[int]] = {}
    for row in load_study(folder).rows.values():
        began, count = row["training"]["first_seed"], row["training"]["seeds"]
        cells.setdefault((row["model"]["width"], row["task"]["horizon"]), set()).update(range(began, began + count))
    assert cells.keys() == {(width, horizon) for width in (2, 3, 5, 7, 8) for horizon in (4, 8, 16)}
    assert all(seeds == set(range(3 if width > 5 else 2)) for (width, _), seeds in cells.items())


def test_advice_names_no_field_that_a_task_of_the_study_lacks() -> None:
    parity, counter = {"name": "parity", "length": 8}, {"name": "modular_counter", "length": 8, "modulus": 3}
    rows = {
        name: {"task": task, "model": {"width": 2}, "training": {"seeds": 1}}
        for name, task in (("a", parity), ("b", counter), ("c", {**counter, "modulus": 5}))
    }
    assert grown_words(rows, {"c"}, ["model.width"]) == []
    del rows["a"]
    assert grown_words(rows, {"c"}, ["model.width"]) == ["task.modulus=3,5"]


def test_an_extension_says_which_sizes_of_earlier_ones_it_lacks(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", study) == 0
    assert run("extend", study, "model.width=2,3,4") == 0
    assert "does not name" not in capsys.readouterr().out
    assert run("extend", study, "training.seeds=3") == 0
    assert "does not name" not in capsys.readouterr().out  # seeds reach all sizes
    assert run("extend", study, "task.horizon=6") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "add to this command: model.width=2,3,4 training.seeds=3" in told
    words = told.partition("add to this command: ")[2].split()[:2]
    assert run("extend", study, "task.horizon=6", *words) == 0
    assert "does not name" not in capsys.readouterr().out
    stored = load_study(study.parent / "results" / "small")
    assert stored.tables["replicas"].groupby(["horizon", "width"]).size().tolist() == [3] * 6


def test_conditions_that_an_extension_brought_are_left_to_decide(study: Path) -> None:
    """Of a float, ``extend`` would cross its values with all sizes and with the values of other fields."""
    for words in ((), ("training.learning_rate=0.3",), ("model.width=4",)):
        assert run("extend" if words else "sweep", study, *words) == 0
    stored = load_study(study.parent / "results" / "small")
    assert stored.extended_by("task.horizon=6 training.seeds=5") == stored.until_decided
    assert stored.until_decided.startswith("memsweep decide ")
    assert "extend" in stored.extended_by("training.seeds=5")


def test_widths_to_which_other_fields_are_tied_are_left_to_decide(tmp_path: Path) -> None:
    """The rows of a stack pair its features with its widths: an axis of widths would leave the features."""
    rows = read_study("states_stability").rows
    trials = [{"identity": f"{place:032x}", "config": to_dict(row)} for place, row in enumerate(rows)]
    write_planned(tmp_path, {"study": "tied", "description": "", "trials": trials, "claims": None})
    study = replace(load_study(Location.at(tmp_path)), source="tied.yaml")
    assert shlex.split(study.extended_by("model.width=24"))[:3] == ["memsweep", "decide", "tied.yaml"]
    assert shlex.split(study.extended_by("training.seeds=9"))[:4] == [
        "memsweep",
        "extend",
        "tied.yaml",
        "training.seeds=9",
    ]
    untied = replace(study, rows={name: row for name, row in study.rows.items() if row["model"]["width"] == 12})
    assert untied.extended_by("model.width=24").startswith("memsweep extend tied.yaml model.width=24")


@pytest.mark.more
def test_a_training_that_ended_early_goes_on_with_the_bits_of_a_whole_one(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []
    load = WarmStart.load

    def watched(self: WarmStart, *words: object) -> int:
        began.append(load(self, *words))  # type: ignore[arg-type]
        return began[-1]

    monkeypatch.setattr(WarmStart, "load", watched)
    assert run("sweep", study, "training.until=10") == 0
    capsys.readouterr()
    assert run("extend", study, "training.until=0") == 0
    assert "2 of them go on from a kept state" in capsys.readouterr().out
    assert began[-1] == 10
    assert run("sweep", study, "--no-reuse", "name=whole") == 0
    extended, whole = (Store(study.parent / "results" / name) for name in ("small", "whole"))
    assert len(whole.identities()) == 2
    assert len(whole.table("replicas")) == 4
    for name in table_names():
        table, expected = extended.table(name), whole.table(name)
        if len(expected):
            own = table[table["identity"].isin(whole.identities())]
            keys = [key for key in ("identity", "seed", "ball", "radius", "step", "lag") if key in expected]
            frames = [frame.sort_values(keys).reset_index(drop=True) for frame in (own, expected)]
            pd.testing.assert_frame_equal(*frames, check_exact=True)


@pytest.mark.more
def test_more_steps_say_why_they_train_from_the_beginning(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sweep", study) == 0
    assert run("extend", study, "training.steps=30") == 0
    told = capsys.readouterr().out
    assert "training.steps: 2 trials train from the beginning: the learning rate falls over all steps" in told
    assert "training.steps=30 training.until=20" in told
    assert "kept state" not in told


def test_what_a_measurement_lacks_is_added_to_its_study_first(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = ["--results", str(study.parent / "results"), "--workspace", str(ROOT)]
    assert run("sweep", study, "training.seeds=1") == 0
    words = ["measure", "small", "perturbation.reference=self", 'name="own"', "--inline", *results]
    monkeypatch.setattr(sys, "argv", ["memsweep", *words])
    assert main(words) == 0
    own = load_study(Location.at(study.parent / "results" / "own"))
    first, then = (shlex.split(part) for part in own.extended_by("training.seeds=2").split(" && "))
    assert (first[:4], then[:3]) == (["memsweep", "extend", str(study), "training.seeds=2"], ["memsweep", *words[:2]])
    assert shlex.split(own.extended_by("perturbation.starts=3"))[:3] == ["memsweep", *words[:2]]
    capsys.readouterr()
    for line in (first, then):
        assert main([*line[1:], *(["--inline"] if line is first else [])]) == 0
    assert set(load_study(Location.at(study.parent / "results" / "own")).tables["replicas"]["seed"]) == {0, 1}


def test_what_cannot_be_extended_first_has_no_advice(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two measurements of one another, one of a study of Python, and one whose study is gone."""
    folder = study.parent / "results"
    results = ["--results", str(folder), "--workspace", str(ROOT)]

    def advice(*words: str, name: str) -> str:
        line = ["measure", "--inline", *results, *words, f'name="{name}"']
        monkeypatch.setattr(sys, "argv", ["memsweep", *line])
        assert main(line) == 0
        return load_study(Location.at(folder / name)).extended_by("training.seeds=2")

    assert run("sweep", study, "training.seeds=1") == 0
    plain = advice("perturbation.reference=self", "small", name="own")
    assert shlex.split(plain)[:4] == ["memsweep", "extend", str(study), "training.seeds=2"]
    assert advice(str(folder / "own"), "perturbation.starts=3", name="small") == ""
    assert load_study(Location.at(folder / "own")).extended_by("training.seeds=2") == ""
    text = {**yaml.safe_load(study.read_text()), "name": "dicted"}
    text["perturbation"]["radii"]["from"] = 1e-3  # which YAML's own reader takes for text
    ms.sweep(text, results=folder, inline=True, progress=False)
    assert advice("dicted", name="other").startswith("ms.extend(study, 'training.seeds=2'")
    assert "memsweep" not in advice("dicted", name="other")
    shutil.rmtree(folder / "dicted")
    assert load_study(Location.at(folder / "other")).extended_by("training.seeds=2") == ""


def test_a_measurement_in_a_round_is_of_the_trials_that_reports_show(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = ["--results", str(study.parent / "results"), "--workspace", str(ROOT)]
    assert run("sweep", study) == 0
    small = Location.at(study.parent / "results" / "small")
    plan = read_plan(small)
    assert plan is not None
    longer = tuple(replace(row, training=replace(row.training, steps=40)) for row in plan.sweep().rows)
    RoundLog(small, longer).write(0, Round(10, (), longer, tuple(plan.rows)))
    grown = replace(plan.sweep(), rows=longer)
    write_plan(small, make_plan(grown, identified(grown), frozenset()), plan.provenance)
    capsys.readouterr()
    words = ["measure", "small", "perturbation.reference=self", "name=own", "--inline", *results]
    monkeypatch.setattr(sys, "argv", ["memsweep", *words])
    assert main(words) == 0
    told = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert "A round of memsweep decide has not ended: 2 earlier trials stand in, as in reports." in told
    own = load_study(Location.at(study.parent / "results" / "own"))
    assert {record["config"]["training"]["steps"] for record in own.records.values()} == {20}
    # words would begin the study anew: decide alone goes on with the round
    first, then = (shlex.split(part) for part in own.extended_by("training.seeds=9").split(" && "))
    assert (first[:3], then[:3]) == (["memsweep", "decide", str(study)], ["memsweep", *words[:2]])
