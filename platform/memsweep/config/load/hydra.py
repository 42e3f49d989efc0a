"""Reading YAML through Hydra, so that defaults lists and interpolations work; its errors in our words."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memsweep.config.load import interpolations
from memsweep.config.load.words import depth
from memsweep.config.load.yaml_text import MOST_LEVELS, UnsafeError, read_safely
from memsweep.errors import ConfigError


def read(path: Path, groups: Sequence[str]) -> dict[str, Any]:
    """The composed study file as plain data, interpolations still unresolved.

    Args:
        path: the study file; its folder is Hydra's search path.
        groups: overrides that choose files of config groups.

    Raises:
        ConfigError: the file is no YAML mapping, or something that it refers to is missing.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    from memsweep.config.load.files import guard

    with _translated(path), initialize_config_dir(config_dir=str(path.parent), version_base=None):
        guard(GlobalHydra.instance().config_loader())
        _refuse_hydra_section(path)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*missing `_self_`")
            composed = compose(config_name=path.stem, overrides=list(groups))
        plain = OmegaConf.to_container(composed, resolve=False)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}


def resolve(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The same data with every ``${...}`` replaced by what it refers to.

    Raises:
        ConfigError: an interpolation refers to nothing.
    """
    with _translated(path):
        plain = _spelled_out(data) if interpolations.check(data) else dict(data)
        if depth(plain) > 2 * MOST_LEVELS:
            raise UnsafeError(f"is nested more than {2 * MOST_LEVELS} levels deep when its ${{...}} are spelled out")
        for key in _keys(plain):
            if not isinstance(key, str):
                raise UnsafeError(f"has the key {key!r}, which is no text. Write it in quotes")
    return plain


def _spelled_out(data: Mapping[str, Any]) -> dict[str, Any]:
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(OmegaConf.create(dict(data)), resolve=True)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}


def _keys(value: Any) -> Iterator[Any]:
    """The keys of a value at all levels."""
    if isinstance(value, Mapping):
        yield from value
    for inner in value.values() if isinstance(value, Mapping) else value:
        if isinstance(inner, Mapping | list | tuple):
            yield from _keys(inner)


def _refuse_hydra_section(path: Path) -> None:
    """Hydra takes its own section out of a file; a study that has one would be silently cut."""
    from omegaconf import DictConfig, OmegaConf

    loaded = OmegaConf.create(read_safely(path))
    if isinstance(loaded, DictConfig) and "hydra" in loaded:
        raise ConfigError(
            ["the section 'hydra' configures Hydra itself, which memsweep does not use. Take it out."], _of(path)
        )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    import yaml  # type: ignore[import-untyped]

    try:
        yield
    except ConfigError:
        raise
    except UnsafeError as error:
        raise ConfigError([f"the file {error}."], _of(path)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ConfigError([f"the file is not valid YAML{where}: {error.problem}."], _of(path)) from error
    except UserWarning as error:
        advice = "write '- _self_' as its last entry, so that this file's own settings win over those it includes"
        raise ConfigError(
            [f"the defaults list does not say where this file stands in it: {advice}."], _of(path)
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"the file is not valid YAML: {_first_line(error)}."], _of(path)) from error
    except Exception as error:  # Hydra and OmegaConf meet what they did not expect with errors of many kinds
        raise ConfigError([f"the file cannot be composed: {_first_line(error)}."], _of(path)) from error


def _of(path: Path) -> str:
    return f"study file {path}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".")
