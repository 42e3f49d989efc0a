"""``memsweep init``: a folder with a task, a torch module, a study, and a test of them."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from memsweep.documents import Answer
from memsweep.errors import MemsweepError, filled

STUDY = "first"
_SUFFIX = ".j2"
_HIDDEN = {"gitignore": ".gitignore"}
"""Names that stand without their dot in the package, because packaging tools leave hidden files out."""


class ProjectError(MemsweepError):
    """A folder that cannot become a project."""


def init(args: argparse.Namespace) -> Answer:
    """Makes a project in a new or empty folder.

    Raises:
        ProjectError: the folder is not empty, cannot be written, or has a name that no Python package can have.
    """
    from jinja2 import StrictUndefined, Template

    folder = Path(args.folder)
    name, written = _package_name(folder), list[str]()
    try:
        _make_empty(folder)
        for path, text in _template(files("memsweep.project") / "template", folder):
            template = Template(text, undefined=StrictUndefined, keep_trailing_newline=True)
            path.parent.mkdir(exist_ok=True)
            path.write_text(template.render(name=name, study=STUDY), encoding="utf-8")
            written.append(path.relative_to(folder).as_posix())
    except OSError as error:
        raise ProjectError(f"{error.filename or folder} cannot be written: {error.strerror or error}.") from None
    text = filled(
        f"{folder} holds a task, a torch module, a study and a test of them; its README.md says more. Next:\n"
        f"  cd {shlex.quote(str(folder))}\n  memsweep plan {STUDY}\n  memsweep sweep {STUDY}",
        sys.stdout,
    )
    return Answer({"folder": str(folder), "package": name, "study": STUDY, "files": sorted(written)}, text=text)


def _package_name(folder: Path) -> str:
    """The folder's name as that of a Python package: ``my-project`` becomes ``my_project``."""
    name = re.sub(r"[^0-9a-zA-Z]+", "_", folder.resolve().name).strip("_").lower()
    if not name.isidentifier() or keyword.iskeyword(name) or name in sys.stdlib_module_names | {"memsweep", "tasks"}:
        raise ProjectError(
            f"{folder.resolve().name!r} is no name for a project, whose package it becomes: use letters, digits and _, "
            "a letter first, and no name of Python's own, such as my_project."
        )
    return name


def _make_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ProjectError(f"{folder} is a file: name a folder that does not exist yet, or an empty one.")
    folder.mkdir(parents=True, exist_ok=True)
    if content := sorted(path.name for path in folder.iterdir()):
        more = f" and {len(content) - 1} more" if len(content) > 1 else ""
        raise ProjectError(
            f"{folder} is not empty (it holds {content[0]}{more}), and nothing is overwritten: name a folder that does "
            "not exist yet, or an empty one."
        )


def _template(source: Traversable, target: Path) -> Iterator[tuple[Path, str]]:
    """Each file of the project: its path, and its text as a template of Jinja."""
    for entry in source.iterdir():
        if entry.is_dir():
            yield from _template(entry, target / entry.name)
        elif entry.name.endswith(_SUFFIX):
            name = entry.name.removesuffix(_SUFFIX)
            yield target / _HIDDEN.get(name, name), entry.read_text("utf-8")
