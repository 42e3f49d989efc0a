"""Core seconds to a verdict: on page and terminal of a study with rounds, replaced trials among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memsweep import report
from memsweep.report.analysis.contents import analyse
from memsweep.report.analysis.effort import core_seconds, key_of
from memsweep.report.read.rounds import FOLDER, FORM, round_name, stored_rounds
from memsweep.report.read.study import load_study
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.record import sealed
from memsweep.sweep.store.results import Store
from report_study import Condition, config_of, tables_of, write_study, write_trial

WIDTHS, HORIZONS, SEEDS = (2, 4), (50, 100), 5
CONDITIONS = (Condition(), Condition(parameterization="exp"))
PLANNED = len(WIDTHS) * len(HORIZONS)
"""Trials of a condition, of 12.5 seconds each."""
OLD = f"{99:032x}"


def write_round(folder: Path, number: int, key: str, removed: list[str], added: Sequence[Any] = ()) -> None:
    content = {"schema": FORM.version, "round": number, "most": 10, "added": [*added], "removed": removed}
    content["steps"] = [{"key": key, "name": "", "does": "", "repairs": [], "cost": 1.0}]
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / round_name(number)).write_text(json.dumps(sealed(content)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, CONDITIONS, widths=WIDTHS, horizons=HORIZONS, balls=("recurrent",), memory=False)
    return tmp_path


def test_a_study_without_rounds_has_no_such_table(folder: Path) -> None:
    assert "Core seconds to a verdict" not in report.build(folder).text()


def test_replaced_trials_count_for_their_condition_alone(folder: Path) -> None:
    first, other = analyse(load_study(folder)).findings[::1][:2]
    size = (HORIZONS[-1], WIDTHS[-1])
    shorter = Condition(training={"steps": 1250})  # a round trained it twice as long
    config = config_of(shorter, *size, SEEDS)
    tables = tables_of(OLD, config, shorter, (*size, SEEDS), ("recurrent",))
    write_trial(Store(folder), "synthetic", OLD, config, tables, {"seconds": 100.0, "threads": 2, "members": 4})
    write_round(folder, 0, key_of(first.condition), [OLD])
    write_round(folder, 1, key_of(first.condition), [])
    study = load_study(folder)
    contents = analyse(study)
    known = dict(zip((first.key, other.key), contents.grouping.members(), strict=True))
    spent = [core_seconds(study, *known[each.key]) for each in (first, other)]
    assert spent == [PLANNED * 12.5 + 100.0 * 2 / 4, PLANNED * 12.5]
    built = report.build(folder)
    page, text = built.page.read_text(encoding="utf-8"), built.text()
    assert 'id="time-to-verdict"' in page
    (line,) = [line for line in text.splitlines() if line.split()[-3:] == ["4", "1", "100"]]
    assert line.split()[-4] == "2"  # rounds
    assert not (built.folder / "time_to_verdict.csv").exists()  # times are of one run on one machine


def test_rounds_are_read_up_to_a_damaged_one(folder: Path) -> None:
    for number in range(3):
        write_round(folder, number, "key", [])
    rows = load_study(folder).rows.values()
    (folder / round_name(1)).write_text("{")
    assert len(stored_rounds(Location.at(folder), rows)) == 1


def test_rounds_of_another_model_are_not_those_of_the_study(folder: Path) -> None:
    """They ran under its name before its file was changed."""
    write_round(folder, 0, "key", [])
    rows = [*load_study(folder).rows.values()]
    other = {**rows[0], "model": {**rows[0]["model"], "name": "dense_rnn"}}
    write_round(folder, 1, "key", [OLD], added=[other])
    assert len(stored_rounds(Location.at(folder), rows)) == 1
    write_round(folder, 1, "key", [OLD], added=[{**rows[0], "model": {**rows[0]["model"], "width": 128}}])
    assert len(stored_rounds(Location.at(folder), rows)) == 2
