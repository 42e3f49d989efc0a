"""``make site``: the pages as a site of versions, without a warning, that needs nothing from elsewhere to be read."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import memsweep
from paths import ROOT, committed

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
LINK = re.compile(r"\]\(([^)#\s]+)")


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, mkdocs: str) -> Path:
    """The site that ``make site`` builds of two releases, and of pages of this checkout that no commit has.

    Its configuration is strict, so that a warning, as of a broken link, is an error.
    """
    clone = tmp_path_factory.mktemp("site") / "clone"
    for name in committed():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name, follow_symlinks=False)
    run(clone, "git", "init", "-q")
    source = clone / "platform" / "memsweep" / "__init__.py"
    make = ("make", "site", f"SITE={Path(mkdocs).parents[1]}")
    for version, there in (("0.9.0", "0.9.0"), ("0.10.0", "0.10.0, 0.9.0")):
        source.write_text(re.sub(r"(__version__ = ).*", rf'\1"{version}"', source.read_text("utf-8")), "utf-8")
        run(clone, "git", "add", "-A")
        run(clone, *GIT, "commit", "-q", "-m", version)
        run(clone, "git", "tag", f"v{version}")
        assert run(clone, *make) == f"site: site/index.html; built: {version}; there: {there}\n"
        (clone / "docs" / "newer.md").write_text("# A newer page\n", "utf-8")
    (clone / "docs" / "newest.md").write_text("# The newest page\n", "utf-8")
    assert run(clone, *make) == "site: site/index.html; built: dev; there: dev, 0.10.0, 0.9.0\n"
    return clone / "site"


@pytest.fixture(scope="module")
def site(sites: Path) -> Path:
    """The pages of this checkout."""
    return sites / "dev"


@pytest.fixture
def page(chromium: str) -> Iterator[Page]:
    """A page of a browser; at the end it has asked for nothing but files."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        page, fetched = browser.new_page(), list[str]()
        page.set_default_timeout(180_000)  # on a busy machine, too
        page.on("request", lambda request: fetched.append(request.url))
        yield page
        browser.close()
    assert {url.partition(":")[0] for url in fetched} <= {"file", "data", "blob"}


def test_every_link_leads_to_a_file_or_to_the_page_of_a_folder() -> None:
    """A strict mkdocs refuses any other, such as a link to a folder without a README.md."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    links = [(page, target) for page in pages for target in LINK.findall(page.read_text("utf-8"))]
    inside = [(page, page.parent / target) for page, target in links if not re.match(r"\w+:", target)]
    assert len(inside) > 100
    assert not [each for each in inside if not each[1].is_file() and not (each[1] / "README.md").is_file()]


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
def test_a_search_in_a_page_that_is_opened_as_a_file_finds_pages(site: Path, page: Page) -> None:
    page.goto(f"file://{site}/index.html")
    page.locator(".md-search__input").first.fill("inconclusive")
    page.locator(".md-search-result__item", has_text="My verdict is inconclusive").first.wait_for()


@pytest.mark.more
@pytest.mark.browser
def test_a_reader_picks_the_version_of_a_page(sites: Path, page: Page) -> None:
    """Old versions stay; a page that another version has is shown in it, and else its first page."""

    def pick(version: str) -> None:
        page.locator(".md-version").hover(force=True)
        page.locator(".md-version__link", has_text=version).click()

    page.goto(f"file://{sites}/0.9.0/docs/help/nan.html")
    assert page.locator(".md-version__current").inner_text() == "0.9.0"
    assert page.locator(".md-version__link").all_text_contents() == ["dev", "0.10.0latest", "0.9.0"]
    pick("dev")
    page.wait_for_url(f"file://{sites}/dev/docs/help/nan.html")
    page.goto(f"file://{sites}/dev/docs/newer.html")
    pick("0.10.0")
    page.wait_for_url(f"file://{sites}/0.10.0/docs/newer.html")
    pick("0.9.0")
    page.wait_for_url(f"file://{sites}/0.9.0/index.html")


@pytest.mark.more
@pytest.mark.browser
def test_latest_and_the_first_page_are_the_newest_release(sites: Path, page: Page) -> None:
    page.goto(f"file://{sites}/index.html")
    page.wait_for_url(f"file://{sites}/0.10.0/index.html")
    page.goto(f"file://{sites}/latest/docs/verdict.html#the-rule")
    page.wait_for_url(f"file://{sites}/0.10.0/docs/verdict.html#the-rule")
    assert not (sites / "latest" / "docs" / "newest.html").exists()
