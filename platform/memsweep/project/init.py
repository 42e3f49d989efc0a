"""``memsweep init``: a folder with a task, a torch module, a study, and a test of them."""

from __future__ import annotations

import argparse
import keyword
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from memsweep.documents import Answer
from memsweep.errors import MemsweepError, filled, unwritable

STUDY = "first"
_SUFFIX = ".j2"
_HIDDEN = {"gitignore": ".gitignore", "vscode": ".vscode"}
"""Names that stand without their dot in the package, because packaging tools leave hidden files out."""


class ProjectError(MemsweepError):
    """A folder that cannot become a project."""


def init(args: argparse.Namespace) -> Answer:
    """Makes a project in a new or empty folder, or in one that a stopped command has begun to fill.

    Raises:
        ProjectError: the folder holds something else, cannot be written, or has a name that no Python package can have.
    """
    from jinja2 import StrictUndefined, Template

    folder = Path(args.folder)
    name = _package_name(folder)
    content = {
        path: Template(text, undefined=StrictUndefined, keep_trailing_newline=True).render(name=name, study=STUDY)
        for path, text in _template(files("memsweep.project") / "template", folder)
    }
    try:
        _check_empty(folder, content)
        for path, text in content.items():
            path.parent.mkdir(exist_ok=True)
            _partial(path).write_text(text, encoding="utf-8")
            os.replace(_partial(path), path)
    except OSError as error:
        raise ProjectError(f"{unwritable(error, folder)}. Give a folder where you may write.") from None
    text = filled(
        f"{folder} holds a task, a torch module, a study and a test of them; its README.md says more. Next:\n"
        f"  cd {shlex.quote(str(folder))}\n  memsweep plan {STUDY}\n  memsweep sweep {STUDY}",
        sys.stdout,
    )
    return Answer(
        {
            "folder": str(folder),
            "package": name,
            "study": STUDY,
            "files": sorted(path.relative_to(folder).as_posix() for path in content),
        },
        text=text,
    )


def _package_name(folder: Path) -> str:
    """The folder's name as that of a Python package: ``my-project`` becomes ``my_project``."""
    name = re.sub(r"[^0-9a-zA-Z]+", "_", folder.resolve().name).strip("_").lower()
    if not name.isidentifier() or keyword.iskeyword(name) or name in sys.stdlib_module_names | {"memsweep", "tasks"}:
        raise ProjectError(
            f"{folder.resolve().name!r} is no name for a project, whose package it becomes: use letters, digits and _, "
            "a letter first, and no name of Python's own, such as my_project."
        )
    return name


def _check_empty(folder: Path, content: Mapping[Path, str]) -> None:
    """Makes the folder; refuses one with a file that is none of the project's, or has another content."""
    if folder.exists() and not folder.is_dir():
        raise ProjectError(f"{folder} is a file: name a folder that does not exist yet, or an empty one.")
    folder.mkdir(parents=True, exist_ok=True)
    allowed = {*map(_partial, content), *(path.parent for path in content)}
    same = (path for path, text in content.items() if path.is_file() and path.read_bytes() == text.encode())
    if strange := sorted({*folder.rglob("*")} - allowed.union(same)):
        first, more = strange[0].relative_to(folder), f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise ProjectError(
            f"{folder} is not empty (it holds {first}{more}), and nothing is overwritten: name a folder that does "
            "not exist yet, or an empty one."
        )


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _template(source: Traversable, target: Path) -> Iterator[tuple[Path, str]]:
    """Each file of the project: its path, and its text as a template of Jinja."""
    for entry in source.iterdir():
        if entry.is_dir():
            yield from _template(entry, target / _HIDDEN.get(entry.name, entry.name))
        elif entry.name.endswith(_SUFFIX):
            name = entry.name.removesuffix(_SUFFIX)
            yield target / _HIDDEN.get(name, name), entry.read_text("utf-8")
