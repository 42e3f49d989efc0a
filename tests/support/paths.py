"""Where things lie, for tests and for the processes that they start."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent

_MODULES = [ROOT / "platform", *(path for path in sorted((TESTS / "support").glob("**/")) if path.name[0] not in "._")]


def python_path(*folders: Path) -> str:
    """``PYTHONPATH`` of a process that imports the engine, ``tests/support`` and modules of ``folders``."""
    return os.pathsep.join(map(str, [*folders, *_MODULES]))


def docker_program(name: str) -> ModuleType:
    """A program of ``docker/``, as a module."""
    spec = importlib.util.spec_from_file_location(f"docker_{name}", ROOT / "docker" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def committed() -> list[str]:
    """The files of this checkout as git has them, with those that are new and not ignored, relative to its root."""
    told = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [name for name in told.split("\0") if name and (ROOT / name).is_symlink() | (ROOT / name).is_file()]


# In pieces, so that no scan finds this file.
_PRIVATE = (
    *(r"(?<![\w./-])/wor" r"k/", r"\.\./" r"shared\b", r"/op" r"t/(?:wheels|pypi)"),
    r"(?:pypi|pytorch|debian)\." r"org",
    # homes of users, but of the image's
    *(r"/ho" r"me/(?!memsweep/)\w[\w.-]*/", r"/Use" r"rs/\w", r"/ro" r"ot/(?!\.cache/pip\b)"),
)


def private(content: bytes) -> list[str]:
    """The places of one machine, of one user, or of where a program was written, that a file names."""
    here = [str(ROOT), sysconfig.get_path("stdlib"), *({str(Path.home())} - {"/", "/root"})]
    pattern = "|".join([*_PRIVATE, *map(re.escape, here)])
    return [match.group().decode() for match in re.finditer(pattern.encode(), content)]
