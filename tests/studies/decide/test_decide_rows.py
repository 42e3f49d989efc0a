"""The trials that an option of ``memsweep decide`` adds to a condition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.studies.by_hand import STUDY
from memsweep.config.load.study import load_study
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import MemsweepError
from memsweep.report.analysis.contents import Finding
from memsweep.report.naming.conditions import find_grouping, planned_replicas
from memsweep.stability.evaluation import SEEDS_OF
from memsweep.studies.decide.options import Option
from memsweep.studies.decide.question import Design, Question
from memsweep.studies.decide.reading import Subject
from memsweep.studies.decide.rows import Cells
from memsweep.studies.extension import extend_grid
from memsweep.sweep.planning.plan import identified


def test_a_field_that_is_the_width_throughout_goes_with_it() -> None:
    """An LSTM in a stack answers with its states: features of another number would fail at every new width."""
    rows = [
        row
        for row in load_study("states_stability").rows
        if row.task.name == "parity" and row.perturbation.reference == "metric"
    ]
    cells = cells_of(replace(load_study("states_stability"), rows=tuple(rows)))
    assert cells.possible(24, 32)
    addition = cells.addition(cast(Question, None), Option(Design(5, (24,), (32,), 24), ()))
    assert addition is not None
    assert {(cast(Any, row.model).width, cast(Any, row.model).features) for row in addition.added} == {(24, 24)}


def small(folder: Path, *words: str) -> SweepConfig:
    (folder / "small.yaml").write_text(STUDY)
    return load_study(str(folder / "small.yaml"), words, folder)


def cells_of(study: SweepConfig) -> Cells:
    trials = {str(place): row for place, row in enumerate(study.rows)}
    sizes = {name: (cast(Any, row.model).width, cast(Any, row.task).horizon) for name, row in trials.items()}
    return Cells(Subject("", "", cast(Finding, None), trials, sizes))


def seeds_of(config: TrialConfig) -> range:
    return range(config.training.first_seed, config.training.first_seed + config.training.seeds)


@pytest.mark.parametrize("first", [0, 5, 100])
def test_the_search_is_checked_on_the_first_seeds_of_a_size_alone(tmp_path: Path, first: int) -> None:
    """A stronger search costs several times the usual one; the seeds that join others have none."""
    study = small(tmp_path, f"training.first_seed={first}")
    assert {row.perturbation.stronger_every for row in study.rows} == {5}
    cells = cells_of(study)
    addition = cells.addition(cast(Question, None), Option(Design(40, (2, 4, 7), (8, 16, 32), 4), ()))
    assert addition is not None
    new = [config for config in addition.added if cast(Any, config.model).width == 7]
    assert {seed for config in new for seed in seeds_of(config)} == {*range(first, first + 40)}
    checked = [
        (config in new, seed)
        for config in addition.added
        for seed in seeds_of(config)
        if seed % config.perturbation.stronger_every < SEEDS_OF
    ]
    assert {*checked} == {(True, first + seed) for seed in range(SEEDS_OF)}


def test_extend_gives_the_seeds_of_rounds_to_every_size_once(tmp_path: Path) -> None:
    """Added seeds are checked by another ``stronger_every`` than those of the study's file."""
    study = small(tmp_path)
    addition = cells_of(study).addition(cast(Question, None), Option(Design(11, (2, 4, 7), (8, 16, 32), 4), ()))
    assert addition is not None
    assert len({row.perturbation.stronger_every for row in (*study.rows, *addition.added)}) > 1
    grown = replace(study, rows=(*study.rows, *addition.added))
    found = extend_grid(grown, small(tmp_path, "training.seeds=20"), addition.added).rows
    planned = Counter(
        (cast(Any, row.model).width, cast(Any, row.task).horizon, seed) for row in found for seed in seeds_of(row)
    )
    assert {*planned.values()} == {1}
    cells = {(width, horizon) for width, horizon, _ in planned}
    assert {*planned} == {(*cell, seed) for cell in cells for seed in range(20)}
    assert len(cells) > len(study.rows)
    configs = {trial.identity: to_dict(trial.config) for trial in identified(replace(study, rows=found))}
    grouping = find_grouping({name: {"config": one} for name, one in configs.items()}, planned_replicas(configs))
    assert len([*grouping.members()]) == 1


def test_other_checks_of_the_search_are_conditions_whose_seeds_are_pooled(tmp_path: Path) -> None:
    study = small(tmp_path, "perturbation.stronger_every=0,5")
    more = [replace(row, training=replace(row.training, first_seed=3)) for row in study.rows]
    rows = identified(replace(study, rows=(*study.rows, *more)))
    configs = {trial.identity: to_dict(trial.config) for trial in rows}
    grouping = find_grouping({name: {"config": one} for name, one in configs.items()}, planned_replicas(configs))
    assert [condition["perturbation.stronger_every"] for condition, _ in grouping.members()] == [0, 5]
    with pytest.raises(MemsweepError, match=r"stronger_every\) are no further trials: sweep the study by another name"):
        extend_grid(small(tmp_path), small(tmp_path, "perturbation.stronger_every=1"))
