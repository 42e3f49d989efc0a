"""The command that measures again, once the code is corrected, stands beside what could not be measured."""

from __future__ import annotations

from dataclasses import replace

from memsweep.report.read.rounds import StoredRound
from memsweep.report.read.study import Study, measured_again

FAILED = {"a1": {"summary": {"not_measured": "capacity: ValueError (parts.py, line 3): no"}}}
STUDY = Study(
    name="kraise",
    description="",
    planned=1,
    records=FAILED,
    tables={},
    missing=(),
    left_out=0,
    claims=None,
    protocol="matched",
    command="memsweep resume kraise",
    source="k",
    overrides=("training.steps=20", "name=kraise"),
)


def told(study: Study) -> str:
    (line,) = measured_again(study)
    begins = "With its code corrected, this measures again, and trains only what the correction reaches: "
    assert line.startswith(begins)
    return line.removeprefix(begins)


def test_the_sweep_of_the_same_words_is_named_whatever_command_came_last() -> None:
    assert told(STUDY) == "memsweep sweep k training.steps=20 name=kraise"


def test_a_measurement_is_made_again_by_its_own_words_and_a_study_of_python_by_its_call() -> None:
    line = "memsweep measure kraise perturbation.capacity.lags=3 --max-hours 1"
    assert told(replace(STUDY, command=line, source="", measured="kraise")) == line.removesuffix(" --max-hours 1")
    assert told(replace(STUDY, source="")).startswith("ms.sweep(")


def test_no_command_is_named_where_all_was_measured_or_more_was_planned_since() -> None:
    assert measured_again(replace(STUDY, records={"a1": {"summary": {}}})) == []
    assert measured_again(replace(STUDY, extended=frozenset({"a1"}))) == []
    assert measured_again(replace(STUDY, rounds=[StoredRound((), ())])) == []
    assert measured_again(replace(STUDY, source=None, command="")) == []
