"""Commands as they work when they are typed in this folder: every advice that holds a command is made here."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import default_results

LAUNCHES = frozenset({"sweep", "decide", "atlas", "resume", "extend", "retry", "measure"})
"""The verbs that compute: on the cluster that a person named, where they named one."""


def typed(
    verb: str, study: str, results: Location, *flags: str, workspace: Path | None = None, address: str | None = None
) -> str:
    """A command with what is not the default.

    Args:
        verb: of the command.
        study: its name.
        results: the folder of all studies.
        flags: more words.
        workspace: folder of tasks/, for a command that needs it.
        address: of the Ray cluster that a person gave; no word of a verb that only reads.
    """
    words = ["memsweep", verb, study, *flags]
    for name, value in _places(verb, results, workspace, address):
        words += [f"--{name}", value]
    return shlex.join(words)


def called(
    verb: str, results: Location, *overrides: str, workspace: Path | None = None, address: str | None = None
) -> str:
    """The call of Python in place of a command, for a study that is a dict there: ``study``.

    Args:
        verb: of the function.
        results, workspace, address: as of ``typed``.
        overrides: of the study.
    """
    words = ["study", *map(repr, overrides)]
    words += [f"{name}={value!r}" for name, value in _places(verb, results, workspace, address)]
    return f"ms.{verb}({', '.join(words)})"


def _places(verb: str, results: Location, workspace: Path | None, address: str | None) -> Iterator[tuple[str, str]]:
    """The settings that are not the default."""
    usual, at_home = False, False
    with contextlib.suppress(FileNotFoundError):  # the folder of this process is gone, as that of a job may be
        usual = results == Location.at(default_results())
        at_home = workspace is not None and workspace.resolve() == Path.cwd()
    if not usual:
        yield "results", results.uri
    if workspace is not None and not at_home:
        yield "workspace", str(workspace)
    if address and verb in LAUNCHES:
        yield "address", address


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
