"""The tasks and studies that come with memsweep, and the rows of the small atlas.

``tasks``, ``search_spaces`` and ``atlas`` lie beside this file. In a checkout the first two are links to the folders of
these names at its top; a wheel, and what ``memsweep submit`` uploads, has the files themselves.
"""

from __future__ import annotations

from pathlib import Path

TASKS, STUDIES, ATLAS = "tasks", "search_spaces", "atlas"
"""The folders here, and in a workspace."""


def folder(name: str) -> Path:
    """Where the built-in ones lie, however memsweep was installed, links resolved.

    Args:
        name: ``TASKS``, ``STUDIES`` or ``ATLAS``.
    """
    return (Path(__file__).parent / name).resolve()
