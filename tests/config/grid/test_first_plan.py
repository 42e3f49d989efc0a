"""A study that is to be decided may leave out its sizes: they are found, and what it says stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from memsweep import registry
from memsweep.cli import main
from memsweep.config.core.fields import setting
from memsweep.config.grid.first_plan import TOP, WIDTHS
from memsweep.config.grid.time_scale import USABLE_SCALES, time_scale
from memsweep.config.load.study import load_study
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.api import LinearFunctionalTask
from memsweep.errors import ConfigError
from memsweep.report.naming.conditions import find_grouping, planned_replicas
from memsweep.stability.verdict.judgement import SMALLEST_GRID, SMALLEST_SEEDS
from memsweep.studies.decide.first_round import SHARE, first_round, first_rounds, seconds_of
from memsweep.studies.extension import not_covered
from memsweep.sweep.driver.launch import Limits
from memsweep.sweep.planning.plan import identified
from paths import ROOT

registry.discover(ROOT)
LEAST = """
# Is this memory held stably?
name: least
task: {name: linear_functional, kernel: polynomial, rate: 0.6}
model: {name: diagonal_rnn}
decide: {max_core_hours: 0.5}
"""


def study(folder: Path, *words: str, text: str = LEAST) -> SweepConfig:
    (folder / "least.yaml").write_text(text)
    return load_study(str(folder / "least.yaml"), words, folder)


def cell_of(row: TrialConfig) -> tuple[int, int]:
    sized = cast(Any, row)
    return sized.task.horizon, sized.model.width


def cells(found: SweepConfig) -> list[tuple[int, int]]:
    return sorted(map(cell_of, found.rows))


def test_a_study_without_sizes_gets_the_cells_that_the_rule_needs(tmp_path: Path) -> None:
    found = study(tmp_path)
    horizons, widths = ({cell[place] for cell in cells(found)} for place in (0, 1))
    assert len(cells(found)) == len(horizons) + len(widths) - 1
    assert cells(found) == sorted(
        {*((horizon, TOP) for horizon in horizons), *((max(horizons), width) for width in widths)}
    )
    assert widths == {*WIDTHS}
    assert min(len(horizons), len(widths)) >= SMALLEST_GRID
    task = registry.get(registry.TASK, "linear_functional")(found.rows[0].task)
    longest = registry.get(registry.TASK, "linear_functional")(max(found.rows, key=lambda row: row.task.horizon).task)
    assert task.horizon in horizons
    assert min(horizons) >= USABLE_SCALES * (time_scale(longest.kernel().numpy()) or 0.0)
    first = found.rows[0]
    assert first.training.seeds >= SMALLEST_SEEDS
    assert (first.perturbation.radii.from_, first.perturbation.radii.to, first.perturbation.radii.count) == (0.01, 3, 8)
    assert (first.perturbation.starts, first.perturbation.ascent_steps) == (0, 2)
    assert found.decide.max_core_hours == 0.5


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("model.width=3,2",), [(6, 3), (12, 3), (24, 3), (48, 2), (48, 3)]),
        (("task.horizon=9,18", "model.width=2,3"), [(9, 2), (9, 3), (18, 2), (18, 3)]),
        (("task.horizon=9,18",), [(9, 16), (18, 4), (18, 8), (18, 16), (18, 32)]),
        (("task.horizon=24",), [(24, width) for width in WIDTHS]),
        (("grid.rows=[{task: {horizon: 9}, model: {width: 2}}]",), [(9, 2)]),
        (("task.horizon=9", "model.width=2", "training.seeds=3"), [(9, 2)]),
    ],
)
def test_what_is_said_stays(tmp_path: Path, words: tuple[str, ...], expected: list[tuple[int, int]]) -> None:
    found = study(tmp_path, *words)
    assert cells(found) == expected
    assert {row.training.seeds for row in found.rows} == {3 if "training.seeds=3" in words else 5}


@pytest.mark.parametrize("every", ["", "perturbation.stronger_every=4"])
def test_the_search_is_checked_at_the_ends_of_both_axes(tmp_path: Path, every: str) -> None:
    found = study(tmp_path, *filter(None, [every]))
    checked = {cell_of(row) for row in found.rows if row.perturbation.stronger_every}
    along, across = (sorted({cell[place] for cell in cells(found)}) for place in (0, 1))
    ends = {(along[0], TOP), (along[-1], TOP), (along[-1], across[0]), (along[-1], across[-1])}
    assert checked == ({*cells(found)} if every else ends)
    configs = {trial.identity: {"config": to_dict(trial.config)} for trial in identified(found)}
    grouping = find_grouping(configs, planned_replicas({name: each["config"] for name, each in configs.items()}))
    assert len([*grouping.members()]) == 1  # a size without a check is no condition of its own
    before = [replace(row, perturbation=replace(row.perturbation, stronger_every=5)) for row in found.rows]
    assert not not_covered(before, found.rows)  # what was stored with every search checked is the whole plan


@pytest.mark.parametrize("words", ["model.width=8,16,32", "task.horizon=12,24,48", "perturbation.stronger_every=4"])
def test_a_size_that_becomes_an_end_of_an_axis_is_no_second_trial_of_its_seeds(tmp_path: Path, words: str) -> None:
    stored = study(tmp_path)
    added = not_covered(stored.rows, study(tmp_path, words).rows)
    rows = [(*cell_of(row), seed) for row in (*stored.rows, *added) for seed in range(row.training.seeds)]
    assert len({*rows}) == len(rows)


@pytest.mark.parametrize("wrong", ["perturbation: 3", "perturbation: {radii: [0.1, 1]}", "training: [5]"])
def test_what_is_wrong_is_told_and_not_replaced(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match="must be a mapping"):
        study(tmp_path, text=f"{LEAST}{wrong}\n")


def test_what_a_word_takes_away_is_left_out(tmp_path: Path) -> None:
    assert cells(study(tmp_path, "~task.horizon", text=LEAST.replace("0.6}", "0.6, horizon: 9}"))) == cells(
        study(tmp_path)
    )


def test_settings_of_the_file_and_of_its_protocol_stay(tmp_path: Path) -> None:
    own = f"{LEAST}training: {{seeds: 7}}\nperturbation: {{radii: {{to: 5}}, starts: 1}}\n"
    first = study(tmp_path, text=own).rows[0]
    assert (first.training.seeds, first.perturbation.starts, first.perturbation.ascent_steps) == (7, 1, 2)
    assert (first.perturbation.radii.from_, first.perturbation.radii.to) == (0.01, 5)
    assert {row.training.seeds for row in study(tmp_path, "protocol=published", "training.steps=2").rows} == {1}
    plain = [trial.identity for trial in identified(study(tmp_path, "~decide"))]
    assert len(plain) == 1  # without decide, nothing is found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("~task.rate", "task.kernel=exponential,polynomial"), r"task\.horizon: .*several \(task\.kernel\): name the"),
        (("grid.rows=[{model: {width: 4}}, {task: {kernel: exponential}}]",), r"task\.horizon: .*several \(rows\)"),
        (("~task.kernel", "~task.rate", "task=mqar"), r"task\.horizon: .*mqar has no memory: name the horizons"),
    ],
)
def test_what_has_no_time_scale_is_refused_in_words(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        study(tmp_path, *words)


KERNELS: dict[str, Callable[[int], Any]] = {
    "a table with an end": lambda steps: torch.exp(-torch.arange(steps) / 20.0).where(torch.arange(steps) < 1000, nan),
    "growing": lambda steps: torch.exp(torch.arange(steps) / 3.0),
    "zero": torch.zeros,
    "a list": lambda steps: [1.0] * steps,
    "an array": np.ones,
    "too short": lambda steps: torch.ones(steps - 1),
    "complex": lambda steps: torch.ones(steps, dtype=torch.complex128),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_memory_of_which_no_time_scale_is_known_needs_its_horizons(name: str, tmp_path: Path) -> None:
    class Own(LinearFunctionalTask):
        @dataclass(frozen=True, kw_only=True)
        class Config:
            horizon: int = setting(16, "steps", at_least=1)

        @property
        def horizon(self) -> int:
            return int(cast(Any, self.config).horizon)

        def kernel(self) -> Any:
            return KERNELS[name](self.horizon)

    with registry.lent(registry.TASK, "own_kernel", Own), pytest.raises(ConfigError) as caught:
        study(tmp_path, "~task.kernel", "~task.rate", "task=own_kernel")
    told = [problem for problem in caught.value.problems if problem.startswith("task.horizon")]
    assert len(told) == 1
    assert "no finite number at each of 4,096 lags: name the horizons" in told[0]
    assert not [problem for problem in caught.value.problems if problem.startswith("model.width")]


def test_smaller_plans_are_parts_of_the_whole_one_and_cost_less(tmp_path: Path) -> None:
    plans = [*first_rounds(study(tmp_path, "model=vanilla_rnn"))]
    sizes = [({h for h, _ in cells(plan)}, {w for _, w in cells(plan)}, plan.rows[0].training.seeds) for plan in plans]
    assert [(len(horizons), len(widths), seeds) for horizons, widths, seeds in sizes] == [
        (4, 4, 5),
        (4, 4, 3),
        (3, 3, 3),
        (2, 3, 3),
    ]
    for (horizons, widths, _), (fewer, narrower, _) in pairwise(sizes):
        assert fewer == {*sorted(horizons)[: len(fewer)]}
        assert narrower <= widths
        assert {TOP, max(widths)} <= narrower
    costs = [seconds_of(plan) for plan in plans]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.25 * costs[0]
    assert [*first_rounds(study(tmp_path, "task.horizon=9", "model.width=2", "training.seeds=3"))][1:] == []
    assert {len(plan.rows) for plan in first_rounds(study(tmp_path, "model.width=2", "training.seeds=3"))} == {4, 3, 2}


def test_the_largest_plan_that_a_share_of_the_limit_pays_for_comes_first(tmp_path: Path) -> None:
    plans = [*first_rounds(study(tmp_path, "model=vanilla_rnn"))]
    hours = [seconds_of(plan) / SHARE / 3600.0 for plan in plans]
    assert first_round(plans[0], Limits(trials=1)) == (plans[0], "")
    assert first_round(plans[0], Limits(core_hours=1.001 * hours[0])) == (plans[0], "")
    for place in (1, 2, 3):
        limit = (hours[place] + hours[place - 1]) / 2
        for limits in (Limits(core_hours=limit), Limits(hours=limit), Limits(hours=limit, core_hours=100.0)):
            chosen, why = first_round(plans[0], limits)
            assert chosen.rows == plans[place].rows
            assert why.startswith("fewer sizes or seeds, because the whole first plan (7 trials, about ")
    least, why = first_round(plans[0], Limits(core_hours=0.5 * hours[-1]))
    assert least.rows == plans[-1].rows
    assert why.endswith("and so do these")
    said = study(tmp_path, "task.horizon=9", "model.width=2", "training.seeds=3")
    assert first_round(said, Limits(core_hours=1e-9)) == (said, "")


def test_the_first_round_and_the_range_of_the_rest_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "least.yaml").write_text(LEAST)
    assert main(["decide", "least.yaml", "--plan", "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["next_round"]
    first = "its own plan, 7 trials; then by the results nothing, or at most 10 rounds a question: about "
    assert step["does"].startswith(first)
    assert step["does"].endswith(
        "more for 200 seeds of all these trials, and what longer horizons, larger widths and repairs (finer radii, a "
        "stronger search, twice the training) cost"
    )
    assert step["core_seconds"] > 0
    assert main(["decide", "least.yaml", "--max-core-hours", "1e-3", "--plan", "--json"]) == 0
    (less,) = json.loads(capsys.readouterr().out)["next_round"]
    assert less["does"].startswith(
        "its own plan, 4 trials (the fewest sizes and seeds, because the whole first plan (7 trials, about "
    )
    assert less["core_seconds"] < step["core_seconds"]
    assert [path.name for path in tmp_path.iterdir()] == ["least.yaml"]
