"""What a file of code imports: local files, whose content counts, and installed libraries, whose versions do."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

CODE = frozenset({".py", ".pyx", ".so", ".pyd", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".cuh"})
"""Suffixes of files of code."""
_LIBRARIES = tuple({Path(path).resolve() for path in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))})
OURS = frozenset({"memsweep", *sys.stdlib_module_names})
"""Top names of modules that are no part's own: memsweep's are judged file by file, Python's are left out."""

File = tuple[str, Path]
"""A file and its name, which is the same on every machine; two files of one name are two."""


def with_imports(files: set[File]) -> tuple[frozenset[File], frozenset[str]]:
    """These files and the local ones that they import, at any depth; and the installed libraries that they import."""
    found, waiting = set(files), list(files)
    installed: set[str] = set()
    seen: set[str] = set()
    while waiting:
        for top in _imports(waiting.pop()[1]) - OURS - seen:
            seen.add(top)
            local = _local(top)
            if local is None:
                installed |= _distributions(top)
            else:
                waiting += local - found
                found |= local
    return frozenset(found), frozenset(installed)


def _imports(file: Path) -> set[str]:
    """Top names of all modules that a file imports, also within functions."""
    found: set[str] = set()
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes()))) if file.suffix == ".py" else []
    except (SyntaxError, ValueError):  # nothing can have imported it
        return found
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _local(top: str) -> set[File] | None:
    """The files of a module that is no installed library; None for one that is, or that is not there."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [Path(place).resolve() for place in (spec.submodule_search_locations or [spec.origin or ""])]
    if any(not place.exists() or _installed(place) for place in places):
        return None
    if spec.submodule_search_locations:
        return package_files(places)
    return {(place.name, place) for place in places if place.suffix in CODE}


def _installed(place: Path) -> bool:
    return any(place.is_relative_to(library) for library in _LIBRARIES) or bool(
        {"site-packages", "dist-packages"}.intersection(place.parts)
    )


def package_files(folders: Iterable[str | Path]) -> set[File]:
    """All code of a package."""
    resolved = [Path(folder).resolve() for folder in folders]
    return {(str(path.relative_to(folder.parent)), path) for folder in resolved for path in code_below(folder)}


def code_below(folder: Path) -> list[Path]:
    """The files of code in a folder, at any depth."""
    return sorted(path for path in folder.rglob("*") if path.suffix in CODE and path.is_file())


@functools.cache
def _distributions(top: str) -> frozenset[str]:
    """The installed distributions that a top-level module comes from."""
    if version(top):
        return frozenset({top})
    return frozenset(importlib.metadata.packages_distributions().get(top, ()))


@functools.cache
def version(name: str) -> str:
    """The version of an installed distribution; empty where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
