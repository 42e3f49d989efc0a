"""Overrides that Python gives as a dict, as the words of a command line."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from memsweep.config.core.reflect import config_of, hints, keys
from memsweep.config.load.overrides import GRID
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError


def words_of(overrides: Sequence[object]) -> list[str]:
    """The words of overrides.

    Args:
        overrides: words as a shell gives them (``"model.width=2,4"``), or dicts of dotted paths and values: a list is
            an axis of the grid (of a field that holds a list, a list of such lists), all else is the field's value.

    Raises:
        ConfigError: something that is neither, or a value that no study file can hold.
    """
    words, problems = list[str](), list[str]()
    for each in overrides:
        if isinstance(each, str):
            words.append(each)
        elif isinstance(each, Mapping):
            for path, value in each.items():
                try:
                    words.append(_word(str(path), value))
                except TypeError as error:
                    problems.append(f"the override {path!r} {error}.")
        else:
            problems.append(
                f"an override is text or a dict, got {type(each).__name__}. Write 'model.width=2,4' or "
                "{'model.width': [2, 4]}."
            )
    if problems:
        raise ConfigError(problems, "the overrides")
    return words


def _word(path: str, value: Any) -> str:
    if path.startswith("~"):  # removes the field, whatever the value
        return path
    value = plain(value)
    axis = isinstance(value, list) and _is_axis(path, value)
    return f"{GRID}.{path}={_text(value)}" if axis else f"{path}={_text(value)}"


def _is_axis(path: str, values: list[Any]) -> bool:
    """Whether a list is several values of a field, and not the one value of a field that holds a list."""
    section, _, key = path.partition(".")
    field = keys(TrialConfig).get(section)
    config = None if field is None else config_of(TrialConfig, field, {})
    holds_lists = False
    if config is not None and key in keys(config):
        holds_lists = typing.get_origin(hints(config)[keys(config)[key].name]) in (tuple, list)
    return field is not None and (not holds_lists or any(isinstance(value, list) for value in values))


def plain(value: Any) -> Any:
    """A value as a YAML file holds it: arrays, ranges and tuples are lists, NumPy's numbers Python's, paths text.

    A class or function becomes the name by which a config names it.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple, range)):
        return [plain(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if callable(value):
        from memsweep.studies.cells import name_of_callable

        return name_of_callable(value)
    return str(value) if isinstance(value, PurePath) else value


def _text(value: Any) -> str:
    """A plain value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(_pairs(value))}}}"
    raise TypeError(f"has a value of type {type(value).__name__}, which no study file can hold")


def _pairs(value: Mapping[Any, Any]) -> Iterator[str]:
    for key, inner in value.items():
        if not re.fullmatch(r"[A-Za-z_][\w./:-]*", str(key)):
            raise TypeError(f"has a key {key!r}, which is no name of a field")
        yield f"{key}: {_text(inner)}"


def _quoted(text: str) -> str:
    # backslashes before a quote, and at the end, would escape it
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return f"'{escaped}'"
