"""What the command of a Ray job knows of its job, by the environment alone."""

from __future__ import annotations

import json
import os
from contextlib import suppress

_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray for the command of a job, and for it alone. RAY_ADDRESS is set there, too, but also in people's shells."""


def in_job() -> bool:
    """Whether this process is the command of a Ray job."""
    return _JOB in os.environ


def job_metadata(key: str) -> str:
    """What Ray, or whoever submitted the job of this process, noted of it; empty where nothing was noted."""
    with suppress(ValueError, AttributeError):
        return str(json.loads(os.environ.get(_JOB, "{}")).get("metadata", {}).get(key, ""))
    return ""


def job_name() -> str:
    """The submission id of the Ray job that this process is; empty elsewhere."""
    return job_metadata("job_submission_id")
