"""The trials that an option of ``memsweep decide`` adds to a condition."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from benchmarks.studies.by_hand import STUDY
from memsweep.config.load.study import load_study
from memsweep.report.analysis.contents import Finding
from memsweep.stability.evaluation import SEEDS_OF
from memsweep.studies.decide.options import Option
from memsweep.studies.decide.question import Design, Question
from memsweep.studies.decide.reading import Subject
from memsweep.studies.decide.rows import Cells


def test_a_field_that_is_the_width_throughout_goes_with_it() -> None:
    """An LSTM in a stack answers with its states: features of another number would fail at every new width."""
    rows = [row for row in load_study("states_stability").rows if row.task.name == "parity"]
    trials = {str(place): row for place, row in enumerate(rows) if row.perturbation.reference == "metric"}
    sizes = {name: (cast(Any, row.model).width, cast(Any, row.task).horizon) for name, row in trials.items()}
    cells = Cells(Subject("", "", cast(Finding, None), trials, sizes))
    assert cells.possible(24, 32)
    addition = cells.addition(cast(Question, None), Option(Design(5, (24,), (32,), 24), ()))
    assert addition is not None
    assert {(cast(Any, row.model).width, cast(Any, row.model).features) for row in addition.added} == {(24, 24)}


def test_the_search_is_checked_on_the_first_seeds_of_a_size_alone(tmp_path: Path) -> None:
    """A stronger search costs several times the usual one; the seeds that join others have none."""
    (tmp_path / "small.yaml").write_text(STUDY)
    rows = load_study(str(tmp_path / "small.yaml"), (), tmp_path).rows
    assert {row.perturbation.stronger_every for row in rows} == {5}
    trials = {str(place): row for place, row in enumerate(rows)}
    sizes = {name: (cast(Any, row.model).width, cast(Any, row.task).horizon) for name, row in trials.items()}
    cells = Cells(Subject("", "", cast(Finding, None), trials, sizes))
    (widths, horizons), seeds = zip(*sizes.values(), strict=True), rows[0].training.seeds
    design = Design(seeds + 8, tuple(sorted({*widths, 7})), tuple(sorted({*horizons})), max(widths))
    addition = cells.addition(cast(Question, None), Option(design, ()))
    assert addition is not None
    checked = {
        (config.model.width == 7, config.training.first_seed + seed)  # type: ignore[attr-defined]
        for config in addition.added
        for seed in range(config.training.seeds)
        if (config.training.first_seed + seed) % config.perturbation.stronger_every < SEEDS_OF
    }
    assert checked == {(True, seed) for seed in range(SEEDS_OF)}
