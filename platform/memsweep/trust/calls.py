"""Calls that a document names, found in its plain data; and their files, found without an import."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from memsweep import builtin, registry

FIELD = "factory"
"""The field of a config whose value is imported and called."""
_SIZES = ("width",)
"""Fields beside it that are numbers alone: another size is no other call."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""A folder of packages is nobody's workspace, wherever it lies."""


@dataclass(frozen=True)
class Call:
    """Something that a document names to be imported and called.

    Attributes:
        target: as it is written, ``my_nets:MinGRU`` or ``nets/gru.py:MinGRU``.
        settings: what decides what the call does, as text: the section that holds it, or the study.
    """

    target: str
    settings: str

    @cached_property
    def place(self) -> Path | None:
        """The file or package in a folder of users that it names; None where Python's own path decides."""
        return _place(self.target.partition(":")[0])

    @cached_property
    def in_workspace(self) -> bool:
        return self.place is not None and in_workspace(self.place)

    @cached_property
    def shown(self) -> str:
        """``evil:Net (/any/path/evil.py)``"""
        place = self.place or _installed(self.target.partition(":")[0].partition(".")[0])
        return f"{self.target} ({place or 'no file here'})"

    @cached_property
    def digest(self) -> str:
        """A hash of what would run: the call, and the content of its files where they are not the workspace's."""
        place = self.place
        if place is None:
            code = "installed"
        elif self.in_workspace:
            code = place.relative_to(_workspace()).as_posix()
        else:
            code = _hash_of_files(place)
        return hashlib.sha256(json.dumps([self.target, self.settings, code]).encode()).hexdigest()[:32]


def calls_of(sections: Any, settings: str = "") -> dict[str, Call]:
    """The calls that plain data name, by their digests.

    Args:
        sections: of a study or of stored trials, at any depth; axes of a grid (``model.factory: [...]``) as well.
        settings: of all calls; empty: of each call the section that holds it.
    """
    found = (
        Call(target, settings or json.dumps(_without_sizes(section), sort_keys=True, default=str))
        for target, section in _named(sections)
    )
    return {call.digest: call for call in dict.fromkeys(found)}


def in_workspace(path: Path) -> bool:
    """Whether a file, or what a link leads to, lies in the workspace.

    Of a home folder, or one above it, only the files in it, in its search_spaces/ and in the rooms there count: all
    else that a person ever fetched lies below it.
    """
    root, home = _workspace(), Path(os.path.expanduser("~")).resolve()
    if not path.is_relative_to(root) or _INSTALLED.intersection(path.parts):
        return False
    return not home.is_relative_to(root) or path.parent == root or root / builtin.STUDIES in path.parents[:2]


def _workspace() -> Path:
    return next(iter(registry.folders()), Path()).resolve()


def _named(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each name of a callable, with the section that holds it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if str(key).rpartition(".")[2] == FIELD:
                yield from ((text, value) for text in _texts(inner) if ":" in text)
            else:
                yield from _named(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _without_sizes(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in _SIZES}


def _place(module: str) -> Path | None:
    """As ``memsweep.models.module.factory`` looks for it: a file by its path, or a module in a folder of users."""
    folders = registry.folders()
    if module.endswith(".py") or "/" in module:
        found = (path for folder in (Path(), *folders) if (path := folder / module).is_file())
        return next((path.resolve() for path in found), None)
    words = module.split(".")
    for folder in folders:
        top = folder / words[0]
        if top.with_name(f"{top.name}.py").is_file() or (top.is_dir() and any(top.glob("*.py"))):
            inner = folder.joinpath(*words)
            files = (inner.with_name(f"{inner.name}.py"), inner / "__init__.py", inner, top)
            return next(path for path in files if path.exists()).resolve()
    return None


def _installed(top: str) -> str:
    """Where Python would find a module, which is not imported for that; empty where it is not there."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ""
    return str(spec.origin or "") if spec is not None else ""


def _hash_of_files(file: Path) -> str:
    """A hash of a file, and of the files beside and below it that it imports."""
    finder = ModuleFinder(path=[str(file.parent)])
    try:
        finder.run_script(os.fspath(file))
    except (OSError, SyntaxError, ValueError, RecursionError):  # it will not run, either
        return hashlib.sha256(file.read_bytes() if file.is_file() else b"").hexdigest()
    files = sorted({Path(name) for module in finder.modules.values() if (name := getattr(module, "__file__", None))})
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)).hexdigest()
