"""Composition of study files by Hydra, and the interpolations in them; every error names the file and what is wrong."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memsweep.config.core.problems import show
from memsweep.errors import ConfigError

MOST_BYTES = 1_000_000
MOST_LEVELS = 32
MOST_GROWTH = 100_000
"""Characters that the interpolations of a study may add to it: forty lines of ``${a}${a}`` stand for a terabyte."""

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")


class StudyFileError(Exception):
    """A study file that cannot be read; the message is the end of a sentence that names the file."""


def read(path: Path, groups: Sequence[str]) -> dict[str, Any]:
    """The composed study file as plain data, interpolations not yet resolved.

    Args:
        path: the study file; its folder is Hydra's search path.
        groups: overrides that choose files of config groups.

    Raises:
        ConfigError: the file is no YAML mapping, or it includes a file that does not exist.
    """
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with _translate_errors(path), initialize_config_dir(config_dir=str(path.parent), version_base=None):
        _check_file(path)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*missing `_self_`")
            composed = compose(config_name=path.stem, overrides=list(groups))
        plain = OmegaConf.to_container(composed, resolve=False)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}


def resolve(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The same data with every ``${...}`` replaced by the value that it names.

    Raises:
        ConfigError: an interpolation names nothing, itself, or too much; or the data are nested too deeply.
    """
    with _translate_errors(path):
        return _Interpolations(data).resolve(data, ())


class _Interpolations:
    """Replaces ``${a.b}``, ``${a[0]}`` and the relative ``${..b}`` by values of the same data.

    OmegaConf resolves them too, but bounds neither the size of the result nor what a reference may call: a study
    that reads the environment would be another study on every machine.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._room = MOST_GROWTH
        self._open: list[tuple[str, ...]] = []

    def resolve(self, value: Any, path: tuple[str, ...]) -> Any:
        """The value at a path of the data, its interpolations replaced."""
        if len(path) > MOST_LEVELS:
            raise StudyFileError(f"is nested more than {MOST_LEVELS} levels deep. Make it flatter")
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    raise StudyFileError(f"has the key {key!r}, which is no text. Write it in quotes")
            return {key: self.resolve(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve(inner, (*path, str(index))) for index, inner in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        if value.count("${") != len(_REFERENCE.findall(value)):
            raise StudyFileError(f"has {show(value)}; a ${{...}} must be closed and hold no other one")
        if whole := _REFERENCE.fullmatch(value.strip()):
            return self._value_of(whole[1], path)  # keeps its type; inside a longer text it becomes text
        return _REFERENCE.sub(lambda match: str(self._value_of(match[1], path)), value)

    def _value_of(self, name: str, path: tuple[str, ...]) -> Any:
        if ":" in name:
            raise StudyFileError(f"has ${{{name}}}; ${{...}} may name another value of the study, but call nothing")
        keys = tuple(re.findall(r"[^.\[\]\s]+", name))
        dots = len(name.strip()) - len(name.strip().lstrip("."))
        target = (*path[: max(0, len(path) - dots)], *keys) if dots else keys
        if target in self._open:
            raise StudyFileError(f"has ${{{name}}}, which refers to itself")
        self._open.append(target)
        value: Any = self._root
        for depth, key in enumerate(target):
            if isinstance(value, str):
                value = self.resolve(value, target[:depth])  # the way leads through another interpolation
            below = value if isinstance(value, Mapping) else dict(enumerate(value)) if isinstance(value, list) else {}
            if key not in (named := {str(own): inner for own, inner in below.items()}):
                raise StudyFileError(f"cannot be composed: Interpolation key {'.'.join(target)!r} not found")
            value = named[key]
        value = self.resolve(value, target)
        self._open.pop()
        self._room -= len(str(value))
        if self._room < 0:
            raise StudyFileError(f"grows by more than {MOST_GROWTH:,} characters when its ${{...}} are spelled out")
        return value


def _check_file(path: Path) -> None:
    import yaml  # type: ignore[import-untyped]

    if path.stat().st_size > MOST_BYTES:
        raise StudyFileError(f"is larger than {MOST_BYTES:,} bytes. Make several studies of it")
    loaded = yaml.safe_load(path.read_text("utf-8"))
    if isinstance(loaded, dict) and "hydra" in loaded:
        # Hydra takes this section out of the file, and the study would lose it without a word
        raise StudyFileError("has the section 'hydra', which configures Hydra itself. memsweep has no use for it")


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    import yaml

    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # Hydra, OmegaConf and PyYAML raise errors of many kinds
        raise ConfigError([f"the file {_reason(error, yaml)}."], f"study file {path}") from error


def _reason(error: Exception, yaml: Any) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0].strip().rstrip(".")
    if isinstance(error, StudyFileError):
        return str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        return f"is not valid YAML{where}: {error.problem}"
    if isinstance(error, UnicodeDecodeError):
        return f"is not valid YAML: byte {error.start + 1} is no UTF-8. Save the file as UTF-8"
    if isinstance(error, yaml.YAMLError):
        return f"is not valid YAML: {first}"
    if isinstance(error, RecursionError):
        return f"is nested more than {MOST_LEVELS} levels deep. Make it flatter"
    if isinstance(error, UserWarning):
        return (
            "has a defaults list that does not say where this file stands in it. Write '- _self_' as its last entry, "
            "so that this file's own settings win over those it includes"
        )
    return f"cannot be composed: {first}"
