"""YAML that stays as small as it is written: aliases, merge keys and ``${...}`` repeat what they name.

A few hundred bytes can name a tree of billions of values. Its size is counted from the names before anything is copied.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

MOST_BYTES = 1_000_000
MOST_ADDED = 1_000_000
"""Characters that aliases and references may add to what is written."""
PER_VALUE = 10
"""Characters that a value counts for beside its own text."""
MOST_INCLUDED = 200
"""Times that Hydra may ask for a file of a study, which it does up to three times wherever a defaults list has one."""
MOST_LEVELS = 32
MOST_PARTS = 2_000
"""Brackets and commas of one override: the time that Hydra's parser takes grows with their square."""

REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_MOST_HOPS = 100

_Path = tuple[str | int, ...]


class StudyFileError(Exception):
    """A study file that cannot be read; the message is the end of a sentence that names the file."""


def read_yaml(stream: str | IO[str]) -> Any:
    """The plain data of a YAML document.

    Raises:
        StudyFileError: it is too large, or aliases make it so.
        yaml.YAMLError: it is no YAML.
    """
    import yaml  # type: ignore[import-untyped]

    return yaml.load(stream, Loader=_bounded(yaml.SafeLoader))


@contextmanager
def bounded_reading() -> Iterator[None]:
    """Whatever OmegaConf and Hydra read of YAML is held to the same bounds: a study includes other files."""
    from hydra._internal.config_repository import CachingConfigRepository
    from omegaconf import _utils

    usual, load, asked = _utils.get_yaml_loader, CachingConfigRepository.load_config, itertools.count(1)

    def counted(repository: Any, config_path: str) -> Any:
        if next(asked) > MOST_INCLUDED:
            raise StudyFileError("includes too many files, beside one another or one in another. Make fewer of them")
        return load(repository, config_path)

    _utils.get_yaml_loader = lambda: _bounded(usual())
    CachingConfigRepository.load_config = counted
    try:
        yield
    finally:
        _utils.get_yaml_loader, CachingConfigRepository.load_config = usual, load


def check_size(stream: Any) -> None:
    """Refuses an open file that is too large to be read.

    Raises:
        StudyFileError: it is.
    """
    if hasattr(stream, "fileno") and os.fstat(stream.fileno()).st_size > MOST_BYTES:
        raise StudyFileError(f"is larger than {MOST_BYTES:,} bytes. Make several studies of it")


def check_references(data: Mapping[str, Any]) -> None:
    """Refuses data that their ``${...}`` would make too large.

    Raises:
        StudyFileError: they would.
    """
    _References(data).check()


def too_many_parts(word: str) -> str:
    """Why an override is not even parsed, as the end of a sentence; empty where it is."""
    level = deepest = parts = 0
    for sign in _QUOTED.sub("", word):
        level += (sign in "[{(") - (sign in ")}]")
        deepest, parts = max(deepest, level), parts + (sign in "[{(,")
    if deepest > MOST_LEVELS:
        return f"is nested more than {MOST_LEVELS} levels deep. Make it flatter"
    if parts > MOST_PARTS:
        return f"has more than {MOST_PARTS:,} parts. Write them into a study file, or as range(1, 5000)"
    return ""


def _bounded(usual: type) -> type:
    """A YAML loader that counts a document before it constructs anything."""

    class Bounded(usual):
        def __init__(self, stream: Any) -> None:
            check_size(stream)
            super().__init__(stream)

        def get_single_node(self) -> Any:
            node = super().get_single_node()
            if node is not None:
                _check_aliases(node)
            return node

    # OmegaConf's constructs paths of Python
    plain = {tag: make for tag, make in usual.yaml_constructors.items() if "python/" not in str(tag)}  # type: ignore[attr-defined]
    Bounded.yaml_constructors = plain
    return Bounded


def _check_aliases(root: Any) -> None:
    """Refuses a document that its aliases make too large: an alias is a node that stands in several places."""
    known = dict[int, int]()
    written = 0

    def size(node: Any) -> int:
        nonlocal written
        if id(node) in known:
            if not known[id(node)]:
                raise StudyFileError("has an alias of something that contains it. Write it without the alias")
            return known[id(node)]
        known[id(node)] = 0  # as long as it is not complete
        own = PER_VALUE + (len(node.value) if node.id == "scalar" else 0)
        written += own
        known[id(node)] = own + sum(map(size, _inside(node)))
        return known[id(node)]

    _refuse_growth(size(root) - written, "aliases")


def _inside(node: Any) -> Iterator[Any]:
    if node.id == "sequence":
        yield from node.value
    elif node.id == "mapping":
        for pair in node.value:
            yield from pair


def _refuse_growth(added: int, what: str) -> None:
    if added > MOST_ADDED:
        raise StudyFileError(
            f"grows by more than {MOST_ADDED:,} characters when its {what} are written out. Name fewer things twice"
        )


class _References:
    """The size of plain data once each ``${...}`` is replaced by what it names."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._known: dict[_Path, int] = {}
        self._added = self._steps = 0

    def check(self) -> None:
        self._size(())

    def _size(self, path: _Path) -> int:
        if path in self._known:  # 0: it contains itself, which OmegaConf refuses
            return self._known[path]
        self._known[path], value = 0, self._at(path)
        size = PER_VALUE
        if isinstance(value, str):
            named = sum(self._size(place) for name in REFERENCE.findall(value) if (place := self._place(name, path)))
            self._added += named
            _refuse_growth(self._added, "${...}")
            size += len(value) + named
        else:
            size += sum(self._size((*path, key)) for key in _keys(value))
        self._known[path] = size
        return size

    def _place(self, name: str, path: _Path, hops: int = 0) -> _Path | None:
        """The place that a reference names, seen from the place where it stands; None where there is none."""
        self._steps += 1
        _refuse_growth(self._steps * PER_VALUE, "${...}")
        dots = len(name) - len(name.lstrip("."))
        place = path[: max(0, len(path) - dots)] if dots else ()
        for key in re.findall(r"[^.\[\]]+", name):
            value = self._at(place)
            if isinstance(value, str):  # a reference to a section, whose fields are named below it
                inner = REFERENCE.fullmatch(value)
                through = self._place(inner[1], place, hops + 1) if inner and hops < _MOST_HOPS else None
                if through is None:
                    return None
                place, value = through, self._at(through)
            found = next((each for each in _keys(value) if str(each) == key), None)
            if found is None:
                return None
            place = (*place, found)
        return place

    def _at(self, path: _Path) -> Any:
        value: Any = self._data
        for key in path:
            value = value[key]
        return value


def _keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.keys()
    return range(len(value)) if isinstance(value, list | tuple) else ()
