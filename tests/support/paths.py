"""Where things lie, for tests and for the processes that they start."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent

_MODULES = [ROOT / "platform", *(path for path in sorted((TESTS / "support").glob("**/")) if path.name[0] not in "._")]


def python_path(*folders: Path) -> str:
    """``PYTHONPATH`` of a process that imports the engine, ``tests/support`` and modules of ``folders``."""
    return os.pathsep.join(map(str, [*folders, *_MODULES]))
