"""Composition of study files by Hydra, and the interpolations in them; every error names the file and what is wrong."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memsweep.config.core.problems import show
from memsweep.config.load.bounded import (
    MOST_LEVELS,
    REFERENCE,
    StudyFileError,
    bounded_reading,
    check_references,
    check_size,
    read_yaml,
)
from memsweep.config.load.study_files import included_from
from memsweep.errors import ConfigError

_COMPOSING = threading.Lock()
"""Hydra has one state for the whole process: threads read their studies one after the other."""


def read(path: Path, groups: Sequence[str]) -> dict[str, Any]:
    """The composed study file as plain data, interpolations not yet resolved.

    Args:
        path: the study file; Hydra's search path is its folder, then the other folders of studies.
        groups: overrides that choose files of config groups.

    Raises:
        ConfigError: the file is no YAML mapping, or it includes a file that does not exist.
    """
    from hydra import initialize_config_dir

    # the call itself sets the state, before its context begins: the lock comes first
    with _COMPOSING, initialize_config_dir(config_dir=str(path.parent), version_base=None):
        return _composed(path, groups)


def _composed(path: Path, groups: Sequence[str]) -> dict[str, Any]:
    from hydra import compose
    from omegaconf import OmegaConf

    with _translate_errors(path), bounded_reading():
        _check_file(path)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*missing `_self_`")
            places = (str(folder).replace("'", r"\'") for folder in included_from(path))
            also = ",".join(f"'file://{place}'" for place in places)
            composed = compose(config_name=path.stem, overrides=[*groups, f"hydra.searchpath=[{also}]"])
        plain = OmegaConf.to_container(composed, resolve=False)
        written = {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}
        check_references(written)
    return written


def resolve(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The same data with every ``${...}`` replaced by the value that it names.

    Raises:
        ConfigError: an interpolation names nothing or itself; or the data are nested too deeply.
    """
    from omegaconf import OmegaConf

    with _translate_errors(path):
        _check_values(data)
        check_references(data)
        resolved: Any = OmegaConf.to_container(OmegaConf.create(dict(data)), resolve=True)
        return dict(resolved)


def _check_values(value: Any, level: int = 0) -> None:
    """Refuses interpolations that call something: a study that reads the environment is another on every machine."""
    if level > MOST_LEVELS:
        raise StudyFileError(f"is nested more than {MOST_LEVELS} levels deep. Make it flatter")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise StudyFileError(f"has the key {key!r}, which is no text. Write it in quotes")
            _check_values(inner, level + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_values(inner, level + 1)
    elif isinstance(value, str):
        names = REFERENCE.findall(value)
        if value.count("${") != len(names):
            raise StudyFileError(f"has {show(value)}; a ${{...}} must be closed and hold no other one")
        for name in names:
            if ":" in name:
                raise StudyFileError(f"has ${{{name}}}; ${{...}} may name another value of the study, but call nothing")


def _check_file(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        check_size(file)
        loaded = read_yaml(file.read())  # of a text, an error of YAML shows its line
    if isinstance(loaded, list):
        raise StudyFileError("holds a list. A study is a mapping of its sections: 'task: ...', 'model: ...'")
    if isinstance(loaded, dict) and "hydra" in loaded:
        # Hydra takes this section out of the file, and the study would lose it without a word
        raise StudyFileError("has the section 'hydra', which configures Hydra itself. memsweep has no use for it")


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    import yaml  # type: ignore[import-untyped]

    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # Hydra, OmegaConf and PyYAML raise errors of many kinds
        reason = _reason(error, yaml)
        end = "" if "\n" in reason else "."  # an excerpt of the file ends with its caret
        raise ConfigError([f"the file {reason}{end}"], f"study file {path}") from error


def _reason(error: Exception, yaml: Any) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0].strip().rstrip(".")
    if isinstance(error, StudyFileError):
        return str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        begun = error.context_mark  # of what should have ended
        since = f" ({error.context} that begins in line {begun.line + 1})" if begun and error.context else ""
        snippet = mark and mark.get_snippet(indent=6, max_length=70)
        return f"is not valid YAML{where}: {error.problem}{since}" + (f":\n{snippet}" if snippet else "")
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
