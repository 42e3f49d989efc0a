"""Packages that some commands need and others do not: the extra of each, and the sentence where one is missing."""

from __future__ import annotations

import importlib.util

from memsweep.errors import MemsweepError

EXTRAS = {
    "sweep": (
        *("aiohttp", "alembic", "boto3", "cmaes", "cryptography", "mlflow", "optuna", "ray", "requests", "sklearn"),
        *("sqlalchemy", "urllib3"),
    ),
    "plots": ("PIL", "matplotlib"),
}
"""Extra -> the packages that it installs, by the name under which they are imported; more is in pyproject.toml."""


def is_there(package: str) -> bool:
    """Whether a package of an extra is installed; it is not imported."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    # a folder of that name is found as well, and holds no file of the package
    return found is not None and found.origin is not None


def need(package: str, what: str) -> None:
    """Refuses what cannot be done without a package.

    Args:
        package: of an extra.
        what: what needs it, as the subject of a sentence.

    Raises:
        MemsweepError: it is not installed.
    """
    if not is_there(package):
        raise MemsweepError(f"{what} needs {package}, which is not installed: {line_for(package)}")


def line_for(package: str) -> str:
    """The line that installs a package: ``pip install 'memsweep[sweep]'``; empty where no extra has it."""
    extra = next((extra for extra, packages in EXTRAS.items() if package.partition(".")[0] in packages), "")
    return f"pip install 'memsweep[{extra}]'" if extra else ""


def told(error: ImportError) -> str:
    """A sentence about an import that failed because an extra is not installed; empty of any other error."""
    name = (error.name or "").partition(".")[0]
    line = line_for(name)
    return f"{name} is not installed: {line}" if line and not is_there(name) else ""
