"""Starts or joins Ray for one run, quietly and with explicit authentication, and stops or leaves it at the end."""

from __future__ import annotations

import errno
import functools
import gc
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from memsweep.errors import BlockedError, Exit, MemsweepError
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.backend import ClusterLost
from memsweep.sweep.job import in_job
from memsweep.sweep.planning.resources import local_cpus
from memsweep.sweep.ray.private import cleanup_skipped_once_dead, head_processes, lean_head, quiet_driver
from memsweep.sweep.ray.scratch import remove_abandoned
from memsweep.sweep.signals import children_outlive_hangup, interrupts_held

_OBJECT_STORE = 200 * 2**20  # bytes; jobs and reports are kilobytes, results go through the store

_JOIN_TIMEOUT, _JOB_TIMEOUT = 60.0, 180.0  # seconds in which a cluster must answer; a job's own one may be busy

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_prestart_worker_first_driver": "0",  # trials get processes of their own, and these would stay idle
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # tasks may read files of the workspace by relative paths
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a pack without a GPU keeps what the machine's owner set
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # nothing reads Tune's own state of all trials
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
}


_log = logging.getLogger("memsweep")

_WATCH_INTERVAL = 0.5  # seconds
_RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Ray's variable: after so many seconds without the head of its cluster, Ray ends a process. Its default is 60."""
_AHEAD = 20.0
"""Seconds before that end at which this process is interrupted."""


class AddressError(MemsweepError):
    """No cluster can be joined at this address."""


def cluster_of(given: str | None) -> str | None:
    """The cluster that a sweep joins; None if it starts Ray on this machine.

    In a job it is the job's own cluster, else the given one. RAY_ADDRESS alone, which people set for other programs,
    moves no sweep.

    Raises:
        AddressError: the given address is not one of a cluster.
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
def ray_session(address: str | None) -> Iterator[None]:
    """Start Ray on this machine, or join a running cluster; leave or stop it at the end.

    If Ray's head dies meanwhile, this process is interrupted, wherever it is.

    Args:
        address: None starts Ray here and stops it afterwards; ``auto`` or ``host:port`` joins a cluster.

    Raises:
        BlockedError: the cluster cannot be joined, or Ray cannot start; nothing is left running.
        ClusterLost: Ray's head has died.
    """
    with _settings(address):
        import_ray(address)
        with quiet_driver():
            try:
                with interrupts_held():
                    _connect(address)
                lost, leaving = (_dead_part(), None) if address is None else (_silent_head(), _AHEAD / 2)
                with _watched(lost, leaving):
                    yield
            finally:
                _shut_down()
                remove_abandoned()  # of groups of workers that were kept when their process ended


def import_ray(address: str | None = None) -> None:
    """Import Ray with the settings that it reads once and for all; to be called before any other use of Ray."""
    with _settings(address):
        import ray  # noqa: F401  (before its loggers are quietened)
    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _settings(address: str | None) -> Iterator[None]:
    """Set Ray's variables in the environment, but those that are set already, and remove them at the end."""
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
    """Leave or stop Ray, without garbage collection: a reference into Ray that another thread frees would crash us."""
    import ray

    gc.collect()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        gc.enable()


def count_nodes(address: str) -> int:
    """How many nodes a cluster has or can have, asked in another process, so that this one joins nothing.

    Raises:
        BlockedError: the cluster cannot be joined.
    """
    code = (
        "import sys\n"
        "from memsweep.sweep.ray.session import ray_session\n"
        "from memsweep.sweep.ray.capacity import most_nodes\n"
        "with ray_session(sys.argv[1]): print(most_nodes())"
    )
    asked = subprocess.run(
        [sys.executable, "-c", code, address], capture_output=True, text=True, errors="replace", check=False
    )
    count = (asked.stdout.strip() or "-").splitlines()[-1]
    if asked.returncode != 0 or not count.isdigit():
        last = (asked.stderr.strip() or "no answer").splitlines()[-1]
        raise BlockedError(
            last.partition("BlockedError: ")[2] or f"no Ray cluster could be joined at {address}: {last}"
        )
    return int(count)


def _connect(address: str | None) -> None:
    import ray

    quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    try:
        if address is None:
            with lean_head(), children_outlive_hangup():
                ray.init(
                    address="local",  # never by accident a cluster that somebody left running
                    num_cpus=local_cpus(),
                    object_store_memory=_OBJECT_STORE,
                    include_dashboard=False,
                    **quiet,
                )
        else:
            _check_health(address)
            ray.init(address=address, **quiet)
    except Exception as error:  # Ray raises bare Exceptions, too
        if address is None:
            raise BlockedError(
                f"Ray could not start on this machine: {without_secrets(str(error))} Run with --inline to go "
                "without Ray."
            ) from error
        said = without_secrets(str(error)).rstrip(".")
        raise BlockedError(
            f"no Ray cluster could be joined at {address!r}: {said}. Give the host:port of one that runs with "
            "--address, start one (ray start --head), or leave --address out to run on this machine."
        ) from error


def _check_health(address: str) -> None:
    """Check that the cluster answers: ray.init would wait up to nine minutes for one that is down or refuses us."""
    where = [] if address == "auto" else ["--address", address]
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *where]
    timeout = _JOB_TIMEOUT if in_job() else _JOIN_TIMEOUT
    try:
        asked = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise ConnectionError(
            f"it gave no answer within {timeout:g} s (it is down, or its token is not the one in RAY_AUTH_TOKEN)"
        ) from None
    if asked.returncode != 0:
        raise ConnectionError((asked.stderr.strip() or "it is not healthy").splitlines()[-1])


@contextmanager
def _watched(lost: Callable[[], str], leaving: float | None) -> Iterator[None]:
    """Interrupt this process, as Ctrl-C would, when Ray's head is gone.

    Ray itself would end this process in native code, some ten seconds after a head of its own and a minute after that
    of a cluster, without an error in Python.

    Args:
        lost: says why it is gone; empty while it is there.
        leaving: seconds after which a process that has not ended by then is ended here; None: it is left to Ray.

    Raises:
        ClusterLost: in the place of what ended the work; it says why.
    """
    gone, ended = list[str](), threading.Event()

    with cleanup_skipped_once_dead() as skip_cleanup:

        def watch() -> None:
            while not ended.wait(_WATCH_INTERVAL):
                if (why := lost()) and not ended.is_set():
                    gone.append(why)
                    skip_cleanup()
                    os.kill(os.getpid(), signal.SIGTERM)  # a shell's background job may ignore SIGINT
                    if leaving is not None and not ended.wait(leaving):  # in native code no signal is heard
                        _log.error("%s; what is finished is kept, and resume goes on with the rest", why)
                        os._exit(Exit.BLOCKED)
                    return

        thread = threading.Thread(target=watch, name="memsweep-ray-watch", daemon=True)
        thread.start()
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:  # Ray may raise one of its own before the signal is heard
            if gone:
                raise ClusterLost(gone[0]) from error
            raise
        finally:
            ended.set()
            thread.join()


def _dead_part() -> Callable[[], str]:
    """A function that says which process of a head that was started here has died."""
    processes = head_processes()

    def lost() -> str:
        dead = next((name for name, process in processes.items() if process.poll() is not None), "")
        how = "was killed (often for lack of memory) or crashed"
        return f"Ray on this machine is gone: its {dead} {how}" if dead else ""

    return lost


def _silent_head() -> Callable[[], str]:
    """A function that says when the head of a cluster has not answered for too long; it may start anew before."""
    import ray

    most = max(float(os.environ.get(_RECONNECT, 60.0)) - _AHEAD, 1.0)
    where = ray.get_runtime_context().gcs_address
    host, _, text = where.rpartition(":")
    place = host.strip("[]"), int(text)
    heard = time.monotonic()

    def lost() -> str:
        nonlocal heard
        try:
            with socket.create_connection(place, timeout=2.0):
                heard = time.monotonic()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # it is this process that has no more files
                heard = time.monotonic()
        silent = time.monotonic() - heard > most
        return f"the Ray cluster is gone: its head at {where} did not answer for {most:g} s" if silent else ""

    return lost


def _authentication(address: str | None) -> dict[str, str]:
    """Ray's token authentication, set explicitly: its default depends on its version and on a file in ~/.ray."""
    if address is None:
        # a token of this run's processes alone; Ray would write its own one to the home folder
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _own_token()}
    given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return {"RAY_AUTH_MODE": "token" if given else "disabled"}


@functools.cache
def _own_token() -> str:
    """One token for the life of this process: Ray reads it only once."""
    return secrets.token_hex(32)


def _restore(before: Mapping[str, str]) -> None:
    if "RAY_ADDRESS" in before:
        os.environ["RAY_ADDRESS"] = before["RAY_ADDRESS"]
    for name in set(os.environ) - set(before):
        if name in _QUIET or name.startswith("RAY_AUTH_"):
            del os.environ[name]
