"""Commands as they work when they are typed in this folder: every advice that holds a command is made here."""

from __future__ import annotations

import shlex
from pathlib import Path

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
