"""Writes docs/gallery.md: every study that was run, with what came out, its grid, a picture and its command.

    python -m benchmarks.published.gallery
    python -m benchmarks.published.gallery --add results/quickstart

The page is made of docs/evidence/gallery.yaml and of the study files. ``--add`` first puts the headline of a stored
study in there, and its first figure into docs/pictures, in the place of what stood there. A study with planned trials
that have no result is refused: its headline may change.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from memsweep.config.load.study import load_study
from memsweep.config.schema.study import SweepConfig
from memsweep.errors import MemsweepError
from memsweep.studies.python.door import results

ROOT = Path(__file__).resolve().parents[2]
TOLD = ROOT / "docs" / "evidence" / "gallery.yaml"
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "pictures"
SHOWN = 6
"""Values of an axis that are written out."""
HEAD = """# Gallery of finished studies

Each study that was run, whole or in part, with what came out, in the words of the page that has the whole. That \
page has the limits, too. `memsweep sweep STUDY` runs it again, and `memsweep plan STUDY` says what that takes. \
`python -m benchmarks.published.gallery` writes this page, and `--add results/STUDY` adds a study of yours."""


def page() -> str:
    """The text of docs/gallery.md."""
    told = yaml.safe_load(TOLD.read_text(encoding="utf-8"))
    return "\n\n".join([HEAD, *(_study(name, entry) for name, entry in told.items())]) + "\n"


def _study(name: str, entry: Mapping[str, str]) -> str:
    study = load_study(name, [], ROOT)
    question = re.split(r"(?<=[?.]) ", " ".join(study.description.split()))[0]
    found = entry["found"]
    parts = [f"## {name}", f"*{question}*", found if found[-1] in ".*" else f"{found}."]
    if "picture" in entry:
        parts.append(f"![figure of {name}](pictures/{entry['picture']})")
    target = entry.get("page", "")
    where = f"The whole: [{target.partition('#')[0]}]({target})." if target else "The headline of its report."
    ran = " ".join([grid(study), *([entry["ran"]] if "ran" in entry else []), where])
    return "\n\n".join([*parts, ran, f"```bash\nmemsweep sweep {name}\n```"])


def grid(study: SweepConfig) -> str:
    """The axes of a study and the number of its trials, in a sentence or two."""
    axes = [f"`{path}` = {_values(values)}" for path, values in study.grid.items()]
    searched = [f"`{path}` searched" for path in study.search.space] if study.search else []
    size = f"{len(study.rows)} {'cells' if study.search else 'trials'} of {study.rows[0].training.seeds} seeds"
    if study.confirm:
        size += f", winners confirmed with {study.confirm.seeds} others"
    return f"{size}. Grid: {'; '.join([*axes, *searched]) or 'one trial'}."


def _values(values: tuple[Any, ...]) -> str:
    if any(isinstance(part, Mapping) for value in values if isinstance(value, Mapping) for part in value.values()):
        return f"{len(values)} rows"
    words = [" ".join(map(str, value.values())) if isinstance(value, Mapping) else str(value) for value in values]
    return ", ".join([*words[:SHOWN], *(["…"] if len(words) > SHOWN else [])])


def add(folder: Path) -> None:
    """Puts a stored study in ``TOLD`` and its first figure in ``PICTURES``.

    Raises:
        MemsweepError: trials of it are missing, or it has no report.
    """
    found = results(folder)
    if len(found.missing):
        raise MemsweepError(f"{folder}: {len(found.missing)} planned trials have no result. Run memsweep resume first.")
    study = load_study(folder.name, [], ROOT)  # refuses a name without a file before anything is written
    if not study.search and len(found.trials) != len(study.rows):
        raise MemsweepError(
            f"{folder} has {len(found.trials)} trials, and the study's file {len(study.rows)}: the page shows the "
            "grid of the file. Sweep it without overrides."
        )
    told = yaml.safe_load(TOLD.read_text(encoding="utf-8"))
    entry = {"found": found.answers[0]}
    for figure in sorted((folder / "report" / "figures").glob("*.png"))[:1]:
        entry["picture"] = f"{folder.name}.png"
        shutil.copyfile(figure, PICTURES / entry["picture"])
    comment = "".join(line for line in TOLD.read_text("utf-8").splitlines(True) if line.startswith("#"))
    body = yaml.safe_dump(told | {folder.name: entry}, sort_keys=False, allow_unicode=True, width=1000)
    TOLD.write_text(f"{comment}\n{body}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, metavar="FOLDER", help="results of a study: results/quickstart")
    folder = parser.parse_args().add
    if not TOLD.is_file() or not yaml.safe_load(TOLD.read_text(encoding="utf-8")):
        sys.exit(f"{TOLD} is missing or empty: {PAGE.name} stays as it is. Restore the file (git checkout).")
    if folder is not None:
        add(folder)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
