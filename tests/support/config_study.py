"""Small parts and study files for the tests of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.config.load.study import load_study
from memsweep.config.schema.study import SweepConfig
from memsweep.errors import ConfigError
from memsweep.models.parameterizations.maps import Exp
from paths import ROOT

BASE = """
task: {name: linear_functional, kernel: exponential, rate: 0.5, horizon: 20}
model: {name: diagonal_rnn, width: 4, parameterization: direct}
"""


class Scaled(Exp):
    """A parameterization with fields of its own."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Two numbers."""

        scale: float = setting(1.0, "a factor", above=0.0)
        shift: float = setting(0.0, "an offset")


@contextmanager
def scaled_parameterization() -> Iterator[None]:
    """``scaled`` is registered inside the context, and only there."""
    registry.discover(ROOT)
    registry.register_parameterization("scaled")(Scaled)
    try:
        yield
    finally:
        del registry._parts[registry.PARAMETERIZATION]["scaled"]


def load(folder: Path, text: str, *overrides: str) -> SweepConfig:
    """The study with this text, against the repository's own tasks and models."""
    path = folder / "study.yaml"
    path.write_text(text, "utf-8")
    return load_study(str(path), overrides, ROOT)


def load_plain(data: dict[str, Any]) -> SweepConfig:
    """The study of plain data, read without Hydra, which takes most of the time of ``load``."""
    with mock.patch("memsweep.config.load.study.read", return_value={"name": "study", **data}):
        return load_study("quickstart", (), ROOT)


def problems(folder: Path, text: str, *overrides: str) -> list[str]:
    """The problems of the study; empty when it loads."""
    try:
        load(folder, text, *overrides)
    except ConfigError as error:
        return list(error.problems)
    return []


def only(rows: Any) -> Any:
    """The one row of a study without a grid."""
    (row,) = rows
    return row
