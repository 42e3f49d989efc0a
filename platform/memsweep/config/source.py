"""Reading YAML through Hydra, so that defaults lists and interpolations work; its errors in our words."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    from omegaconf import OmegaConf

    with _translated(path), initialize_config_dir(config_dir=str(path.parent), version_base=None):
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
    from omegaconf import OmegaConf

    OmegaConf.clear_resolver("oc.env")  # a study file is data: what it resolves to is stored and shown
    with _translated(path):
        plain = OmegaConf.to_container(OmegaConf.create(dict(data)), resolve=True)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}


def _refuse_hydra_section(path: Path) -> None:
    """Hydra takes its own section out of a file; a study that has one would be silently cut."""
    from omegaconf import DictConfig, OmegaConf

    loaded = OmegaConf.load(path)
    if isinstance(loaded, DictConfig) and "hydra" in loaded:
        raise ConfigError(
            ["the section 'hydra' configures Hydra itself, which memsweep does not use. Take it out."], _of(path)
        )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    import yaml  # type: ignore[import-untyped]
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ConfigError([f"the file is not valid YAML{where}: {error.problem}."], _of(path)) from error
    except UserWarning as error:
        advice = "write '- _self_' as its last entry, so that this file's own settings win over those it includes"
        raise ConfigError(
            [f"the defaults list does not say where this file stands in it: {advice}."], _of(path)
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"the file is not valid YAML: {_first_line(error)}."], _of(path)) from error
    except (HydraException, OmegaConfBaseException, OSError, RecursionError) as error:
        raise ConfigError([f"the file cannot be composed: {_first_line(error)}."], _of(path)) from error


def _of(path: Path) -> str:
    return f"study file {path}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".")
