"""The tasks and studies that come with memsweep.

``tasks`` and ``search_spaces`` lie beside this file. In a checkout they are links to the folders of these names at its
top; a wheel, and what ``memsweep submit`` uploads, has the files themselves.
"""

from __future__ import annotations

from pathlib import Path

TASKS, STUDIES = "tasks", "search_spaces"
"""The folders here, and in a workspace."""


def folder(name: str) -> Path:
    """Where the built-in ones lie, however memsweep was installed, links resolved.

    Args:
        name: ``TASKS`` or ``STUDIES``.
    """
    return (Path(__file__).parent / name).resolve()
