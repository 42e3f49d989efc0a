"""What the interpolations of a study would grow to: a chain of forty ``${a}${a}`` is a terabyte."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memsweep.config.core.problems import show
from memsweep.config.load.yaml_text import UnsafeError, calls

MOST_GROWTH = 100_000
"""Values and characters of text that the interpolations of a study may add to it."""
_MOST_HOPS = 100

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_MISSING = object()
Path = tuple[Any, ...]


def check(data: Mapping[str, Any]) -> bool:
    """Whether there are interpolations in plain data; those must call nothing and stay small when they are spelled out.

    Whether what they name is there is the resolver's business.

    Raises:
        UnsafeError: one calls a resolver or is built of others, or all of them stand for too much.
    """
    if not _any(data):
        return False
    sizes = _Sizes(data)
    if sizes.of(data, ()) - sizes.plain > MOST_GROWTH:
        raise UnsafeError(f"grows by more than {MOST_GROWTH:,} values and characters when its ${{...}} are spelled out")
    return True


def _any(value: Any) -> bool:
    if isinstance(value, str):
        return "${" in value
    return any(_any(inner) for _, inner in _items(value))


class _Sizes:
    """Sizes of values with their interpolations spelled out, each computed once.

    Args:
        root: what the interpolations are about.

    Attributes:
        plain: size of what was looked at, as it is written.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.plain = 0
        self._root = root
        self._known: dict[Path, int] = {}

    def of(self, value: Any, path: Path) -> int:
        """The size of the value at a path."""
        if path not in self._known:
            self._known[path] = 1  # while it is computed: what refers to itself is refused by the resolver
            own = len(value) + 1 if isinstance(value, str) else 1
            self.plain += own
            parts = [self.of(inner, (*path, key)) for key, inner in _items(value)]
            if isinstance(value, str) and "${" in value:
                parts += [self.of(self._at(target), target) for target in self._targets(value, path)]
            # no size need be larger than what is refused, whatever is written out
            self._known[path] = min(own + sum(parts), self.plain + MOST_GROWTH + 1)
        return self._known[path]

    def _targets(self, text: str, path: Path) -> list[Path]:
        if calls(text):
            raise UnsafeError(f"has {show(text)}; ${{...}} may name another value of the study, but call nothing")
        names = _REFERENCE.findall(text)
        if text.count("${") != len(names):
            raise UnsafeError(f"has {show(text)}; a ${{...}} must be closed and hold no other one")
        return [_target(name, path) for name in names]

    def _at(self, target: Path) -> Any:
        """What a path leads to, through values that are interpolations themselves."""
        for _ in range(_MOST_HOPS):
            node: Any = self._root
            for depth, key in enumerate(target):
                node = next((inner for name, inner in _items(node) if str(name) == key), _MISSING)
                whole = _REFERENCE.fullmatch(node.strip()) if isinstance(node, str) else None
                if whole and depth + 1 < len(target):
                    target = (*_target(whole[1], target[: depth + 1]), *target[depth + 1 :])
                    break
            else:
                return node
        raise UnsafeError(f"has a ${{...}} that leads through more than {_MOST_HOPS} others")


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def _target(name: str, path: Path) -> Path:
    """The absolute path of ``a.b``, ``a[0]`` or the relative ``..b`` (two dots: beside the parent) at a path."""
    name = name.strip()
    dots = len(name) - len(name.lstrip("."))
    keys = tuple(re.findall(r"[^.\[\]]+", name))
    return (*map(str, path[: max(0, len(path) - dots)]), *keys) if dots else keys
