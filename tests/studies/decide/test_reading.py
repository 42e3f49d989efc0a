"""The reading of a condition by ``memsweep decide``: widths that fit, and memories that change with the horizon."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memsweep.config.load.study import load_study
from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.read.known import Known
from memsweep.report.read.study import load_study as read_study
from memsweep.studies.decide.question import HORIZON, WIDTH, Question
from memsweep.studies.decide.reading import question_of, subjects
from memsweep.sweep.store.filesystem import Location
from report_study import Condition, write_study

SIZES = {"widths": (2, 4, 8, 16), "horizons": (16, 32, 64, 128), "balls": ("recurrent",)}


def asked(folder: Path, contents: Contents, weights: str = "") -> Question:
    trial = load_study("quickstart").rows[0]
    trial = replace(trial, training=replace(trial.training, weights=weights))
    trials = dict.fromkeys(contents.study.records, trial)
    (subject,) = subjects(contents, trials)
    return question_of(subject, lambda width, horizon: True)


def read(folder: Path) -> Contents:
    return analyse(read_study(Location.at(folder), Known()))


@pytest.mark.parametrize(("missing", "entering"), [((2, 4), (2, 2)), ((2, 8), (2, 3)), ((), (4, 4))])
def test_widths_are_counted_from_the_smallest_that_fits_on(
    tmp_path: Path, missing: tuple[int, ...], entering: tuple[int, int]
) -> None:
    sizes = [(horizon, width) for horizon in SIZES["horizons"] for width in SIZES["widths"]]

    def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
        if sizes[index][1] in missing:
            for table in (tables["curves"], tables["replicas"]):
                table["error"] += 1.0

    write_study(tmp_path, [Condition(kernel="exponential")], complete=complete, **SIZES)
    found = asked(tmp_path, read(tmp_path))
    assert found.entering == entering
    assert found.lost == len(missing)


def test_given_weights_get_no_other_widths(tmp_path: Path) -> None:
    write_study(tmp_path, [Condition(kernel="exponential")], **SIZES | {"widths": (2,)})
    contents = read(tmp_path)
    assert asked(tmp_path, contents).grows == (HORIZON, WIDTH)
    assert asked(tmp_path, contents, weights="/stored.pt").grows == (HORIZON,)


def test_a_memory_that_changes_with_the_horizon_has_no_time_scale_and_gets_no_horizon(tmp_path: Path) -> None:
    sizes = [(horizon, width) for horizon in SIZES["horizons"] for width in SIZES["widths"]]

    def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
        lags = tables["memory"]["lag"].to_numpy(float)
        tables["memory"]["target"] = np.exp(-lags * 4.0 / sizes[index][0])

    write_study(tmp_path, [Condition(kernel="exponential", slope_horizon=-0.2)], complete=complete, **SIZES)
    contents = read(tmp_path)
    (finding,) = contents.verdicts
    words = [*finding.judgement.extend, *(word for lack in finding.judgement.lacks for word in lack.overrides)]
    assert not [word for word in words if "task.horizon" in word]
    assert not [reason for reason in finding.judgement.reasons if "time scales" in reason]
    found = asked(tmp_path, contents)
    assert HORIZON not in found.grows
    assert found.since == 0.0
    assert not math.isnan(found.kept)
