"""mkdocs' hook of docs/site/mkdocs.yml: the repository's own markdown is the site, with the paths that it has here.

Links between pages so need no second form. The navigation is that of docs/README.md: a section for each of its tables,
a page for each link in a first column. The page of the Python interface is made of the docstrings of what ``memsweep``
exports. ``make site`` calls it; mkdocs calls the functions.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/README.md"
API = "docs/api.md"
LINK = re.compile(r"\]\(([^)#\s]+)")
ROW = re.compile(r"^\| (\[.*?) \| ", re.MULTILINE)


def pages() -> list[str]:
    """Every page, as its path in the repository."""
    found = [path for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md") for path in ROOT.glob(pattern)]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def linked(page: str) -> set[str]:
    """The other files of the repository that a page shows or links to: pictures, tables, scripts."""
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = {_beside(page, target) for target in LINK.findall(text) if "://" not in target}
    return {path for path in targets if (ROOT / path).is_file()}


def navigation(index: str) -> list[dict[str, Any]]:
    """mkdocs' ``nav`` of the text of docs/README.md.

    Returns:
        A dict for each table: its heading -> paths of pages; the first entry is the start page.
    """
    found: list[dict[str, Any]] = [{"Start": ["README.md", INDEX]}]
    for heading, rows in re.findall(r"^\| ([^|\[]+) \| \|\n\|---\|---\|\n((?:\|.*\n)+)", index, re.MULTILINE):
        targets = [target for row in ROW.findall(rows) for target in LINK.findall(row)]
        found.append({heading[0].upper() + heading[1:]: [_beside(INDEX, target) for target in targets]})
    found[1][next(iter(found[1]))].append({"Python, function by function": API})
    return found


def _beside(page: str, target: str) -> str:
    """The path in the repository of a link's target on a page."""
    return os.path.normpath(PurePosixPath(page).parent / target)  # a path in the repository may be a link itself


def interface(stub: str) -> str:
    """The markdown of the page of the Python interface, for mkdocstrings, of the text of ``memsweep/__init__.pyi``."""
    homes = re.findall(r"^from ([\w.]+) import (\w+) as \w+$", stub, re.MULTILINE)
    functions = [(module, name) for module, name in homes if name[0].islower()]
    classes = [(module, name) for module, name in homes if name[0].isupper()]
    errors = [(module, name) for module, name in classes if module == "memsweep.errors"]
    ordered = [*functions, *(each for each in classes if each not in errors), *errors]
    parts = [f"::: {module}.{name}\n" for module, name in ordered]
    head = (
        "# Python, function by function\n\nAll of it is imported from `memsweep`: `import memsweep as ms`. The page "
        "[python.md](python.md) shows it at work.\n"
    )
    return "\n".join([head, *parts])


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = navigation((ROOT / INDEX).read_text(encoding="utf-8"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    shown = pages()
    wanted = {path for page in shown for path in linked(page)} | set(shown)
    for path in sorted(wanted):
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    stub = (ROOT / "platform/memsweep/__init__.pyi").read_text(encoding="utf-8")
    files.append(File.generated(config, API, content=interface(stub)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to a folder go to its README.md, as they do where the repository is browsed."""

    def whole(match: re.Match[str]) -> str:
        inside = ROOT / _beside(page.file.src_uri, match[1]) / "README.md"
        return f"]({match[1].rstrip('/')}/README.md" if inside.is_file() else match[0]

    return LINK.sub(whole, markdown)
