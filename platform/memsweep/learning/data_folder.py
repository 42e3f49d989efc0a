"""Where data sets lie that are not shipped: one folder, and in it one for each data set."""

from __future__ import annotations

import os

DATA_VARIABLE = "MEMSWEEP_DATA"


def data_folder() -> str:
    """The folder that the environment variable names, else ``data`` in the working folder."""
    return os.environ.get(DATA_VARIABLE, "data")
