"""Study files: their paths and the descriptions at their top."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from memsweep import builtin
from memsweep.config.core.reflect import keys
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError, did_you_mean, listed
from memsweep.gate import gated

FOLDER = builtin.STUDIES
EDITOR = "yaml-language-server:"
"""The beginning of a comment that tells an editor the schema of the file."""
_ROOMS = ("start", "memory", "tasks", "units", "published", "cluster")
"""The order in which built-in rooms are listed; one that is not named here comes after them."""
_MOST_NAMED, _LONGEST = 50, 100
_HERE = "the command line"
MODULE = re.compile(r"[^=]+:[A-Za-z_][\w.]*")
"""A module that is named in the place of a study."""
OF_MODULE = re.compile(rf"({MODULE.pattern}), (\w+)")
"""The name of the study that ``decide`` makes of a module and a kernel."""


def names(workspace: Path) -> list[str]:
    """The built-in studies and those of a workspace, sorted."""
    return sorted(files(workspace))


def files(workspace: Path) -> dict[str, Path]:
    """Name -> file of every study: those of a workspace, then the built-in ones, room by room, those in none first."""
    found: dict[str, Path] = {}
    for folder in _folders(workspace):
        for path in sorted(_studies(folder), key=_place):
            found.setdefault(path.stem, path)
    return found


def room(file: Path) -> str | None:
    """The folder of ``search_spaces/`` that holds a study; None: it lies beside these folders, or elsewhere."""
    return file.parent.name if file.parent.parent.name == FOLDER else None


def find(study: str, workspace: Path) -> Path:
    """The file of a study.

    Args:
        study: a name in the workspace's search_spaces/ or among the built-in studies, whatever room it lies in, the
            room and the name (``start/quickstart``), or the path of a YAML file.
        workspace: folder that may hold search_spaces/.

    Raises:
        ConfigError: there is no such file, and the message lists the studies that exist; or several have the name.
    """
    if study.endswith((".yaml", ".yml")):
        for path in (Path(study), workspace / study):
            if os.path.isfile(path) and path.suffix == ".yaml":
                return path.resolve()
    for folder in _folders(workspace) if study else ():
        found = [path for path in _studies(folder) if study.removesuffix(".yaml") in _words(path, folder)]
        if len(found) > 1:
            several = listed([path.relative_to(folder).as_posix() for path in found], _MOST_NAMED)
            rule = f"{len(found)} studies of {folder} are named {study!r}: {several}. Give one of them another name"
            raise ConfigError(
                [f"{rule}, or say which with its room, such as {_words(found[-1], folder)[-1]!r}."], _HERE
            )
        if found:
            return found[0].resolve()
    raise _unknown(study, workspace)


def _unknown(study: str, workspace: Path) -> ConfigError:
    known, shown = names(workspace), study if len(study) <= _LONGEST else f"{study[:_LONGEST]}..."
    own, built_in = (sorted(path.stem for path in _studies(each)) for each in _folders(workspace))
    where = (workspace / FOLDER).resolve()
    there = f"Studies in {where}: {listed(own, _MOST_NAMED)}. " if own else f"There are no studies in {where}. "
    if not workspace.is_dir():
        there = f"The workspace {workspace} is {'no folder' if workspace.exists() else 'not there'}. "
    if where != builtin.folder(FOLDER):
        there += f"Built-in studies: {listed(built_in, _MOST_NAMED)}."
    is_file = Path(study).suffix in (".yaml", ".yml")
    if is_file:
        looked = " and ".join(
            dict.fromkeys(str(folder.resolve()) for folder in (Path(), workspace, workspace / FOLDER))
        )
        known, there = [f"{name}.yaml" for name in known], f"Looked in {looked}."
    elif MODULE.fullmatch(study):
        known, there = [], f"A module becomes one by memsweep decide {shlex.quote(shown)} (--plan shows the trials)."
    elif (stored := OF_MODULE.fullmatch(study)) is not None:
        command = f"memsweep decide {shlex.quote(stored[1])} --kernel {shlex.quote(stored[2])} --plan"
        known, there = [], f"It is called like the study that decide makes of a module, which {command} shows."
    if near := _lying_here(study, workspace) or of_file(study, workspace) or did_you_mean(shown, known):
        there = there if is_file else ""
    return ConfigError([f"there is no {'file' if is_file else 'study'} {shown!r}.{near} {there}".rstrip()], _HERE)


def _lying_here(name: str, workspace: Path) -> str:
    """The end of a message on the name of a YAML file outside of search_spaces/; empty without such a file."""
    found = [path for path in (Path(f"{name}.yaml"), workspace / f"{name}.yaml") if os.path.isfile(path)]
    return f" Did you mean the file {shlex.quote(str(found[0]))}?" if found else ""


def of_file(name: str, workspace: Path) -> str:
    """The end of a message on the name of a Python file in the workspace: the modules in it; empty without any."""
    file, _, own = name.removesuffix(".py").partition(".")
    path = workspace / f"{file}.py"
    try:
        text = path.read_text(encoding="utf-8") if re.fullmatch(r"\w+(\.\w+)?", name) else ""
    except (OSError, ValueError):
        return ""
    classes = [f"{path.stem}:{each}" for each in re.findall(r"^class (\w+)\(.*Module\)", text, re.MULTILINE)]
    if f"{path.stem}:{own}" in classes:
        return f" Did you mean {path.stem}:{own}?"
    return f" A module is named with its class, such as {listed(classes, 5)}." if classes else ""


def included_from(study: Path) -> list[Path]:
    """Where the studies lie that a study may include, besides its own folder: rooms beside it, then the built-in ones.

    Args:
        study: its file.
    """
    own = study.parent.parent if room(study) else study.parent
    beside = [own, *_rooms(own)] if own.name == FOLDER else []
    return [folder for folder in dict.fromkeys((*beside, *_rooms(builtin.folder(FOLDER)))) if folder != study.parent]


def part_folders(study: Path) -> list[Path]:
    """The folders from which a study may choose parts: those beside it, and those beside its room."""
    places = [study.parent, *included_from(study)]
    rooms = {each for place in places if place.name == FOLDER for each in _rooms(place)}
    return [each for place in places for each in sorted(place.glob("[!.]*/")) if each.is_dir() and each not in rooms]


def included(study: Path) -> list[Path]:
    """The files of the studies that the file of a study includes by name."""
    from memsweep.config.load.bounded import read_yaml

    written = read_yaml(study.read_text("utf-8"))
    wanted = written.get("defaults") or [] if isinstance(written, dict) else []
    plain = [each for each in wanted if isinstance(each, str)]
    files = [folder / f"{name}.yaml" for name in plain for folder in (study.parent, *included_from(study))]
    first = {path.name: path for path in reversed(files) if path.is_file()}
    return list(reversed(first.values()))


def replaced(workspace: Path) -> dict[str, Path]:
    """The built-in studies in whose place one of the workspace stands, with its file; equal files replace nothing."""
    own, built_in = ({path.stem: path for path in _studies(folder)} for folder in _folders(workspace))
    return {
        name: file.resolve()
        for name, file in sorted(own.items())
        if name in built_in and file.read_bytes() != built_in[name].read_bytes()
    }


def _folders(workspace: Path) -> tuple[Path, Path]:
    """Where studies lie, those of the workspace first."""
    return workspace / FOLDER, builtin.folder(FOLDER)


def _rooms(folder: Path) -> list[Path]:
    """The folders of studies in a folder. One that is named as a section of a study holds parts of studies."""
    sections = {*keys(TrialConfig), *keys(SweepConfig)}
    return sorted(path for path in folder.glob("[!_.]*/") if path.is_dir() and path.name not in sections)


def _studies(folder: Path) -> list[Path]:
    return [path for each in (folder, *_rooms(folder)) for path in sorted(each.glob("*.yaml")) if path.is_file()]


def _words(path: Path, folder: Path) -> tuple[str, str]:
    """The names of a study: its file's name, and the same after its room."""
    return path.stem, path.relative_to(folder).as_posix().removesuffix(".yaml")


def _place(path: Path) -> tuple[bool, int, str]:
    """Orders the studies of a folder."""
    name = room(path) or ""
    return name != "", _ROOMS.index(name) if name in _ROOMS else len(_ROOMS), path.as_posix()


def description(text: str) -> str:
    """The comment at the top of a study file: paragraphs, each on one line, without marks and directives."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    kept = "\n".join(line for line in lines if not line.startswith(("@package", EDITOR)))
    return gated("\n".join(" ".join(part.split()) for part in kept.split("\n\n") if part.strip()))
