"""The page in a browser: its figure, evidence at a click, tables that sort, and no fault that axe knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_report_page import FLAGS

from memsweep import report
from paths import TESTS
from report_study import THEORY, write_study

AXE = TESTS / "support" / "axe" / "axe.min.js"  # axe-core 4.14.1, MPL-2.0 (LICENSE.txt beside it)


@pytest.fixture(scope="module")
def theory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study with a verdict of each kind."""
    folder = tmp_path_factory.mktemp("theory")
    write_study(folder, THEORY, widths=(2, 3, 5, 8), skip=[3], name="theory")
    return report.build(folder).page


def open_page(playwright: Any, chromium: str, path: Path, **context: Any) -> tuple[Any, Any, list[str]]:
    """The browser, the page, and the errors and the addresses that it names."""
    browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
    page, said = browser.new_context(viewport={"width": 1280, "height": 900}, **context).new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else said.append(request.url))
    page.goto(path.as_uri())
    return browser, page, said


@pytest.mark.browser
def test_a_verdict_opens_its_points_and_a_point_its_trial(theory: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser, page, said = open_page(playwright, chromium, theory)
        figure = page.locator("#chart svg").first
        said_of = [each.get_attribute("aria-label") for each in page.locator("#chart svg").all()]
        assert any("polynomial, direct (unstable): from" in words for words in said_of)
        box = figure.bounding_box()
        assert box["y"] + box["height"] <= 900  # on the first screen
        page.locator("a.verdict.unstable").first.click()
        evidence = page.locator("#evidence")
        assert "unstable: polynomial, direct, when the recurrent weights move" in evidence.inner_text()
        row = evidence.locator("tbody tr").first
        identity = row.locator("button").inner_text()
        row.locator("button").click()
        assert f"Trial {identity}" in evidence.inner_text()
        assert evidence.locator("#trial svg").count() >= 3  # impulse response, and the error in both balls
        pale = {*evidence.locator(".low td.usual").all_inner_texts()}
        assert "5 of 5" in pale  # what nearly every row says
        assert "4 of 4" not in pale
        heading = evidence.locator("th button.sort", has_text="horizon").first
        for direction, order in (("ascending", 1), ("descending", -1)):
            heading.click()
            shown = [
                int(text) for text in evidence.locator("table").first.locator("tbody td:nth-child(2)").all_inner_texts()
            ]
            assert shown == sorted(shown, reverse=order < 0), direction
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        assert said == []
        browser.close()


@pytest.mark.browser
def test_paper_has_no_controls(theory: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser, page, _ = open_page(playwright, chromium, theory)
        controls = page.locator("nav ul, .filter, .copy, .selectors")
        assert any(each.is_visible() for each in controls.all())
        page.emulate_media(media="print")
        assert not any(each.is_visible() for each in controls.all())
        browser.close()


@pytest.mark.browser
@pytest.mark.parametrize(
    "scheme", ["light", *(pytest.param(each, marks=pytest.mark.more) for each in ("dark", "print"))]
)
def test_axe_finds_no_violation(theory: Path, chromium: str, scheme: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        paper = scheme == "print"
        browser, page, _ = open_page(playwright, chromium, theory, color_scheme="light" if paper else scheme)
        page.locator("a[data-finding]").first.click()
        page.locator("#evidence tbody button").first.click()
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        page.emulate_media(media="print" if paper else "screen")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
        browser.close()


@pytest.mark.browser
@pytest.mark.more
def test_the_answer_is_there_without_scripts(theory: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser, page, _ = open_page(playwright, chromium, theory, java_script_enabled=False)
        assert "Polynomial memory is not held stably under direct" in page.locator("h1").inner_text()
        assert page.locator("#chart img").bounding_box()["y"] < 600
        assert page.locator("#verdicts tbody tr").count() > 8
        browser.close()
