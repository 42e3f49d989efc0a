"""``make site``: builds the pages of this checkout as one version of the site, beside the versions that lie there.

``versions.py FOLDER``, in the environment of ``docker/site.lock``. A commit with the tag of its version gives a folder
of that name, which stays; any other checkout gives ``dev``. ``latest`` is the newest release, or ``dev`` before the
first. Each version's pages have a list of all versions: ``style/selector.js`` makes it of ``versions.js``, a script,
because no browser lets a page that is opened as a file read JSON. So mike, whose list is JSON, does not serve here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEV = "dev"
LATEST = "latest"
NAME = re.compile(r"\d+\.\d+\.\d+")
MOVED = """<!doctype html>
<meta charset="utf-8">
<title>memsweep</title>
<script>location.replace("{target}" + location.hash)</script>
<meta http-equiv="refresh" content="0; url={target}">
<a href="{target}">{target}</a>
"""


def version(root: Path) -> str:
    """The version of the sources, read without an import."""
    text = (root / "platform" / "memsweep" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        sys.exit("platform/memsweep/__init__.py has no line __version__ = ...")
    return found[1]


def name(root: Path) -> str:
    """The folder of the pages of a checkout: its version where it is the tagged commit, else ``dev``."""
    tags, changed = (
        subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        for words in (["tag", "--points-at"], ["status", "--porcelain"])
    )
    released = f"v{version(root)}" in tags.stdout.split() and not changed.stdout
    return version(root) if released else DEV


def versions(folder: Path) -> list[str]:
    """The versions that a site has: ``dev``, then releases, the newest first."""
    found = [path.parent.name for path in folder.glob("*/index.html")]
    releases = [each for each in found if NAME.fullmatch(each)]
    newest_first = sorted(releases, key=lambda each: [int(part) for part in each.split(".")], reverse=True)
    return [DEV] * (DEV in found) + newest_first


def join(folder: Path) -> None:
    """Makes one site of the versions in a folder: the list of them, ``latest`` and the first page."""
    shutil.rmtree(folder / LATEST, ignore_errors=True)
    there = versions(folder)
    latest = next((each for each in there if each != DEV), DEV)
    listed = []
    for each in there:
        pages = sorted(str(path.relative_to(folder / each)) for path in (folder / each).rglob("*.html"))
        listed.append({"name": each, "alias": LATEST if each == latest else "", "pages": pages})
        if each == latest:
            for page in pages:
                moved = folder / LATEST / page
                moved.parent.mkdir(parents=True, exist_ok=True)
                moved.write_text(MOVED.format(target="../" * (page.count("/") + 1) + f"{latest}/{page}"), "utf-8")
    (folder / "index.html").write_text(MOVED.format(target=f"{latest}/index.html"), "utf-8")
    (folder / "versions.js").write_text(f"window.versions = {json.dumps(listed)};\n", "utf-8")


def main(folder: Path) -> None:
    """Builds this checkout's version; ends as mkdocs does where a page has a fault."""
    built = name(ROOT)
    words = ["build", "--config-file", ROOT / "docs" / "site" / "mkdocs.yml", "--site-dir", folder / built]
    done = subprocess.run([sys.executable, "-m", "mkdocs", *words])
    if done.returncode != 0:
        sys.exit(done.returncode)
    join(folder)
    there = ", ".join(versions(folder))
    sys.stdout.write(f"site: {folder.name}/index.html; built: {built}; there: {there}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
