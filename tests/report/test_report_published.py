"""A published table beside the verdicts: agreeing or not, never bent; the same in the page, the CSV and the words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from memsweep import registry, report
from memsweep.analyses.claims.published import compare
from memsweep.report.analysis.contents import judge_conditions
from memsweep.report.naming.conditions import find_grouping
from memsweep.report.read.study import load_study
from memsweep.report.rows.verdicts import MOVES
from paths import ROOT
from report_study import Condition, drawn, exported, longest, write_study

registry.discover(ROOT)


def _claim(name: str, where: dict[str, list[str]], **verdicts: str) -> dict[str, object]:
    return {"name": name, "where": where, "verdicts": verdicts}


CLAIMS = {
    "source": "a table that somebody published",
    "rows": [
        _claim("Plain", {"parameterization": ["direct"]}, exponential="stable", polynomial="stable"),
        _claim("Any", {}, polynomial="unstable"),
        _claim("Else", {"model": ["lru"]}, exponential="stable"),
    ],
    "compare": [],
}
TRUTH = [
    Condition(kernel="exponential", parameterization="direct", base=0.2),
    Condition(kernel="polynomial", parameterization="direct", base=0.05, slope_horizon=-0.6),
    Condition(kernel="polynomial", parameterization="exp", base=0.6),
    Condition(kernel="polynomial", parameterization="softplus", base=0.6, slope_horizon=-0.2),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """The report of a study in which every kind of agreement occurs."""
    folder = tmp_path_factory.mktemp("published")
    write_study(folder, TRUTH, balls=["recurrent"], widths=[2, 3, 4, 6], claims=CLAIMS, memory=False)
    return report.build(folder)


@pytest.mark.more
def test_each_claim_stands_beside_every_verdict_that_it_speaks_of(paths: report.ReportPaths) -> None:
    table = exported(paths, "published")
    recurrent = table[table["ball"] == "recurrent"]
    rows = recurrent[["published", "claimed_kernel", "claimed", "model.parameterization", "verdict", "agreement"]]
    assert rows.values.tolist() == [
        ["Plain", "exponential", "stable", "direct", "stable", "agrees"],
        ["Plain", "polynomial", "stable", "direct", "unstable", "disagrees"],
        ["Any", "polynomial", "unstable", "direct", "unstable", "agrees"],
        ["Any", "polynomial", "unstable", "exp", "stable", "disagrees"],
        ["Any", "polynomial", "unstable", "softplus", "inconclusive", "undecided"],
    ]
    assert len(table) == len(rows) + 1
    unmeasured = table[table["ball"].isna()]
    assert unmeasured[["published", "agreement"]].values.tolist() == [["Else", "not measured"]]


@pytest.mark.more
def test_the_verdicts_are_the_same_with_and_without_claims(paths: report.ReportPaths) -> None:
    study = load_study(paths.folder.parent)
    findings = judge_conditions(replace(study, claims=None), find_grouping(study.records, study.tables["replicas"]))
    assert exported(paths, "verdicts")["verdict"].tolist() == [finding.judgement.verdict for finding in findings]
    assert compare(None, findings) == []


def test_the_page_and_the_terminal_show_claim_verdict_interval_and_agreement(paths: report.ReportPaths) -> None:
    page = paths.page.read_text()
    section = page[page.index('id="published"') : page.index('id="trials"')]
    assert "a table that somebody published" in section
    assert "<dt>protocol</dt><dd>published</dd>" in page
    assert section.count("✓ agrees") == 2
    assert section.count("✗ disagrees") == 2
    assert section.count("? undecided") == 1
    assert "2 agree, 2 disagree, 1 undecided, 1 not measured" in section
    assert "not measured in this study" in section
    slope = exported(paths, "verdicts").query("verdict == 'unstable' and ball == 'recurrent'").iloc[0]
    interval = [f"−{-slope[name]:.2f}" for name in ("slope_horizon", "slope_horizon_low", "slope_horizon_high")]
    shown = f"{interval[0]} [{interval[1]}, {interval[2]}]"
    assert shown in section
    text = paths.text(colour=False)
    assert longest(text) <= 110
    published = text[text.index("Published table. When the recurrent weights move (ball: recurrent): 2 agree,") :]
    for claimed, agreement in (("stable", "✗ disagrees"), ("unstable", "✓ agrees")):
        assert re.search(rf" {claimed} +direct +▲ T {re.escape(shown)} +{agreement}", published)
    for narrow in (60, 40):
        assert longest(paths.text(width=narrow, colour=False)) <= narrow


@pytest.mark.more
def test_the_balls_keep_their_order_in_everything(tmp_path: Path) -> None:
    one = Condition(kernel="exponential")
    balls = ["all", "recurrent", "weights"]
    write_study(tmp_path, [one], balls=balls, widths=[2], horizons=[50], seeds=1, memory=False, claims=CLAIMS)
    paths = report.build(tmp_path)
    assert list(exported(paths, "verdicts")["ball"]) == ["recurrent", "weights", "all"]
    text, page = paths.text(colour=False), paths.page.read_text()
    for shown in (text, page):
        places = [shown.index(f"When {moves}") for moves in MOVES.values()]
        assert places == sorted(places)
    assert {"error-weights", "radius-weights"} <= set(drawn(paths))
    for moves in MOVES.values():
        assert f"When {moves}, of 1 published verdicts" in page
