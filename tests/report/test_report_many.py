"""Studies of very many conditions stay readable: grouped by model and activation, nothing wrapped, nothing dropped."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from memsweep import registry, report
from memsweep.report.analysis.bounds import EXPLANATIONS
from memsweep.report.analysis.contents import Contents, Finding, judge_conditions
from memsweep.report.charts.curves import error_charts, trial_charts
from memsweep.report.naming.conditions import Grouping, Labels, find_grouping
from memsweep.report.read.study import Study, load_study
from memsweep.report.rows.report import tables_of
from memsweep.report.rows.verdicts import radii_table, reasons, short_verdict_cell, verdict_table
from memsweep.report.terminal import report_text
from memsweep.stability.verdict.judgement import Judgement, Lack, Missing, Trends, Verdict
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.stability.verdict.trend import Slope, Trend
from memsweep.sweep.store.tables import names as table_names
from memsweep.sweep.store.tables import schema
from paths import ROOT
from report_study import Condition, exported, gallery, write_study

MEASURED = pd.DataFrame(product((2, 3, 5, 8), (50, 100, 200, 400), range(5)), columns=["width", "horizon", "seed"])
MEASURED = MEASURED.assign(valid=True, how="found", reading="drift", threshold=0.01, radius=0.1)
MEASURED = MEASURED.assign(radius_low=0.1, radius_high=0.1)
SLOPES = {"unstable": (-0.59, -0.66, -0.55), "stable": (-0.01, -0.02, 0.0), "inconclusive": (float("nan"),) * 3}


def terminal(conditions: list[Condition], balls: tuple[str, ...], width: int) -> str:
    """The verdicts on a terminal: ``direct`` is unstable, models without parameterization unclear."""
    findings = [_finding(condition, ball) for ball in balls for condition in conditions]
    names = tuple(findings[0].condition)
    tables = {name: schema(name).empty_table().to_pandas() for name in table_names()}
    study = Study("", "", 0, {}, tables, (), 0, None, "")
    grouping = Grouping({}, names, (), {})
    labels = Labels([finding.condition for finding in findings])
    known = {"study": study, "measured": study, "searched": None, "grouping": grouping, "labels": labels}
    known |= {"findings": findings}
    others = {field.name for field in fields(Contents)} - {*known, "criteria"}
    contents = Contents(**known, **dict.fromkeys(others, ()))
    return report_text(contents, tables_of(contents), width=width, colour=False)


def _trend(limit: Slope) -> Trend:
    return Trend((), (), limit, limit, outside=False)


def _finding(one: Condition, ball: str) -> Finding:
    verdict = Verdict({"direct": "unstable", None: "inconclusive"}.get(one.parameterization, "stable"))
    slope, parameterization = Slope(*SLOPES[verdict]), {"model.parameterization": one.parameterization}
    condition = {"task": one.task, "task.kernel": one.kernel, "model": one.model, "model.activation": one.activation}
    curves = schema("curves").empty_table().to_pandas()
    by_threshold = dict.fromkeys(THRESHOLDS, Trends(horizon=_trend(slope), width=_trend(slope)))
    judged = Judgement(
        verdict, 0.01, None, slope, 0.1, 1.0, False, ("seeds: 1",), (), by_threshold, lacks=(Lack(Missing.SEEDS, 1, 5),)
    )
    return Finding(
        {**condition, **parameterization},
        ball,
        judged,
        MEASURED,
        curves,
        curves,
        lambda: curves,
        {"model": {"name": one.model}},
    )


@pytest.mark.parametrize("width", [80, 110, 120, 200])
def test_a_terminal_shows_sixty_conditions_by_family_without_wrapping(width: int) -> None:
    text = terminal(gallery(), ("recurrent", "weights", "all"), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert text.count("▲") == 3 * 14 + 1  # every verdict and the key
    assert text.count("◇") == 3 * 4 + 1
    assert text.count("●") == 3 * 42 + 1
    assert len(re.findall(r"▲ T −0\.59 \[−0\.66, −0\.55\]" if width >= 110 else r"▲ T −0\.59 ", text)) == 3 * 14
    assert sum(line.rstrip() == "diagonal_rnn · tanh" for line in lines) == 3
    assert sum(line.startswith("vanilla_rnn · tanh ") for line in lines) == 3  # alone: its own line, no heading
    assert sum(line.startswith("  best(a=1.0, b=0.5) ") for line in lines) == 3 * 7
    assert len(lines) < 160


def test_a_list_that_would_be_cut_becomes_a_grid() -> None:
    few = [Condition(parameterization=name) for name in ("direct", "exp", "softplus")]
    wide, narrow = (terminal(few, ("recurrent",), w) for w in (110, 70))
    assert "slope in horizon" in wide
    assert re.search(r"direct +▲ unstable ", wide)
    assert "slope in horizon" not in narrow
    assert "direct    ▲ T −0.59 [−0.66, −0.55]" in narrow
    assert "…" not in narrow


def test_a_terminal_shows_more_memories_than_it_has_room_for_in_signs() -> None:
    many = [Condition(kernel=f"kernel {index:02d}", parameterization=p) for index in range(10) for p in ("direct", "x")]
    text = terminal(many, ("recurrent",), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("▲") == 10 + 1


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """Fourteen machines, with one small cell each: too little for verdicts, enough for an overview."""
    folder = tmp_path_factory.mktemp("many")
    kept = ("direct", "best(a=1.0, b=0.5)", None)
    some = [c for c in gallery() if c.kernel == "polynomial" and c.parameterization in kept]
    some = [c for c in some if c.activation in ("linear", "tanh", None) or c.model == "vanilla_rnn"]
    write_study(folder, some, balls=["recurrent"], widths=[2], horizons=[50], seeds=1, memory=False)
    return report.build(folder)


@pytest.mark.more
def test_a_page_gives_an_overview_by_family_before_the_reasons(paths: report.ReportPaths) -> None:
    page = paths.page.read_text()
    overview = page[page.index('class="grid"') : page.index('id="verdicts"')]
    assert overview.count('class="family"') == 6  # models with activations; the vanilla RNNs stand alone
    assert overview.count('class="verdict inconclusive"') == len(exported(paths, "verdicts")) == 14
    assert '<th scope="row">vanilla_rnn · tanh</th>' in overview
    lacks = "1 seed: a verdict needs 5; 1 horizon: a slope in the horizon needs 4; 1 width: stable needs 4"
    assert f"polynomial memory is undecided under all 14 settings ({lacks})." in page
    assert "†: the search fell short" not in page
    assert overview.count("◇ inconclusive<") == 14


@pytest.mark.more
def test_a_verdict_says_what_the_search_missed_and_what_that_could_change(tmp_path: Path) -> None:
    """The share that it found falls with the horizon, and with it the true radius does."""
    conditions = [
        Condition(parameterization="direct"),
        Condition(parameterization="exp", found=1.0),
        Condition(parameterization="softplus", found=0.9),
        Condition(parameterization="sigmoid", found=0.9, found_slope=-1.2),
    ]
    write_study(tmp_path, conditions, balls=["recurrent"], memory=False)
    study = load_study(tmp_path)
    findings = judge_conditions(study, find_grouping(study.records, study.tables["replicas"]))
    by_name = {finding.condition["model.parameterization"]: finding for finding in findings}
    assert {finding.judgement.verdict for finding in findings} == {Verdict.STABLE}
    assert {name: finding.otherwise for name, finding in by_name.items()} == {
        "direct": None, "exp": None, "softplus": None, "sigmoid": Verdict.UNSTABLE,
    }  # fmt: skip
    said = {name: reasons(finding, study) for name, finding in by_name.items()}
    assert "of the largest change" not in said["direct"]
    assert "had found at least 100 % of the largest change" in said["exp"]
    assert "had found at least 90 % of the largest change" in said["softplus"]
    assert "the verdict would be" not in said["softplus"]
    assert said["sigmoid"].endswith("if every error were as short of the worst, the verdict would be unstable")


READ = {
    "drift": ("√(drift / L₀)", None),
    "excess": ("√((E(β) − E(0)) / L₀)", "the growth of the error, not from the drift"),
    "error": ("√(E(β) / L₀)", "the error, that of the fit included, not from the drift"),
}
"""Reading of stored curves -> name of a chart's axis, and words of the reasons."""


def test_what_radii_are_read_from_is_said_by_the_reasons_the_table_and_the_axis(tmp_path: Path) -> None:
    registry.discover(ROOT)

    def read(index: int, tables: dict[str, pd.DataFrame]) -> None:
        tables["curves"] = tables["curves"].assign(reading=[*READ][index])

    some = [Condition(parameterization=name) for name in ("direct", "exp", "softplus")]
    shape = {"balls": ["recurrent"], "widths": [2], "horizons": [50], "seeds": 1, "memory": False}
    identities = write_study(tmp_path, some, **shape, complete=read)
    study = load_study(tmp_path)
    grouping = find_grouping(study.records, study.tables["replicas"])
    findings = judge_conditions(study, grouping)
    labels = Labels([finding.condition for finding in findings])
    table = radii_table(findings).groupby("identity")["reading"].unique()
    for finding, chart, identity, (name, (axis, words)) in zip(
        findings, error_charts(findings, labels), identities, READ.items(), strict=True
    ):
        assert chart["y"] == axis
        assert [*table[identity]] == [name]
        assert [part for part in reasons(finding).split("; ") if "read from" in part] == (
            [f"radii: read from {words}"] if words else []
        )
        (of_trial,) = [chart for chart in trial_charts(study, identity) if chart["x"] == "perturbation radius β"]
        assert (of_trial["y"], of_trial["title"]) == (axis, f"{name} when the recurrent weights move")


def test_lower_bounds_are_marked_with_their_kind(tmp_path: Path) -> None:
    registry.discover(ROOT)
    conditions = [
        Condition(parameterization="direct", exact=True),
        Condition(parameterization="exp", exact=False),
        Condition(parameterization="softplus", exact=True, method="random_push"),
        Condition(model="unknown to this machine", exact=True),
    ]
    write_study(tmp_path, conditions, widths=[2], horizons=[50], seeds=1, memory=False)
    study = load_study(tmp_path)
    grouping = find_grouping(study.records, study.tables["replicas"])
    findings = judge_conditions(study, grouping)
    table = verdict_table(findings, grouping.columns, Labels([f.condition for f in findings]), study).frame()
    table = table.set_index(["ball", "model", "task.kernel", "model.parameterization"])["reasons"]
    said = {key: [kind for kind, words in EXPLANATIONS.items() if words in text] for key, text in table.items()}
    diagonal, other = ("diagonal_rnn", "polynomial"), ("unknown to this machine", "polynomial")
    assert said == {
        ("recurrent", *diagonal, "direct"): ["searched"],
        ("recurrent", *diagonal, "exp"): ["sampled"],
        ("recurrent", *diagonal, "softplus"): ["random draws"],
        ("recurrent", *other, "direct"): ["searched"],
        ("all", *diagonal, "direct"): ["searched"],
        ("all", *diagonal, "exp"): ["sampled"],
        ("all", *diagonal, "softplus"): ["random draws"],
        ("all", *other, "direct"): ["searched"],
    }


def test_terminal_and_page_name_the_same_slope_as_the_deciding_one(tmp_path: Path) -> None:
    """Unstable along the width, and not along the horizon."""
    registry.discover(ROOT)
    write_study(tmp_path, [Condition()], widths=[2], horizons=[50], seeds=1, balls=["recurrent"], memory=False)
    study = load_study(tmp_path)
    (found,) = judge_conditions(study, find_grouping(study.records, study.tables["replicas"]))
    width, flat = Slope(-0.4, -0.5, -0.3), Slope(0.0, -0.1, 0.1)
    judgement = replace(
        found.judgement,
        verdict=Verdict.UNSTABLE,
        threshold=THRESHOLDS[0],
        by_threshold={threshold: Trends(horizon=_trend(flat), width=_trend(width)) for threshold in THRESHOLDS},
    )
    finding = replace(found, judgement=judgement)
    shown = short_verdict_cell(finding)
    assert (shown.text, *shown.shorter) == ("▲ m −0.40 [−0.50, −0.30]", "▲ m −0.40", "▲")


def test_labels_say_what_tells_conditions_apart_and_nothing_else() -> None:
    columns = ("task", "task.kernel", "task.rate", "task.exponent", "model", "model.activation")
    columns += ("model.parameterization", "model.normalize")
    rows = [
        ("t", "k", 1.0, None, "rnn", "tanh", "exp", False, "euler"),
        ("t", "k", 1.0, None, "rnn", "tanh", "direct", False, "euler"),
        ("t", "k", 1.0, None, "vanilla", "tanh", None, None, None),
        ("t", "k", 1.0, None, "lru", "linear", "exp", False, "exact"),
    ]
    conditions = [dict(zip((*columns, "model.discretization"), row, strict=True)) for row in rows]
    labels = Labels(conditions)
    assert [labels.machine(c) for c in conditions] == [
        *("rnn · tanh · exp", "rnn · tanh · direct", "vanilla · tanh", "lru · linear · exp")
    ]
    assert labels.following == ("model.discretization",)
    assert [labels.member(c) for c in conditions] == ["exp", "direct", "vanilla · tanh", "exp"]
    assert (
        labels.without("model.parameterization").machine(conditions[0] | {"model.parameterization": None})
        == "rnn · tanh"
    )
    both = Labels([*conditions, {**conditions[0], "model.normalize": True, "model.discretization": "exact"}])
    assert both.machine(conditions[0]) == "rnn · tanh · exp · normalize no"
    crossed = Labels([*conditions, {**conditions[0], "model.discretization": "exact"}])
    assert crossed.machine(conditions[0]) == "rnn · tanh · exp · discretization euler"
    assert crossed.machine(conditions[2]) == "vanilla · tanh"
