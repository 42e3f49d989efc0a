"""The page stands alone, escapes whatever it is given, says what is missing, and fits its screen."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from memsweep import report
from memsweep.report.charts.curves import error_charts
from memsweep.report.figures.charts import gallery_of
from memsweep.report.figures.panels import embedded
from memsweep.report.page.render import HERE as PAGE
from memsweep.report.page.render import SCRIPTS
from memsweep.report.values.chart import ChartSet
from report_study import Condition, write_study

SCRIPT = "<script>alert(1)</script>"
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


class Page(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts.append(data)
        else:
            self.text += data

    def pictures(self) -> Iterator[str]:
        """The SVG text of every picture."""
        for tag, attributes in self.tags:
            if tag == "img":
                head, _, data = str(attributes["src"]).partition(",")
                assert head == "data:image/svg+xml;base64"
                yield base64.b64decode(data).decode()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """A study whose every name tries to be something else, with failures and infinities."""
    folder = tmp_path_factory.mktemp("hostile")
    conditions = [
        Condition(kernel=SCRIPT, parameterization='=cmd|"x"', model="$\\frac{" + SCRIPT, activation="_x\x00\x1b[31m"),
        Condition(kernel='"><img src=x onerror=alert(1)>', parameterization="-2+3", base=1e-3),
        Condition(parameterization="exp", training={"note": SCRIPT * 6}),
    ]
    failed = {0: f"Traceback (most recent call last):\n  {SCRIPT}\nValueError: bad"}
    small = {"widths": [2, 3], "horizons": [50, 100], "balls": ["recurrent"]}
    write_study(folder, conditions, name=SCRIPT, failed=failed, skip=[1], provenance={"host": SCRIPT}, **small)
    return report.build(folder)


@pytest.mark.more
def test_names_are_text_and_never_markup(hostile: report.ReportPaths) -> None:
    page = Page(hostile.page)
    assert not [tag for tag, _ in page.tags if tag in ("iframe", "object", "form", "base")]
    data, *own = page.scripts
    assert own == [(PAGE / name).read_text() for name in SCRIPTS]  # and no others
    assert "<" not in data
    assert json.loads(data)["findings"][0]["memory"] == SCRIPT
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert SCRIPT in page.text  # shown as it was written
    for picture in page.pictures():
        root = ElementTree.fromstring(picture)
        assert not [node for node in root.iter() if node.tag.rpartition("}")[2] in ("script", "foreignObject", "a")]


def test_the_page_needs_nothing_else(hostile: report.ReportPaths) -> None:
    page = Page(hostile.page)
    for _, attributes in page.tags:
        for name in ("src", "srcset", "action", "data"):
            assert str(attributes.get(name, "#")).startswith(("#", "data:"))
        link = str(attributes.get("href", "#"))
        assert link.startswith(("#", "data:")) or (hostile.folder / link).exists()
    outside = hostile.page.read_text()
    for script in page.scripts[1:]:
        outside = outside.replace(script, "")
    for text in (outside, *page.pictures()):
        assert not re.findall(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink))[^\s\"'<]+", text)
        assert "url(" not in text.replace("url(#", "")


def test_missing_rows_are_named_with_their_reason(hostile: report.ReportPaths) -> None:
    page = Page(hostile.page)
    assert "2 planned trials without a result" in page.text
    assert "not run" in page.text
    assert "ValueError: bad" in page.text
    assert "The task's or the model's code raised" in page.text


@pytest.mark.more
def test_infinite_errors_have_a_rail_and_censored_radii_do_not_vanish(tmp_path: Path) -> None:
    # One condition whose radius lies beyond the grid, one that is infinite from the smallest radius on.
    conditions = [Condition(base=1e3), Condition(base=1e-6, parameterization="exp")]
    write_study(tmp_path, conditions, widths=[2, 3], balls=["recurrent"], memory=False)
    paths = report.build(tmp_path)
    contents = paths.contents
    source, _ = embedded(gallery_of(ChartSet("error", error_charts(contents.findings, contents.labels))))
    assert "∞" in base64.b64decode(source.partition(",")[2]).decode()
    data = json.loads(Page(paths.page).scripts[0])
    assert {at[3] for finding in data["findings"] for *_, radii in finding["points"] for at in radii} == {
        "above",
        "below",
    }
    assert "above" in (paths.folder / "radii.csv").read_text()
    assert "below" in (paths.folder / "radii.csv").read_text()


def look(path: Path, chromium: str, width: int) -> tuple[dict[str, Any], list[str]]:
    """The measurements of a browser on the page, and the addresses that it asked for."""
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: asked.append(f"dialog {dialog.message}"))
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        seen = page.evaluate(
            """() => ({
                page: document.documentElement.scrollWidth,
                window: innerWidth,
                broken: [...document.images].filter(image => !image.complete || !image.naturalWidth).length,
                narrow: Math.min(...[...document.querySelectorAll('figure img, #chart svg')].map(
                    image => image.getBoundingClientRect().width)),
            })"""
        )
        browser.close()
    return seen, asked


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.more)])
def test_a_browser_shows_the_page_without_sideways_scrolling_or_network(
    hostile: report.ReportPaths, chromium: str, width: int
) -> None:
    seen, asked = look(hostile.page, chromium, width)
    assert seen["page"] <= seen["window"] == width
    assert seen["broken"] == 0
    assert seen["narrow"] >= 300
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
