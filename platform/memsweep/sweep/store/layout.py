"""Names of folders and files: of a study within the results folder, and of a result within its study's."""

from __future__ import annotations

import os
import re
import urllib.parse

from memsweep.errors import StoreError

MLFLOW_DATABASE, MLFLOW_ARTIFACTS = "mlflow.db", "mlartifacts"
"""Names beside the studies in the results folder, which no study's folder may take."""
MEASUREMENTS = ".measured.json"
"""The file beside them in which plans keep what they measured."""
ATLAS_ROWS = ".atlas_rows"
"""The folder beside them with the rows of others that ``memsweep atlas --add`` was given."""

VARIABLE = "MEMSWEEP_RESULTS"
"""The folder of all results, for commands without ``--results``."""
WEIGHTS = "weights"
"""The folder of the files of trained weights in a study's, and their name in a record's ``files``."""
SUFFIX = "safetensors"
CHECKPOINTS, STATES, SET_ASIDE = "checkpoints", "states", ".set-aside"
GIVEN = "given"
"""The folder of the weights that ``memsweep measure`` found in files of others."""
IDENTITY = re.compile(r"[0-9A-Za-z_-]{1,128}")
_LONGEST_FOLDER_NAME = 255  # bytes: the limit of every common file system


def default_results() -> str:
    """The folder of all results where nobody names one."""
    return os.environ.get(VARIABLE) or "results"


def study_of(folder: str) -> str:
    """The study whose folder has this name: the inverse of ``folder_name``."""
    return urllib.parse.unquote(folder, errors="surrogatepass")


def folder_name(name: str) -> str:
    """The folder of a study: its name, percent-encoded outside ``[A-Za-z0-9._-]``.

    Two different names never share a folder, and no name leaves the results folder or takes a name that the
    tracking database needs.

    Raises:
        StoreError: the name is empty, or longer than a file system allows.
    """
    encoded = urllib.parse.quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
    taken = (MLFLOW_DATABASE, MLFLOW_ARTIFACTS, MEASUREMENTS, ATLAS_ROWS)
    if encoded.strip(".") == "" or encoded.lower().startswith(taken):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}" if encoded else ""
    if not 0 < len(encoded) <= _LONGEST_FOLDER_NAME:
        raise StoreError(
            f"the study name {name[:60]!r} makes a folder name of {len(encoded)} bytes; 1 to {_LONGEST_FOLDER_NAME} "
            "are allowed (a character outside A-Z a-z 0-9 . _ - takes at least three). Give the study another name."
        )
    return encoded


def record_file(identity: str) -> str:
    """Of a result, below its study's folder."""
    return file_name("records", identity, "json")


def failure_file(identity: str) -> str:
    """Of a trial that has none."""
    return file_name("failures", identity, "json")


def table_file(name: str, identity: str) -> str:
    """Of a table of a result, or of its weights."""
    return file_name(name, identity, SUFFIX if name == WEIGHTS else "parquet")


def file_name(kind: str, identity: str, suffix: str) -> str:
    """The file of a kind that belongs to a trial.

    Raises:
        StoreError: the text is no identity.
    """
    if not IDENTITY.fullmatch(identity):
        raise StoreError(f"{identity[:60]!r} is no trial identity: letters, digits, '-' and '_' are allowed.")
    return f"{kind}/{identity}.{suffix}"
