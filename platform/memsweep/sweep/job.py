"""The Ray job that this process is the command of."""

from __future__ import annotations

import json
import os
from contextlib import suppress

_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray only for the command of a job; RAY_ADDRESS may also be set in a person's shell."""


def in_job() -> bool:
    """Whether this process is the command of a Ray job."""
    return _JOB in os.environ


def job_metadata(key: str) -> str:
    """A text in the metadata of this process's job, by Ray or by its submitter; empty if there is none."""
    with suppress(ValueError, AttributeError):
        return str(json.loads(os.environ.get(_JOB, "{}")).get("metadata", {}).get(key, ""))
    return ""


def job_name() -> str:
    """The submission id of the Ray job that this process is; empty elsewhere."""
    return job_metadata("job_submission_id")
