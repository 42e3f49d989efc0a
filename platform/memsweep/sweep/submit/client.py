"""A cluster's job server: hands a job to it, asks how it is, follows its log. Ray's JobSubmissionClient lives here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from memsweep.errors import MemsweepError
from memsweep.redaction import redacted

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""Where Ray's dashboard listens unless it is told otherwise."""

ASK_SECONDS = 10.0
_PATIENCE = 60.0  # seconds in which a server that does not answer may come back while its job is watched
_TRIES = 4  # of handing a job in, where connections break; its name is unique, so it is never taken twice
_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


class SubmissionError(MemsweepError):
    """A job that cannot be handed in: the server, the token, or what was to be uploaded is wrong."""

    exit_code = 2


@dataclass(frozen=True)
class Job:
    """What the server is asked to run.

    Attributes:
        name: its submission id, unique on the cluster.
        command: a line for the shell.
        runtime_env: Ray's runtime environment, with local folders to upload.
        metadata: short texts that stay with the job. Everything here can be read by whoever reaches the server.
    """

    name: str
    command: str
    runtime_env: Mapping[str, Any]
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class State:
    """How a job is.

    Attributes:
        status: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
        message: Ray's words about it.
        exit_code: of the command, where it ended by itself.
        study: the study that the job was submitted for; empty for jobs of others.
    """

    status: str
    message: str = ""
    exit_code: int | None = None
    study: str = ""

    @property
    def ended(self) -> bool:
        """Whether it will not run any more."""
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")


def server_address(given: str | None) -> str:
    """The address of the job server: as given, else as Ray's own variables say, else this machine's.

    Raises:
        SubmissionError: it is no http address, or it carries a password.
    """
    ours = os.environ.get("RAY_ADDRESS", "")
    found = given or os.environ.get("RAY_API_SERVER_ADDRESS") or (ours if _is_http(ours) else "") or DEFAULT_ADDRESS
    parts = urllib.parse.urlsplit(found)
    if not _is_http(found) or not parts.hostname:
        raise SubmissionError(
            f"{redacted(found)!r} is not the address of a job server. Give the address of the cluster's dashboard, "
            f"such as {DEFAULT_ADDRESS}, with --address or in RAY_API_SERVER_ADDRESS."
        )
    if "@" in parts.netloc:
        raise SubmissionError(
            f"the address {redacted(found)!r} carries a password, which would be shown. Leave it out; the cluster's "
            "token belongs into RAY_AUTH_TOKEN."
        )
    return found.rstrip("/")


class JobServer:
    """A job server that answered, and took our token where it asked for one."""

    def __init__(self, address: str) -> None:
        """Reach the server.

        Raises:
            SubmissionError: nobody answers there, it is no Ray dashboard, or it wants another token.
        """
        self.address = address
        # Given by hand, because Ray reads from the environment, once in a process, whether it shall use a token.
        headers = {"Authorization": f"Bearer {_token(address)}"} if _asks_for_token(address) else {}
        with _no_other_address():
            self._client = self._connect(headers)

    def _connect(self, headers: Mapping[str, str]) -> Any:
        from ray.exceptions import AuthenticationError

        try:
            from ray.job_submission import JobSubmissionClient

            quieten()
            return JobSubmissionClient(self.address, headers=dict(headers))
        except AuthenticationError as error:
            raise SubmissionError(
                f"the cluster at {self.address} refuses the token of RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH, or "
                "~/.ray/auth_token): it is another cluster's."
            ) from error
        except ImportError as error:
            raise SubmissionError(
                "jobs need more of Ray than is installed: pip install -c constraints.txt -e '.[cluster]'"
            ) from error
        except (RuntimeError, OSError, ValueError) as error:
            raise SubmissionError(f"the job server at {self.address} cannot be used: {_brief(error)}") from error

    def submit(self, job: Job) -> None:
        """Upload what the job needs and start it.

        Raises:
            SubmissionError: the server refuses it.
        """
        for left in reversed(range(_TRIES)):
            try:
                self._client.submit_job(
                    entrypoint=job.command,
                    submission_id=job.name,
                    runtime_env=dict(job.runtime_env),
                    metadata=dict(job.metadata),
                )
                return
            except (RuntimeError, OSError, ValueError, TypeError) as error:
                if left < _TRIES - 1 and "already" in str(error) and job.name in str(error):
                    return  # it had been taken, and the answer was lost
                if not left or not isinstance(error, OSError):
                    raise SubmissionError(
                        f"the cluster at {self.address} did not take the job: {_brief(error)}"
                    ) from error
                time.sleep(1.0)

    def state(self, name: str) -> State:
        """How a job is; a server that is away is waited for.

        Raises:
            SubmissionError: there is no such job.
            MemsweepError: the server has been away for a minute.
        """
        last = time.monotonic() + _PATIENCE
        while True:
            try:
                about = self._client.get_job_info(name)
                status, study = str(about.status.value), (about.metadata or {}).get("study", "")
                return State(status, about.message or "", about.driver_exit_code, study)
            except RuntimeError as error:
                if "404" in str(error) or "does not exist" in str(error):
                    raise SubmissionError(
                        f"the cluster at {self.address} knows no job {name!r}. Those it knows: ray job list --address "
                        f"{self.address}"
                    ) from error
                problem: Exception = error
            except OSError as error:
                problem = error
            if time.monotonic() > last:
                raise MemsweepError(
                    f"the job server at {self.address} has not answered for {_PATIENCE:.0f} s ({_brief(problem)}). "
                    "Whether the job still runs is not known from here; memsweep status tells from its results."
                ) from problem
            time.sleep(1.0)

    async def log(self, name: str) -> AsyncIterator[str]:
        """The log of a job from its beginning, chunk by chunk, until the job ends or the connection is lost."""
        import aiohttp

        with contextlib.suppress(RuntimeError, OSError, aiohttp.ClientError):
            async for text in self._client.tail_job_logs(name):
                yield text

    def follow(self, name: str, on_text: Any) -> State:
        """Give every piece of the job's log to ``on_text``, as it comes; the state in which the job ended.

        A connection that breaks is made again, and what has been given is not given twice. Ctrl-C ends it at any time.
        """
        given, left = 0, False

        async def once() -> None:
            nonlocal given
            passed = 0
            async for text in self.log(name):
                if left:
                    return
                fresh = text[max(0, given - passed) :]
                passed += len(text)
                if fresh:
                    given += len(fresh)
                    on_text(fresh)

        while True:
            try:
                _beside(once)
            except KeyboardInterrupt:
                left = True
                raise
            state = self.state(name)
            if state.ended:
                return state
            time.sleep(1.0)


def _beside(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in another thread, and wait for it in this one.

    In the main thread asyncio makes a cancellation of SIGINT, and a library that passes over it swallows Ctrl-C.
    """
    ended: Future[None] = Future()

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="memsweep-log", daemon=True).start()
    ended.result()


def quieten() -> None:
    """Keep Ray's own remarks off the terminal; to be called after it was imported, which sets its log up."""
    for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _asks_for_token(address: str) -> bool:
    """Whether the dashboard wants a token.

    Raises:
        SubmissionError: nobody answers, or it is no dashboard of Ray.
    """
    try:
        answer = requests.get(f"{address}/api/version", timeout=ASK_SECONDS)
        if answer.status_code in (401, 403):
            return True
        if answer.status_code == 200 and "ray_version" in answer.json():
            return False
        said = f"HTTP {answer.status_code}"
    except requests.exceptions.JSONDecodeError:
        said = "a page that is none of Ray's"
    except requests.exceptions.Timeout:
        raise SubmissionError(
            f"{address} did not answer within {ASK_SECONDS:.0f} s. Look whether the cluster's head is well."
        ) from None
    except requests.exceptions.ConnectionError as error:
        if "aborted" in str(error):  # somebody answered, but not in HTTP
            raise SubmissionError(_no_dashboard(address, "it does not speak HTTP")) from None
        raise SubmissionError(
            f"no Ray dashboard answers at {address}. Start the cluster (make cluster), bring its port here (kubectl "
            "port-forward, ssh -L), or give its dashboard's address with --address."
        ) from None
    except requests.exceptions.RequestException as error:
        said = _brief(error)
    raise SubmissionError(_no_dashboard(address, said))


def _no_dashboard(address: str, said: str) -> str:
    return (
        f"what answers at {address} is no Ray dashboard ({said}). The job server is the dashboard's port, 8265 unless "
        "it was set otherwise; 6379 and 10001 are others."
    )


def _token(address: str) -> str:
    """The token where Ray looks for it, too.

    Raises:
        SubmissionError: there is none.
    """
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    token = os.environ.get("RAY_AUTH_TOKEN", "").strip()
    if not token:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            token = file.read_text("utf-8").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise SubmissionError(
            f"the cluster at {address} asks for a token. Set RAY_AUTH_TOKEN to the cluster's token (after "
            "make cluster: CLUSTER_RAY_TOKEN in .env), or RAY_AUTH_TOKEN_PATH to a file that holds it."
        )
    return token


@contextlib.contextmanager
def _no_other_address() -> Iterator[None]:
    """While a client is made: variables that for Ray would go before the address that was given."""
    before = {name: value for name in _ADDRESSES if (value := os.environ.pop(name, None)) is not None}
    try:
        yield
    finally:
        os.environ.update(before)


def _is_http(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
