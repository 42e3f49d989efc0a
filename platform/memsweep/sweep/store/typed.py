"""Commands as they work when they are typed in this folder: every advice that holds a command is made here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import default_results


def typed(verb: str, study: str, results: Location, *flags: str, workspace: Path | None = None) -> str:
    """A command with what is not the default.

    Args:
        verb: of the command.
        study: its name.
        results: the folder of all studies.
        flags: more words.
        workspace: folder of tasks/, for a command that needs it.
    """
    words = ["memsweep", verb, study, *flags]
    words += [] if results == Location.at(default_results()) else ["--results", results.uri]
    words += [] if workspace is None or workspace.resolve() == Path.cwd() else ["--workspace", str(workspace)]
    return shlex.join(words)


def way_to(workspace: Path, study: Location) -> str:
    """The workspace as a plan keeps it: from the study's folder, so that both may move together.

    Args:
        workspace: folder of tasks/.
        study: the study's folder; one in a bucket keeps the whole path.
    """
    return str(workspace) if study.local is None else os.path.relpath(workspace, study.local)


def workspace_of(provenance: Mapping[str, Any], study: Location) -> Path | None:
    """The workspace of a stored plan; None where the plan does not say, or the folder is no longer there."""
    kept = str(provenance.get("workspace") or "")
    folder = Path(os.path.normpath(Path(study.local or Path(), kept))) if kept else None
    return folder if folder is not None and folder.is_dir() else None
