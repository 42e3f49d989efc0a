"""Private names of other packages that have no public counterpart, checked where they are read."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from memsweep.errors import MemsweepError


def private(package: str, owner: Any, name: str) -> Any:
    """The attribute ``name`` of an object of another package.

    Raises:
        MemsweepError: the installed version of the package has no such name.
    """
    try:
        return getattr(owner, name)
    except AttributeError as error:
        owner_name = getattr(owner, "__name__", type(owner).__name__)
        raise MemsweepError(
            f"{package} {importlib.metadata.version(package)} has no {owner_name}.{name}, which a search needs. "
            f"Install the version of {package} that constraints.txt names."
        ) from error
