"""Private names of other packages that have no public counterpart, checked where they are read."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from memsweep.errors import MemsweepError

TESTED = {"optuna": "5.0", "ray": "2"}
"""Versions whose private names the tests hold."""


def private(package: str, owner: Any, name: str) -> Any:
    """The attribute ``name`` of an object of another package.

    Raises:
        MemsweepError: the installed version of the package has no such name.
    """
    try:
        return getattr(owner, name)
    except AttributeError as error:
        installed = importlib.metadata.version(package)
        raise MemsweepError(
            f"{package} {installed} has no {getattr(owner, '__name__', type(owner).__name__)}.{name}, which a search "
            f"needs. Install {package} {TESTED[package]}, with which memsweep was tested (constraints.txt)."
        ) from error
