"""``make site``: the pages as a site, without a warning, that needs nothing from elsewhere when it is read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import memsweep
from paths import ROOT

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
CONFIG = ROOT / "docs" / "site" / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, mkdocs: str) -> Path:
    """The built site; its configuration is strict, so that a warning, as of a broken link, is an error."""
    folder = tmp_path_factory.mktemp("site")
    words = [mkdocs, "build", "--config-file", CONFIG, "--site-dir", folder]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.more
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 30
    for page in pages:
        name = page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")
        assert (site / name).is_file(), page
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?(\S+?)[\"> ]", path.read_text("utf-8")
        )
        assert not [address for address in loaded if address.startswith(("http:", "https:", "//"))], path


@pytest.mark.more
def test_every_name_of_the_python_interface_has_its_docstring(site: Path) -> None:
    text = (site / "docs" / "api.html").read_text("utf-8")
    assert set(re.findall(r'<h2 id="[\w.]*\.(\w+)"', text)) == {*memsweep.__all__}
    assert "Run a study as <code>memsweep sweep</code> does" in text


@pytest.mark.more
@pytest.mark.browser
def test_a_search_in_a_page_that_is_opened_as_a_file_finds_pages(site: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        page, fetched = browser.new_page(), list[str]()
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(f"file://{site}/index.html")
        page.locator(".md-search__input").first.fill("inconclusive")
        page.locator(".md-search-result__item", has_text="My verdict is inconclusive").first.wait_for(timeout=60_000)
        browser.close()
    assert {url.partition(":")[0] for url in fetched} <= {"file", "data", "blob"}
