"""Submits a job to a Ray cluster and follows its log, through Ray's ``JobSubmissionClient``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.errors import BlockedError
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.submit.job import Job, SubmissionError
from memsweep.sweep.submit.upload import Upload

if TYPE_CHECKING:
    from ray.job_submission import JobDetails as JobDetails

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""The address on which Ray's dashboard listens by default."""
_OUTAGE_SECONDS = 60.0  # the longest outage of the server that is waited for


def server_address(given: str | None) -> str:
    """The address of the job server: the given one, else the one of Ray's variables, else this machine's.

    Raises:
        SubmissionError: it is no http address, or it holds a password.
    """
    cluster = os.environ.get("RAY_ADDRESS", "")  # may also be the address of a cluster, host:port
    known = [given, os.environ.get("RAY_API_SERVER_ADDRESS"), cluster if cluster.startswith("http") else None]
    address = next(filter(None, known), DEFAULT_ADDRESS)
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SubmissionError(
            f"{redacted(address)!r} is not the address of a job server. Give the address of the cluster's dashboard, "
            f"such as {DEFAULT_ADDRESS}, with --address or in RAY_API_SERVER_ADDRESS."
        )
    if "@" in parts.netloc:
        raise SubmissionError(
            f"the address {redacted(address)!r} carries a password, which would be shown. Leave it out; the cluster's "
            "token belongs into RAY_AUTH_TOKEN."
        )
    return address.rstrip("/")


class JobServer:
    """A job server that answers and accepts our token.

    Raises:
        SubmissionError: no Ray dashboard answers there, or it refuses the token.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        os.environ["RAY_API_SERVER_ADDRESS"] = address  # Ray lets this variable override its client's argument
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient

        for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
            logging.getLogger(name).setLevel(logging.ERROR)
        token = _token()
        try:
            # As a header: Ray itself reads only once in a process whether it shall send a token.
            self._client = JobSubmissionClient(address, headers={"Authorization": f"Bearer {token}"} if token else {})
        except AuthenticationError as error:
            problem = "refuses the token of" if token else "asks for a token. Set"
            raise SubmissionError(
                f"the cluster at {address} {problem} RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token); "
                "after make cluster it is CLUSTER_RAY_TOKEN in .env."
            ) from error
        except (RuntimeError, OSError, ValueError, TypeError, LookupError) as error:
            raise SubmissionError(
                f"no Ray dashboard answers at {address} ({_brief(error)}). Start the cluster (make cluster), bring its "
                "port here (kubectl port-forward, ssh -L), or give its dashboard's address with --address (8265 is the "
                "dashboard's port, 6379 and 10001 are others). Jobs need the extra: pip install 'memsweep[cluster]'."
            ) from error

    def submit(self, job: Job, upload: Upload) -> None:
        """Upload the files of the job and start it.

        Raises:
            SubmissionError: the server refuses it, or the connection breaks.
        """
        try:
            with upload.laid_out(job.runtime_env) as env:
                self._client.submit_job(
                    entrypoint=job.command, submission_id=job.name, runtime_env=env, metadata=job.metadata
                )
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            raise SubmissionError(f"the cluster at {self.address} did not take the job: {_brief(error)}") from error

    def running(self, job: Job) -> str:
        """The name of an unfinished job that runs the same command; empty where there is none.

        Raises:
            SubmissionError: the server does not list its jobs.
        """
        try:
            jobs = self._client.list_jobs()
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            raise SubmissionError(f"the cluster at {self.address} does not list its jobs: {_brief(error)}") from error
        same = (found for found in jobs if found.entrypoint == job.command and found.metadata == job.metadata)
        return next((str(found.submission_id) for found in same if not found.status.is_terminal()), "")

    def state(self, name: str) -> JobDetails:
        """The state of a job; an outage of the server is waited for.

        Raises:
            BlockedError: the server has not answered for a minute.
        """
        end = time.monotonic() + _OUTAGE_SECONDS
        while True:
            try:
                return self._client.get_job_info(name)
            except (RuntimeError, OSError) as error:
                if time.monotonic() > end:
                    raise BlockedError(
                        f"the job server at {self.address} has not answered for {_OUTAGE_SECONDS:.0f} s "
                        f"({_brief(error)}). The job may still run: memsweep status tells from its results."
                    ) from error
            time.sleep(1.0)

    def follow(self, name: str, on_text: Callable[[str], object]) -> JobDetails:
        """Pass every piece of the job's log to ``on_text`` once, until the job ends; its last state."""
        shown = 0  # characters
        while True:
            read = 0
            for text in self._log(name):
                on_text(text[max(0, shown - read) :])
                read += len(text)
                shown = max(shown, read)
            state = self.state(name)
            if state.status.is_terminal():
                return state
            time.sleep(1.0)

    def _log(self, name: str) -> Iterator[str]:
        """The job's log from its beginning, until the job ends or the connection is lost."""
        import aiohttp

        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        async def read() -> None:
            with contextlib.suppress(RuntimeError, OSError, aiohttp.ClientError):
                async for text in self._client.tail_job_logs(name):
                    pieces.put(text)
            pieces.put(None)

        # In the main thread asyncio would turn Ctrl-C into a cancellation, which a library may swallow.
        threading.Thread(target=asyncio.run, args=(read(),), name="memsweep-log", daemon=True).start()
        return iter(pieces.get, None)


def _token() -> str:
    """The token of the cluster, from the places where Ray reads it; empty if there is none."""
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    with contextlib.suppress(OSError, UnicodeDecodeError, RuntimeError):  # RuntimeError: without a home
        file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
        token = token or file.read_text("utf-8")
    return token.strip()


def _brief(error: Exception) -> str:
    """The end of an error's text: a server of Ray answers with a traceback, whose last line is the cause."""
    return without_secrets(" ".join(str(error).split())[-400:])
