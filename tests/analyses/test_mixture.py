"""Stacks of layers of two kinds: the chart of their accuracy has each share and place, and nothing else has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from memsweep.analyses.mixture.section import section
from memsweep.report.analysis.contents import judge
from memsweep.report.values.section import Section
from report_study import Condition, write_study

STACKS: Mapping[tuple[str, ...], float] = {
    ("gru",): 0.2,
    ("gru", "gru", "gru", "attention"): 0.7,
    ("attention", "gru", "gru", "gru"): 0.8,
    ("gru", "attention"): 0.9,
    ("attention",): 0.5,
}
"""Units, repeated to four layers -> accuracy of the first seed; the second has 0.02 less."""


def made(
    folder: Path,
    stacks: Mapping[tuple[str, ...], float],
    tasks: Sequence[str] = ("mqar",),
    rates: Sequence[float] = (0.01,),
    seeds: int = 2,
    **more: Any,
) -> Section:
    """The section of a study with these stored results."""

    def condition(task: str, rate: float, units: tuple[str, ...], accuracy: float) -> Condition:
        fields: dict[str, Any] = {"layers": 4, "unit": {"name": "lru"}, "units": [{"name": name} for name in units]}
        named = {"kernel": None, "parameterization": None, "activation": None, "normalize": None}
        how = {"task": task, "model": "residual_stack", "metric": "accuracy", "model_fields": fields}
        how |= {"training": {"learning_rate": rate}, **more}
        return Condition(values=[accuracy - 0.02 * seed for seed in range(seeds)], **named, **how)

    conditions = [condition(task, rate, *stack) for task in tasks for rate in rates for stack in stacks.items()]
    write_study(folder, conditions, widths=(4,), horizons=(8,), seeds=seeds, balls=(), memory=False)
    return section(judge(folder))


def test_each_share_and_place_is_a_point(tmp_path: Path) -> None:
    (chart,) = made(tmp_path, STACKS).charts
    assert (chart["x"], chart["y"]) == ("layers of attention (%)", "accuracy (%)")
    lines = {name: {point[0]: point[1:4] for point in points} for name, points in chart["lines"]}
    first, behind = lines["attention in the first layer"], lines["attention behind others"]
    assert [*first] == [0, 25, 100]
    assert [*behind] == [0, 25, 50, 100]
    assert first[25] == pytest.approx([79, 78, 80])  # median, worst and best seed
    assert behind[25] == pytest.approx([69, 68, 70])
    assert first[0] == behind[0] == pytest.approx([19, 18, 20])
    words = [point[5] for _, points in chart["lines"] for point in points]
    assert "1 of 4 layers, 79" in words


def test_each_task_has_a_chart(tmp_path: Path) -> None:
    assert len(made(tmp_path, STACKS, ("mqar", "parity_recall")).charts) == 2


def test_what_differs_in_more_than_its_units_is_joined_by_no_line(tmp_path: Path) -> None:
    charts = made(tmp_path, STACKS, rates=(0.1, 0.01)).charts
    assert [chart["title"] for chart in charts] == ["mqar · learning_rate 0.1", "mqar · learning_rate 0.01"]
    for chart in charts:
        assert [[point[0] for point in points] for _, points in chart["lines"]] == [[0, 25, 100], [0, 25, 50, 100]]


def test_seeds_that_diverged_are_told(tmp_path: Path) -> None:
    (chart,) = made(tmp_path / "one", STACKS, seeds=3, diverged=1).charts
    assert "3 × gru, attention: 1 of 3" in chart["note"]
    (whole,) = made(tmp_path / "none", STACKS).charts
    assert not whole.get("note")
    assert not made(tmp_path / "all", STACKS, seeds=3, diverged=3).is_shown


def test_of_two_kinds_of_as_many_layers_the_first_by_name_is_drawn(tmp_path: Path) -> None:
    stacks = {("gru",): 0.2, ("gru", "attention"): 0.9, ("attention",): 0.5}
    for place, order in enumerate(([*stacks], [*reversed(stacks)])):
        (chart,) = made(tmp_path / str(place), {units: stacks[units] for units in order}).charts
        assert chart["x"] == "layers of attention (%)"


@pytest.mark.parametrize(
    "units",
    [
        [("gru",), ("attention",), ("gru", "gru")],  # no stack has both
        [("gru",), ("gru", "attention")],  # two shares
        [("gru",), ("gru", "attention"), ("gru", "lru"), ("attention",)],  # three kinds
    ],
)
def test_what_has_no_share_has_no_chart(tmp_path: Path, units: list[tuple[str, ...]]) -> None:
    assert not made(tmp_path, dict.fromkeys(units, 0.5)).is_shown
