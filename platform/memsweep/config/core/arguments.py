"""``Arguments``: the field of a Config whose keys the engine does not know, such as the arguments of a user's class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from memsweep.config.core.problems import Problem, join, show

_PLAIN = (bool, int, float, str, type(None))


class Arguments(Mapping[str, Any]):
    """Plain values by name, which never change: numbers, text, truth values, null, lists and mappings of these.

    Two are equal, and have one hash, if they hold the same, in whatever order.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = {name: _frozen((values or {})[name]) for name in sorted(values or {})}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"Arguments({self._values})"

    def plain(self) -> dict[str, Any]:
        """The values as new dicts and lists, as a callable may expect them."""
        return {name: _thawed(value) for name, value in self._values.items()}


def arguments_from(data: Any, path: str, problems: list[Problem]) -> Arguments | None:
    """``data`` as arguments, or None with the reasons added to ``problems``."""
    if not isinstance(data, Mapping):
        problems.append(Problem(path, "must be a mapping of arguments to their values: {name: value}", show(data)))
        return None
    before = len(problems)
    problems += _problems(data, path)
    return Arguments(data) if len(problems) == before else None


def _problems(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                yield Problem(path, "must have names that are text", show(name))
            yield from _problems(inner, join(path, name))
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _problems(inner, f"{path}[{position}]")
    elif not isinstance(value, _PLAIN):
        yield Problem(path, "must be a number, text, true, false, null, or a list or mapping of these", show(value))
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(path, "must be a finite number", show(value))


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Arguments(value)
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, Arguments):
        return value.plain()
    return list(map(_thawed, value)) if isinstance(value, tuple) else value
