"""Study files: their paths and the descriptions at their top."""

from __future__ import annotations

import os
from pathlib import Path

from memsweep.errors import ConfigError, did_you_mean, listed

FOLDER = "search_spaces"
EDITOR = "yaml-language-server:"
"""What a comment begins with that tells an editor the schema of the file."""
_MOST_NAMED, _LONGEST = 50, 100


def names(workspace: Path) -> list[str]:
    """The studies of a workspace, sorted: the YAML files of search_spaces/ (subfolders hold parts of studies)."""
    return sorted(path.stem for path in (workspace / FOLDER).glob("*.yaml"))


def find(study: str, workspace: Path) -> Path:
    """The file of a study.

    Args:
        study: a name in the workspace's search_spaces/, or the path of a YAML file.
        workspace: folder that holds search_spaces/.

    Raises:
        ConfigError: there is no such file; the message lists the studies that exist.
    """
    if study.endswith((".yaml", ".yml")):
        for path in (Path(study), workspace / study, workspace / FOLDER / study):
            if os.path.isfile(path) and path.suffix == ".yaml":
                return path.resolve()
    elif study and os.path.isfile(path := workspace / FOLDER / f"{study}.yaml"):
        return path.resolve()
    known, shown = names(workspace), study if len(study) <= _LONGEST else f"{study[:_LONGEST]}..."
    where = (workspace / FOLDER).resolve()
    if known:
        there = f"Studies in {where}: {listed(known, _MOST_NAMED)}."
    else:
        there = (
            f"There are no studies in {where}: run memsweep in the folder that holds {FOLDER}/, or give --workspace."
        )
    raise ConfigError([f"there is no study {shown!r}.{did_you_mean(shown, known)} {there}"], "the command line")


def description(text: str) -> str:
    """The comment at the top of a study file: paragraphs, each on one line, without marks and directives."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    kept = "\n".join(line for line in lines if not line.startswith(("@package", EDITOR)))
    return "\n".join(" ".join(part.split()) for part in kept.split("\n\n") if part.strip())
