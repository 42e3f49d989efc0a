"""Where the tracking data goes, and the quiet, impatient MLflow that a sweep needs."""

from __future__ import annotations

import os
from pathlib import Path

from memsweep.errors import ConfigError, one_of
from memsweep.sweep.store import MLFLOW_ARTIFACTS, MLFLOW_DATABASE

SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")

# The defaults of MLflow hold a call for minutes when a server is gone; a sweep's driver retries by itself.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


def prepare_environment() -> None:
    """Set what MLflow reads when it is imported; what the user has set stays."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def tracking_uri(uri: str | None, results: Path) -> str:
    """The tracking URI: the given one, else ``MLFLOW_TRACKING_URI``, else SQLite in the results folder.

    Raises:
        ConfigError: the URI is neither a server nor a database.
    """
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not chosen:
        return f"sqlite:///{results.resolve() / MLFLOW_DATABASE}"
    scheme = chosen.partition(":")[0].partition("+")[0].lower() if "://" in chosen else ""
    if scheme not in SERVERS + DATABASES:
        raise ConfigError(
            [
                f"{redacted(chosen)!r} is neither a server nor a database; allowed are URIs that begin with "
                f"{one_of(f'{name}://' for name in SERVERS + DATABASES)} (MLflow's file store is no longer "
                "maintained). Unset it for SQLite in the results folder."
            ],
            "the tracking URI",
        )
    return chosen


def artifact_location(uri: str, results: Path) -> str | None:
    """Where artifacts go: beside the studies for a database; None leaves it to a server."""
    if uri.partition(":")[0].lower() in SERVERS:
        return None
    return (results.resolve() / MLFLOW_ARTIFACTS).as_uri()


def redacted(uri: str) -> str:
    """The URI without user name, password and query, for messages."""
    scheme, mark, rest = uri.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"
