"""The Python files of a workspace that other ones import, found by reading them; nothing is run."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from memsweep.sweep.planning.sources.source_graph import OTHER_CODE

CODE = OTHER_CODE | {".py", ".pyi", ".typed"}
"""Suffixes of code; the files of other languages are in the identities of the trials whose modules lie beside them."""
_ENGINE = __name__.partition(".")[0]
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def code_below(folder: Path, suffixes: Collection[str] = CODE) -> Iterator[Path]:
    """The files of code in a folder, sorted, but for hidden ones, caches and environments; no link is followed."""
    for place, folders, names in os.walk(folder):
        kept = (name for name in folders if not _is_left_out(Path(place, name)))
        folders[:] = sorted(kept)
        yield from (Path(place, name) for name in sorted(names) if Path(name).suffix in suffixes and name[0] != ".")


def _is_left_out(folder: Path) -> bool:
    return folder.name[0] == "." or folder.name in {"__pycache__", *_INSTALLED} or (folder / "pyvenv.cfg").exists()


def with_imported(files: Iterable[Path], root: Path, folders: Collection[Path]) -> tuple[set[Path], dict[Path, Path]]:
    """These files with all that they import, at any depth, from a workspace.

    A package is taken whole, because it may find its own parts in any way.

    Args:
        files: of code, in the workspace.
        root: the workspace.
        folders: further folders on Python's path.

    Returns:
        The files; and by file the first place outside of the workspace, and outside of what is installed, that it
        imports from.
    """
    reached, waiting, outside = set[Path](), list(files), dict[Path, Path]()
    while waiting:
        file = waiting.pop()
        if file in reached or not file.is_file():
            continue
        reached.add(file)
        waiting += beside(file)
        near = [parent for parent in file.parents if parent.is_relative_to(root)]
        for name in _names(file):
            found = located(name, [*near, *folders])
            waiting += found
            if not found and (place := _elsewhere(name)) is not None:
                if place.is_relative_to(root):
                    waiting.append(place)
                else:
                    outside.setdefault(file, place)
    return reached, outside


def beside(file: Path) -> list[Path]:
    """The files in other languages beside a Python file: compiled parts, and what it compiles."""
    return [path for path in sorted(file.parent.iterdir()) if path.suffix in OTHER_CODE and path.is_file()]


def located(name: str, folders: Iterable[Path]) -> list[Path]:
    """The files of the module or package that a dotted name begins with, in the first folder that has it."""
    top = name.partition(".")[0]
    if not top or top == _ENGINE:
        return []
    for folder in folders:
        if (folder / f"{top}.py").is_file():
            return [folder / f"{top}.py"]
        package = folder / top
        if (package / "__init__.py").is_file() or (package.is_dir() and not _is_installed(top)):
            return [*code_below(package)]
    return []


def _names(file: Path) -> set[str]:
    """Dotted names of the modules that a file imports anywhere; of its own package none, which is taken whole."""
    try:
        tree = ast.parse(file.read_bytes()) if file.suffix == ".py" else ast.Module([], [])
    except (SyntaxError, ValueError):  # nothing can import it
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
        elif isinstance(node, ast.ImportFrom):  # of a file that is no part of a package it is the neighbour
            names |= {node.module} if node.module else {alias.name for alias in node.names}
    return names


def _elsewhere(name: str) -> Path | None:
    """The file of a module that lies on this process's path and is neither installed nor Python's own."""
    top = name.partition(".")[0]
    if not top or top == _ENGINE or top in sys.stdlib_module_names or _is_installed(top):
        return None
    origin = _origin(top)
    return Path(origin) if origin is not None and Path(origin).is_file() else None


def _is_installed(top: str) -> bool:
    origin = _origin(top)
    if top in sys.stdlib_module_names or origin in ("built-in", "frozen"):
        return True
    if origin is None:
        return False
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    return bool(_INSTALLED.intersection(Path(origin).parts)) or Path(origin).resolve().is_relative_to(standard)


def _origin(top: str) -> str | None:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None else None
