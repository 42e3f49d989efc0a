"""Studies side by side, and the same study by other criteria, from stored results alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memsweep import report
from memsweep.analyses.comparison.compare import EACH, StudyComparison, compare_studies
from memsweep.errors import ConfigError, MemsweepError
from memsweep.report.analysis.contents import Contents
from memsweep.report.terminal import comparison_text
from memsweep.stability.verdict.judgement import Criteria
from report_study import THEORY, Condition, write_study

FLATTER, LESS = -0.25, 0.5
"""In the second study: the slope of polynomial memory under direct; the losses beside those of the first."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two studies that share two conditions, one of them with other slopes and losses, and have one each alone."""
    root = tmp_path_factory.mktemp("results")
    folders = {name: root / name for name in ("first", "second")}
    for folder in folders.values():
        folder.mkdir()
    first = [replace(each, loss=0.002) for each in THEORY[1:]]
    longer = {"training": {"steps": 5000}}
    second = [replace(first[0], slope_horizon=FLATTER, loss=0.001, **longer)]
    second += [replace(first[1], **longer), Condition(parameterization="relu", base=0.5, **longer)]
    settings = {"balls": ["recurrent"], "memory": False}
    write_study(folders["first"], first, name="first", **settings)  # type: ignore[arg-type]
    write_study(folders["second"], second, name="second", first_identity=1000, **settings)  # type: ignore[arg-type]
    return folders


@pytest.fixture(scope="module")
def compared(stored: dict[str, Path]) -> StudyComparison:
    return compare(stored)


def compare(studies: dict[str, Path]) -> StudyComparison:
    return compare_studies({name: report.judge(folder) for name, folder in studies.items()})


def test_shared_conditions_stand_side_by_side_with_the_difference_of_their_slopes(compared: StudyComparison) -> None:
    assert [row.study for row in compared.verdicts] == ["first", "second"] * 2 + ["first", "second"]
    names = {compared.labels.names(row.condition): row.difference for row in compared.verdicts if row.difference}
    assert list(names) == [("polynomial", "direct"), ("polynomial", "exp")]
    changed = names["polynomial", "direct"]
    assert changed.paired
    assert changed.apart
    assert changed.low - 0.001 <= FLATTER - THEORY[1].slope_horizon <= changed.high + 0.001
    assert not names["polynomial", "exp"].apart
    losses = {compared.labels.names(row.condition): row for row in compared.losses if row.log_difference}
    assert losses["polynomial", "direct"].ratio == pytest.approx((LESS,) * 3)
    assert losses["polynomial", "exp"].ratio == pytest.approx((1.0,) * 3)


def test_conditions_of_one_study_alone_and_differing_settings_are_named(compared: StudyComparison) -> None:
    alone = [[compared.labels.machine(each) for each in compared.conditions(name)] for name in compared.names]
    assert alone == [["softplus"], ["relu"]]
    differing = {each.path: each.values for each in compared.settings}
    assert differing["training.steps"] == {"first": (2500,), "second": (5000,)}
    assert set(differing) == {"training.steps", "model.parameterization"}


def test_a_study_beside_itself_has_the_same_trials_and_no_difference(stored: dict[str, Path]) -> None:
    twice = compare({"a": stored["first"], "b": stored["first"]})
    others = [row for row in twice.verdicts if row.study == "b"]
    assert others
    assert all(row.same and row.difference and row.difference.estimate == 0 for row in others)
    assert not twice.settings


def test_losses_of_the_same_trained_weights_are_not_compared(tmp_path: Path) -> None:
    """The second half of an identity names the training: that of the others is ``mine``'s in one or in no condition."""
    for place, name in enumerate(("mine", "measured", "other")):
        (tmp_path / name).mkdir()
        size = {"widths": [2], "horizons": [50], "balls": ["recurrent"], "memory": False}
        first = (place << 64) + 100 * (name == "other")
        write_study(tmp_path / name, THEORY[:2], first_identity=first, **size)  # type: ignore[arg-type]
    folders = {name: tmp_path / name for name in ("mine", "measured", "other")}
    table = [(row.study, row.same_weights, row.log_difference is None) for row in compare(folders).losses]
    assert table == [("mine", False, True), ("measured", True, True), ("other", False, False)] * 2
    said = report.compare(folders).answers
    assert "A and B have the same trained weights: losses are not compared." in said
    assert not any("C have" in sentence for sentence in said)
    assert comparison_text(report.compare(folders), width=100).count("same weights") == 2


def test_studies_share_weights_only_in_the_same_conditions(tmp_path: Path) -> None:
    """B has the weights of A in the first condition, and C in the second one."""
    size = {"widths": [2], "horizons": [50], "balls": ["recurrent"], "memory": False}
    one, two = THEORY[:2]
    firsts = {"a": 0, "b": (1 << 64) - 1, "c": (2 << 64) + 1}
    for name, first in firsts.items():
        (tmp_path / name).mkdir()
        conditions = [one, two] if name == "a" else [two, one]
        write_study(tmp_path / name, conditions, first_identity=first, **size)  # type: ignore[arg-type]
    said = report.compare({name: tmp_path / name for name in firsts}).answers
    assert [each for each in said if "same trained weights" in each] == [
        f"A and {name} have the same trained weights in 1 of 2 conditions: losses are not compared there."
        for name in ("B", "C")
    ]


def test_a_field_that_each_study_has_throughout_is_a_setting_and_another_task_another_condition(tmp_path: Path) -> None:
    studies = {"a": THEORY[1], "b": replace(THEORY[1], model="lru"), "c": replace(THEORY[0])}
    for place, (name, condition) in enumerate(studies.items()):
        (tmp_path / name).mkdir()
        size = {"widths": [2], "horizons": [50], "balls": ["recurrent"], "memory": False}
        write_study(tmp_path / name, [condition], first_identity=100 * place, **size)  # type: ignore[arg-type]
    compared = compare({name: tmp_path / name for name in studies})
    assert [row.studies for row in compared.losses] == [("a", "b"), ("a", "b"), ("c",)]
    assert {each["model"] for each in compared.conditions()} == {EACH}
    assert {"model": {"a": ("diagonal_rnn",), "b": ("lru",), "c": ("diagonal_rnn",)}}.items() <= {
        each.path: each.values for each in compared.settings
    }.items()


def _verdicts(contents: Contents) -> dict[tuple[str, str], str]:
    return {contents.labels.names(each.condition): each.judgement.verdict.value for each in contents.verdicts}


def test_other_criteria_judge_the_stored_results_again(stored: dict[str, Path]) -> None:
    place = ("polynomial", "direct")
    own = report.judge(stored["second"])
    assert _verdicts(own)[place] == "unstable"
    lenient = report.judge(stored["second"], Criteria(thresholds=(0.1, 0.02), slope_limit=-0.3))
    assert _verdicts(lenient)[place] == "stable"
    assert list(lenient.findings[0].judgement.by_threshold) == [0.02, 0.1]
    assert set(lenient.findings[0].radii["threshold"]) == {0.02, 0.1}
    with pytest.raises(MemsweepError, match="by one rule"):
        report.compare({"own": own, "lenient": lenient})


def test_all_wrong_criteria_are_refused_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Criteria(thresholds=(0.001, 2.0), slope_limit=0.2)
    assert len(caught.value.problems) == 3
    assert all(word in str(caught.value) for word in ("0.001", "above 0.005 and at most 1", "got 2", "got 0.2"))
