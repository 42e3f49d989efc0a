"""The page has its evidence within reach: contents, files, one notation, nothing cut, no chart without a value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_page_browser import AXE, open_page

from memsweep import report
from memsweep.report.analysis.contents import analyse
from memsweep.report.charts.radius import deciding_threshold
from memsweep.report.naming.numbers import percent
from memsweep.report.page.files import Files
from memsweep.report.page.grid import GridCell, grids
from memsweep.report.read.study import load_study
from memsweep.report.values.chart import ChartSet, chart, rows_chart
from report_study import THEORY, Condition, write_study

MACHINES = {"direct": 0.006, "exp": 0.005, "softplus": 0.007, "best(a=1.0, b=0.5)": 0.004}
CUT = """() => [...document.querySelectorAll("main .scroll, main figure, main h1, main p")]
    .filter((part) => part.clientWidth && part.scrollWidth > part.clientWidth + 1)
    .map((part) => part.textContent.slice(0, 60))"""
VERDICT_HUES = ("var(--stable)", "var(--unstable)", "var(--open)")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """One verdict, at one width."""
    folder = tmp_path_factory.mktemp("small")
    write_study(folder, THEORY[:1], widths=[4], horizons=[50, 100], balls=["recurrent"], memory=False)
    return report.build(folder)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight verdicts of one kind, at one width: four machines on two memories."""
    conditions = [
        Condition(kernel=kernel, parameterization=name, base=base, slope_horizon=slope, found=0.9)
        for kernel, slope in (("exponential", -0.02), ("polynomial", -0.17))
        for name, base in MACHINES.items()
    ]
    folder = tmp_path_factory.mktemp("a_long_path_" * 10) / "alike"  # its commands hold the path
    write_study(folder, conditions, widths=(12,), horizons=(6, 12, 24, 48), seeds=5, memory=False, name="alike")
    return folder


def test_every_link_of_the_page_leads_to_a_file_or_a_section(small: report.ReportPaths) -> None:
    page = small.page.read_text()
    links = re.findall(r'href="([^"#:][^":]*)"', page)
    assert {"verdicts.csv", "figures/radius-recurrent.png", "../records/"} <= {*links}
    assert [link for link in links if not (small.folder / link).exists()] == []
    data = page.split('id="data">')[1]
    assert '"records":"../records/"' in data
    anchors = re.findall(r'href="#([^"]*)"', page)
    assert [name for name in anchors if f'id="{name}"' not in page] == []


def test_the_contents_name_every_section_and_each_section_of_numbers_its_files(small: report.ReportPaths) -> None:
    page = small.page.read_text()
    listed = re.findall(r'<li><a href="#([^"]*)">', page)
    sections = re.findall(r'<section id="([\w-]+)">(.*?)</section>', page, re.DOTALL)
    assert listed == [name for name, _ in sections]
    for name, text in sections:
        if "<table" in text:
            assert 'class="files"' in text, name


def test_a_study_elsewhere_names_no_records(small: report.ReportPaths) -> None:
    tables = small.tables
    assert Files({"radius-recurrent": ["a.png"]}).links(tables, ["verdicts", "none"], ["radius-"]) == [
        ("verdicts.csv", "verdicts.csv"),
        ("figures/a.png", "a.png"),
    ]
    assert Files().links(tables, ["verdicts"], ["radius-"]) == []


def test_stable_radii_have_one_notation(tmp_path: Path) -> None:
    """Slopes of 0 in the horizon and in the width were written T^0 and m^0, by chance."""
    flat = [Condition(kernel="exponential", parameterization=name, base=0.2) for name in ("direct", "exp", "softplus")]
    write_study(tmp_path, flat, memory=False, balls=["recurrent"], horizons=(50, 100, 200, 400), widths=(2, 3, 4, 6))
    contents = analyse(load_study(tmp_path))
    assert "width" in {finding.deciding[0] for finding in contents.verdicts}
    (grid,) = grids(contents.verdicts, contents.labels)
    cells = [cell for _, row in grid.groups[""] for cell in row if cell]
    assert [(cell.word, cell.letter, cell.at) for cell in cells] == [("stable", "T", "")] * 3


def test_a_cell_names_its_error_limit_where_the_figure_has_another(alike: Path) -> None:
    contents = analyse(load_study(alike))
    findings, cells = contents.verdicts, dict[int, GridCell]()
    for grid in grids(findings, contents.labels):
        cells |= {cell.index: cell for _, row in grid.groups[""] for cell in row if cell is not None}
    shown = {ball: deciding_threshold([one for one in findings if one.ball == ball]) for ball in ("recurrent", "all")}
    others = 0
    for index, finding in enumerate(findings):
        own = finding.judgement.threshold
        others += own != shown[finding.ball]
        assert cells[index].at == ("" if own == shown[finding.ball] else f" at {percent(own)}")
    assert 0 < others < len(findings)


def test_what_was_measured_at_one_width_has_no_chart_against_the_width(small: report.ReportPaths) -> None:
    page = small.page.read_text()
    assert "radius against horizon" in page
    assert "radius against width" not in page


def test_charts_that_say_nothing_are_left_out() -> None:
    one, two = {"": [[1.0, 2.0]]}, {"": [[1.0, 2.0], [2.0, 3.0]]}
    empty = chart("", "x", "y", "", {"": []})
    row = {"name": "a", "middle": float("nan"), "values": []}
    made = [chart("", "x", "y", "", one), empty, chart("", "x", "y", "", two), rows_chart("", "x", [row])]
    beside = chart("", "x", "y", "", {"a": [[1.0, 2.0]], "b": [[1.0, 3.0]]})
    assert [*ChartSet("set", [*made, beside])] == [made[2], beside]


@pytest.mark.browser
@pytest.mark.more
def test_nothing_is_cut_and_lines_have_colours_of_their_own(alike: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    path = report.build(alike).page
    with sync_playwright() as playwright:
        browser, page, said = open_page(playwright, chromium, path)
        assert page.evaluate(CUT) == []
        assert page.locator("#figure").bounding_box()["y"] < 400  # beside the table
        strokes = page.locator("#chart svg path[stroke]").evaluate_all(
            "all => all.map((one) => one.getAttribute('stroke'))"
        )
        assert not {*strokes} & {*VERDICT_HUES}
        page.locator("summary").evaluate_all("all => all.forEach((one) => { one.parentElement.open = true; })")
        assert page.evaluate(CUT) == []
        page.evaluate(AXE.read_text())
        found = page.evaluate("() => axe.run()")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
        assert said == []
        browser.close()
        browser, page, _ = open_page(playwright, chromium, path, is_mobile=True, screen={"width": 390, "height": 844})
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollHeight") < 9_000
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        browser.close()
