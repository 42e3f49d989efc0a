"""Studies of very many conditions stay readable: grouped by model and activation, nothing wrapped, nothing dropped."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from memsweep import registry, report
from memsweep.report.analysis.bounds import EXPLANATIONS
from memsweep.report.analysis.findings import find
from memsweep.report.export.csv import VERDICT_COLUMNS, verdict_frame
from memsweep.report.figures.panels import Panel
from memsweep.report.naming.conditions import find_grouping
from memsweep.report.naming.labels import Labels
from memsweep.report.page.page import chosen
from memsweep.report.read.study import load_study
from memsweep.report.rows.overview import cell
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.stability.verdict.rule import Verdict
from memsweep.stability.verdict.slopes import Slope
from paths import ROOT
from report_study import Condition, gallery, write_study

SLOPES = {"unstable": (-0.59, -0.66, -0.55), "stable": (-0.01, -0.02, 0.0), "inconclusive": (float("nan"),) * 3}


def verdicts(conditions: list[Condition], balls: tuple[str, ...]) -> pd.DataFrame:
    """A table of verdicts as the report writes it; ``direct`` is unstable, models without parameterization unclear."""
    rows = []
    for ball in balls:
        for one in conditions:
            verdict = {"direct": "unstable", None: "inconclusive"}.get(one.parameterization, "stable")
            rate, exponent = one.decay
            row = {"kernel": one.kernel, "rate": rate, "exponent": exponent, "model": one.model, "ball": ball}
            row |= {"activation": one.activation, "parameterization": one.parameterization}
            row |= {"normalize": one.normalize, "threshold": 0.01, "verdict": verdict}
            row |= {"deciding": "horizon", "reasons": "seeds: 1"}
            for axis in ("width", "horizon"):
                names = (f"slope_{axis}", f"slope_{axis}_low", f"slope_{axis}_high")
                row |= dict(zip(names, SLOPES[verdict], strict=True))
            rows.append(row)
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS))


@pytest.mark.parametrize("width", [80, 110, 120, 200])
def test_a_terminal_shows_sixty_conditions_by_family_without_wrapping(width: int) -> None:
    text = report.table_text(verdicts(gallery(), ("recurrent", "weights", "all")), width=width, colour=False)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert text.count("▲") == 3 * 14 + 1  # every verdict and the key
    assert text.count("◇") == 3 * 4 + 1
    assert text.count("●") == 3 * 42 + 1
    assert text.count("−0.59 [−0.66, −0.55]" if width >= 110 else "▲ T −0.59") == 3 * 14
    assert sum(line.rstrip() == "diagonal_rnn · tanh" for line in lines) == 3
    assert sum(line.startswith("vanilla_rnn · tanh ") for line in lines) == 3  # alone: its own line, no heading
    assert sum(line.startswith("  best(a=1.0, b=0.5) ") for line in lines) == 3 * 7
    assert len(lines) < 160


def test_a_list_that_would_be_cut_becomes_a_grid() -> None:
    few = [Condition(parameterization=name) for name in ("direct", "exp", "softplus")]
    wide, narrow = (report.table_text(verdicts(few, ("recurrent",)), width=w, colour=False) for w in (110, 70))
    assert "slope in horizon" in wide
    assert "▲ unstable" in wide.splitlines()[1]
    assert "slope in horizon" not in narrow
    assert "direct    ▲ T −0.59 [−0.66, −0.55]" in narrow
    assert "…" not in narrow


def test_a_terminal_shows_more_memories_than_it_has_room_for_in_signs() -> None:
    many = [Condition(kernel=f"kernel {index:02d}", parameterization=p) for index in range(10) for p in ("direct", "x")]
    text = report.table_text(verdicts(many, ("recurrent",)), width=80, colour=False)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("▲") == 10 + 1


def test_a_page_gives_every_memory_its_share_of_the_panels() -> None:
    def panels(group: str, count: int) -> list[Panel]:
        return [Panel(group, f"{group} {index}", "", lambda ax: None, ()) for index in range(count)]

    few = [*panels("a", 20), *panels("b", 4)]
    assert chosen(few) == few
    crowded = chosen([*panels("a", 30), *panels("b", 30), *panels("c", 5)])
    assert [panel.title for panel in crowded if panel.group == "b"] == [f"b {index}" for index in range(8)]
    assert len(crowded) == 8 + 8 + 5
    assert len(chosen([panel for index in range(40) for panel in panels(f"group {index}", 2)])) == 24


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """Fourteen machines, with one small cell each: too little for verdicts, enough for an overview."""
    folder = tmp_path_factory.mktemp("many")
    kept = ("direct", "best(a=1.0, b=0.5)", None)
    some = [c for c in gallery() if c.kernel == "polynomial" and c.parameterization in kept]
    some = [c for c in some if c.activation in ("linear", "tanh", None) or c.model == "vanilla_rnn"]
    write_study(folder, some, balls=["recurrent"], widths=[2], horizons=[50], seeds=1, memory=False)
    return report.build(folder)


def test_a_page_gives_an_overview_by_family_before_the_reasons(paths: report.ReportPaths) -> None:
    page = paths.page.read_text()
    overview = page[page.index("Verdicts at a glance") : page.index("Every verdict with its reasons")]
    assert overview.count('class="family"') == 6  # models with activations; the vanilla RNNs stand alone
    assert overview.count(">inconclusive</span>") == len(pd.read_csv(paths.verdicts))
    assert 'class="name alone" title="vanilla_rnn · tanh"' in overview
    assert "inconclusive under all 14 models" in page
    assert "† The errors behind this verdict are lower bounds" in page
    assert overview.count("†</abbr>") == page.count("†</abbr>") / 2 > 0  # beside the verdict in both tables


def test_radius_panels_hold_whole_families_and_name_them(paths: report.ReportPaths) -> None:
    page = paths.page.read_text()
    section = page[page.index("How far the weights may move") : page.index("Error without perturbation")]
    titles = re.findall(r'<p class="title">([^<]+)</p>', section)
    assert titles
    pictures = [base64.b64decode(data).decode() for data in re.findall(r"base64,([^\"]+)", section)]
    assert all(picture.count(":  not available") <= 6 for picture in pictures)
    assert any(picture.count("best(a=1.0, b=0.5):  ") for picture in pictures)  # the telling end of the name is kept


def test_lower_bounds_are_marked_with_their_kind(tmp_path: Path) -> None:
    registry.discover(ROOT)
    conditions = [
        Condition(parameterization="direct", exact=True),
        Condition(parameterization="exp", exact=False),
        Condition(parameterization="softplus", exact=True, method="random_push"),
        Condition(model="unknown to this machine", exact=True),
        Condition(kernel="exponential", parameterization="direct"),  # of older code, which knew exact errors only
    ]
    write_study(tmp_path, conditions, widths=[2], horizons=[50], seeds=1, memory=False)
    study = load_study(tmp_path)
    findings = find(study, find_grouping(study.records, study.tables["replicas"]))
    table = verdict_frame(findings, ()).set_index(["ball", "model", "kernel", "parameterization"])["reasons"]
    said = {key: [kind for kind, words in EXPLANATIONS.items() if words in text] for key, text in table.items()}
    diagonal, other = ("diagonal_rnn", "polynomial"), ("unknown to this machine", "polynomial")
    assert said == {
        ("recurrent", *diagonal, "direct"): [],
        ("recurrent", *diagonal, "exp"): ["sampled"],
        ("recurrent", *diagonal, "softplus"): ["random draws"],
        ("recurrent", *other, "direct"): ["searched"],
        ("recurrent", "diagonal_rnn", "exponential", "direct"): [],
        ("all", *diagonal, "direct"): ["searched"],
        ("all", *diagonal, "exp"): ["sampled"],
        ("all", *diagonal, "softplus"): ["random draws"],
        ("all", *other, "direct"): ["searched"],
        ("all", "diagonal_rnn", "exponential", "direct"): ["searched"],
    }


def test_terminal_and_page_name_the_same_slope_as_the_deciding_one(tmp_path: Path) -> None:
    """Unstable along the width: the horizon's slope is below the limit at the shown threshold, but not at all."""
    write_study(tmp_path, [Condition()], widths=[2], horizons=[50], seeds=1, balls=["recurrent"], memory=False)
    study = load_study(tmp_path)
    (found,) = find(study, find_grouping(study.records, study.tables["replicas"]))
    width, steep, flat = Slope(-0.4, -0.5, -0.3), Slope(-0.6, -0.7, -0.5), Slope(0.0, -0.1, 0.1)
    judgement = replace(
        found.judgement,
        verdict=Verdict.UNSTABLE,
        threshold=THRESHOLDS[0],
        slope_width=width,
        slope_horizon=steep,
        by_threshold={threshold: (width, steep if threshold == THRESHOLDS[0] else flat) for threshold in THRESHOLDS},
    )
    finding = replace(found, judgement=judgement)
    shown = cell(finding)
    assert (shown.along, shown.slope) == ("width", "−0.40 [−0.50, −0.30]")
    assert "▲ m −0.40 [−0.50, −0.30]" in report.table_text(verdict_frame([finding], ()), width=60, colour=False)


def test_labels_say_what_tells_conditions_apart_and_nothing_else() -> None:
    columns = ("task", "kernel", "rate", "exponent", "model", "activation", "parameterization", "normalize")
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
    assert labels.without("parameterization").machine(conditions[0] | {"parameterization": None}) == "rnn · tanh"
    both = Labels([*conditions, {**conditions[0], "normalize": True, "model.discretization": "exact"}])
    assert both.machine(conditions[0]) == "rnn · tanh · exp · plain"
    crossed = Labels([*conditions, {**conditions[0], "model.discretization": "exact"}])
    assert crossed.machine(conditions[0]) == "rnn · tanh · exp · discretization euler"
    assert crossed.machine(conditions[2]) == "vanilla · tanh"
