"""Packages that memsweep asks for, its core's and those of extras, and the sentence where one is missing."""

from __future__ import annotations

import importlib.util
import sys

from memsweep.errors import MemsweepError

CORE = {
    **{name: name for name in ("filelock", "jinja2", "numpy", "omegaconf", "pandas", "pyarrow", "rich", "safetensors")},
    **{"hydra": "hydra-core", "scipy": "scipy", "torch": "torch", "yaml": "pyyaml"},
}
"""Packages without which most commands cannot run: the name under which each is imported -> that of its distribution.

A job has the engine's files alone, and cannot read them off an installation.
"""
EXTRAS = {
    "sweep": (
        *("aiohttp", "alembic", "boto3", "cmaes", "cryptography", "mlflow", "optuna", "ray", "requests", "sklearn"),
        *("sqlalchemy", "urllib3"),
    ),
    "plots": ("PIL", "matplotlib"),
}
"""Extra -> the packages that it installs, by the name under which they are imported; more is in pyproject.toml."""


def is_there(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
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
    """A sentence about an import that failed because a package of memsweep is missing; empty of any other error."""
    name = (error.name or "").partition(".")[0]
    if name in CORE and not is_there(name):
        return core_told()
    line = line_for(name)
    return f"{name} is not installed: {line}" if line and not is_there(name) else ""


def core_told() -> str:
    """A sentence that names all packages of the core that this Python lacks; empty where it has them."""
    absent = sorted(distribution for package, distribution in CORE.items() if not is_there(package))
    if not absent:
        return ""
    return (
        f"this Python ({sys.executable}) lacks {', '.join(absent)}: install memsweep there (pip install of its wheel; "
        "in a checkout make env), or give a job of a cluster --runtime-env deploy/runtime_env.yaml"
    )
