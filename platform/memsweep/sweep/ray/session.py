"""A Ray session for one run: quiet, explicit about authentication, gone when the run ends."""

from __future__ import annotations

import functools
import gc
import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from memsweep.errors import MemsweepError
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.planning.resources import local_cpus
from memsweep.sweep.ray.watch import Watch, watched
from memsweep.sweep.signals import interrupts_held
from memsweep.sweep.worker.job_environment import in_job

_log = logging.getLogger(__name__)

_OBJECT_STORE = 200 * 2**20  # bytes; jobs and reports are kilobytes, results go through the store

_JOIN_TIMEOUT, _JOB_TIMEOUT = 60.0, 180.0  # seconds in which a cluster must answer; a job's own is there, and busy

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # tasks may read files of the workspace by relative paths
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a pack without a GPU keeps what the machine's owner set
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's own state of all trials, anew each time, is read by nobody
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
}


class AddressError(MemsweepError):
    """An address at which no sweep can join a cluster."""

    exit_code = 2


def cluster_of(given: str | None) -> str | None:
    """The cluster that a sweep joins; None where it starts Ray on this machine.

    In a job that is the job's own cluster. Elsewhere it is what was given: RAY_ADDRESS alone, which people set for
    other programs, moves no sweep.

    Raises:
        AddressError: what was given is the address of something else.
    """
    if given is None:
        return (os.environ.get("RAY_ADDRESS") or "auto") if in_job() else None
    if given.startswith(("http://", "https://")):
        raise AddressError(
            f"--address {redacted(given)} is a job server. A sweep is handed to it with memsweep submit STUDY "
            f"--address {redacted(given)}; to join a cluster from one of its nodes, give --address auto or host:port."
        )
    if "://" in given or "@" in given:
        raise AddressError(
            f"--address {redacted(given)} cannot be joined: a sweep runs on a node of its cluster (--address auto or "
            "host:port), or is handed to it with memsweep submit STUDY."
        )
    return given


@contextmanager
def ray_session(address: str | None, *, dashboard: bool = False) -> Iterator[Watch]:
    """Start Ray on this machine, or join a running cluster; leave or stop it at the end.

    What it gives sees to it that a Ray that starts here and dies interrupts this process.

    Args:
        address: None starts Ray here and stops it afterwards; ``auto`` or ``host:port`` joins a cluster.
        dashboard: start Ray's dashboard (on loopback); only for a Ray that starts here.

    Raises:
        MemsweepError: the cluster cannot be joined, or Ray cannot start; nothing is left running.
    """
    with _settings(address):
        import_ray(address)
        with _tamed():
            try:
                with interrupts_held():
                    url = _connect(address, dashboard)
                if address is None and dashboard:
                    _log.warning("Ray's dashboard: http://%s%s", url, _key_to_it())
                with watched() if address is None else nullcontext(Watch()) as watch:
                    yield watch
            finally:
                _shut_down()


def import_ray(address: str | None = None) -> None:
    """Import Ray as a session at this address needs it: quiet, and with the settings that it reads once and for all.

    Whoever wants something of Ray before there is a session calls this first.
    """
    with _settings(address):
        import ray  # noqa: F401  (before its loggers are quietened)
    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _settings(address: str | None) -> Iterator[None]:
    """What Ray reads from the environment, while it is wanted; what somebody else has set stays."""
    before = dict(os.environ)
    for name, value in (_QUIET | _authentication(address)).items():
        os.environ.setdefault(name, value)
    if address == "auto" and "://" in os.environ.get("RAY_ADDRESS", ""):
        del os.environ["RAY_ADDRESS"]  # a job server's, which Ray would take for the cluster's
    try:
        yield
    finally:
        _restore(before)


def _shut_down() -> None:
    """Leave or stop Ray. What another thread collected meanwhile could hold references into it, and would end us."""
    import ray

    gc.collect()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        gc.enable()


def nodes() -> list[Mapping[str, float]]:
    """The resources of each living node of the session."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def count_nodes(address: str) -> int:
    """Living nodes of a cluster, asked from another process, so that this one has joined nothing yet.

    Raises:
        MemsweepError: the cluster cannot be joined.
    """
    code = (
        "import sys\n"
        "from memsweep.sweep.ray.session import nodes, ray_session\n"
        "with ray_session(sys.argv[1]): print(len(nodes()))"
    )
    asked = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=False)
    told = (asked.stdout.strip() or "-").splitlines()[-1]
    if asked.returncode != 0 or not told.isdigit():
        last = (asked.stderr.strip() or "no answer").splitlines()[-1]
        raise MemsweepError(
            last.partition("MemsweepError: ")[2] or f"no Ray cluster could be joined at {address}: {last}"
        )
    return int(told)


def _connect(address: str | None, dashboard: bool) -> str:
    import ray

    quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    try:
        if address is None:
            context = ray.init(
                address="local",  # never by accident a cluster that somebody left running
                num_cpus=local_cpus(),
                object_store_memory=_OBJECT_STORE,
                include_dashboard=dashboard,
                dashboard_host="127.0.0.1",
                **quiet,
            )
        else:
            _ask_for_answer(address)
            context = ray.init(address=address, **quiet)
        return str(context.dashboard_url)
    except Exception as error:  # Ray raises bare Exceptions, too
        if address is None:
            hint = (
                "The dashboard needs more of Ray: pip install -c constraints.txt -e '.[cluster]', or leave it out. "
                if dashboard
                else ""
            )
            raise MemsweepError(
                f"Ray could not start on this machine: {without_secrets(str(error))} {hint}Run with --inline to go "
                "without Ray."
            ) from error
        raise MemsweepError(
            f"no Ray cluster could be joined at {address!r}: {without_secrets(str(error))}. Start one (ray start "
            "--head), give its host:port with --address, or leave --address out to run on this machine."
        ) from error


def _ask_for_answer(address: str) -> None:
    """A cluster that is down, or that wants another token, is waited for by ray.init for up to nine minutes."""
    where = [] if address == "auto" else ["--address", address]
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *where]
    patience = _JOB_TIMEOUT if in_job() else _JOIN_TIMEOUT
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        raise ConnectionError(
            f"it gave no answer within {patience:g} s (it is down, or its token is not the one in RAY_AUTH_TOKEN)"
        ) from None
    if asked.returncode != 0:
        raise ConnectionError((asked.stderr.strip() or "it is not healthy").splitlines()[-1])


@contextmanager
def _tamed() -> Iterator[None]:
    """Two habits of Ray that have no switch.

    It prints on standard output when a worker dies, whatever its log settings: the runner tells that itself. And
    its SIGTERM handler calls sys.exit, which in the middle of its own start leaves processes behind: ours stays.
    """
    from ray._private import utils, worker

    habits = [(worker, "print_to_stdstream"), (utils, "set_sigterm_handler")]
    before = [getattr(module, name, None) for module, name in habits]
    for module, name in habits:
        setattr(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for (module, name), habit in zip(habits, before, strict=True):
            setattr(module, name, habit)


def _authentication(address: str | None) -> dict[str, str]:
    """Ray's token authentication, said aloud: unset, Ray switches it by version and by a file in the home folder."""
    if address is None:
        # A key that only this run's processes know; nothing is written to the home folder.
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _own_token()}
    given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return {"RAY_AUTH_MODE": "token" if given else "disabled"}


def _key_to_it() -> str:
    if os.environ["RAY_AUTH_MODE"] != "token":
        return ""
    own = os.environ.get("RAY_AUTH_TOKEN") == _own_token()  # a cluster's is not for this screen
    return f" (it asks for a token: {_own_token()})" if own else " (it asks for the token in RAY_AUTH_TOKEN)"


@functools.cache
def _own_token() -> str:
    """One key for the life of this process: Ray reads it once and never again."""
    return secrets.token_hex(32)


def _restore(before: Mapping[str, str]) -> None:
    if "RAY_ADDRESS" in before:
        os.environ["RAY_ADDRESS"] = before["RAY_ADDRESS"]
    for name in set(os.environ) - set(before):
        if name in _QUIET or name.startswith("RAY_AUTH_"):
            del os.environ[name]
