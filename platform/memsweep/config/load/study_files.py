"""Study files: their paths and the descriptions at their top."""

from __future__ import annotations

import os
from pathlib import Path

from memsweep import builtin
from memsweep.errors import ConfigError, did_you_mean, listed
from memsweep.gate import gated

FOLDER = builtin.STUDIES
EDITOR = "yaml-language-server:"
"""What a comment begins with that tells an editor the schema of the file."""
_MOST_NAMED, _LONGEST = 50, 100


def names(workspace: Path) -> list[str]:
    """The built-in studies and those of a workspace, sorted: the YAML files (subfolders hold parts of studies)."""
    return sorted({path.stem for folder in _folders(workspace) for path in folder.glob("*.yaml")})


def find(study: str, workspace: Path) -> Path:
    """The file of a study.

    Args:
        study: a name in the workspace's search_spaces/ or among the built-in studies, or the path of a YAML file.
        workspace: folder that may hold search_spaces/.

    Raises:
        ConfigError: there is no such file; the message lists the studies that exist.
    """
    if study.endswith((".yaml", ".yml")):
        for path in (Path(study), workspace / study, *(folder / study for folder in _folders(workspace))):
            if os.path.isfile(path) and path.suffix == ".yaml":
                return path.resolve()
    elif study:
        for folder in _folders(workspace):
            if os.path.isfile(path := folder / f"{study}.yaml"):
                return path.resolve()
    known, shown = names(workspace), study if len(study) <= _LONGEST else f"{study[:_LONGEST]}..."
    own, built_in = ([path.stem for path in sorted(each.glob("*.yaml"))] for each in _folders(workspace))
    where = (workspace / FOLDER).resolve()
    there = f"Studies in {where}: {listed(own, _MOST_NAMED)}. " if own else f"There are no studies in {where}. "
    if where != builtin.folder(FOLDER):
        there += f"Built-in studies: {listed(built_in, _MOST_NAMED)}."
    is_file = Path(study).suffix in (".yaml", ".yml")
    if is_file:
        looked = " and ".join(
            dict.fromkeys(str(folder.resolve()) for folder in (Path(), workspace, workspace / FOLDER))
        )
        known, there = [f"{name}.yaml" for name in known], f"Looked in {looked}."
    raise ConfigError(
        [f"there is no {'file' if is_file else 'study'} {shown!r}.{did_you_mean(shown, known)} {there}".rstrip()],
        "the command line",
    )


def replaced(workspace: Path) -> dict[str, Path]:
    """The built-in studies in whose place one of the workspace stands, with its file; equal files replace nothing."""
    built_in = builtin.folder(FOLDER)
    pairs = {path: built_in / path.name for path in sorted((workspace / FOLDER).glob("*.yaml"))}
    return {
        own.stem: own.resolve()
        for own, theirs in pairs.items()
        if theirs.is_file() and own.read_bytes() != theirs.read_bytes()
    }


def _folders(workspace: Path) -> tuple[Path, Path]:
    """Where studies lie, those of the workspace first."""
    return workspace / FOLDER, builtin.folder(FOLDER)


def description(text: str) -> str:
    """The comment at the top of a study file: paragraphs, each on one line, without marks and directives."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    kept = "\n".join(line for line in lines if not line.startswith(("@package", EDITOR)))
    return gated("\n".join(" ".join(part.split()) for part in kept.split("\n\n") if part.strip()))
