"""All names of Ray that are not public, each with the reason why it is used; they were looked at in Ray ``TESTED``."""

from __future__ import annotations

import contextlib
import importlib
import pickle
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

from memsweep.errors import MemsweepError

TESTED = "2.60"
"""The version of Ray whose private names these are; ``constraints.txt`` pins it, ``pyproject.toml`` allows no other."""


def head_processes() -> dict[str, Popen[bytes]]:
    """The processes of the head that ``ray.init`` has started here: Ray tells nobody publicly that one of them died."""
    node = _private("ray._private.worker", "_global_node")
    names = ("gcs_server", "raylet")
    return {name: node.all_processes[name][0].process for name in names if name in node.all_processes}


@contextmanager
def quiet_driver() -> Iterator[None]:
    """While it lasts, Ray prints nothing on standard output when a worker dies, and installs no SIGTERM handler.

    There is no setting for either. The runner reports dead workers itself; Ray's handler calls ``sys.exit``, which in
    the middle of Ray's own start leaves processes behind.
    """
    with (
        _replaced("ray._private.worker", "print_to_stdstream", _nothing),
        _replaced("ray._private.utils", "set_sigterm_handler", _nothing),
    ):
        yield


@contextmanager
def lean_head() -> Iterator[None]:
    """While it lasts, ``ray.init`` starts a head of one machine, which needs less than that of a cluster.

    ``ray.init`` has no setting for it. The agent takes any free port: on Ray's default port, that of a cluster's head
    which is started beside a sweep could not listen, and that cluster would accept no job. No autoscaler and no reader
    of the workers' logs starts: each is a process that takes nearly a CPU second.
    """
    parameters = _private("ray._private.parameter", "RayParams")
    lean = partial(parameters, dashboard_agent_listen_port=0, no_monitor=True, include_log_monitor=False)
    with _replaced("ray._private.parameter", "RayParams", lean):
        yield


@contextmanager
def cleanup_skipped_once_dead() -> Iterator[Callable[[], None]]:
    """Gives a function that skips Tune's cleanup of placement groups, to be called when the head is dead.

    The cleanup would wait for the dead head in native code, which then ends this process.
    """
    module, name = "ray.air.execution.resources.placement_group", "remove_placement_group"
    with contextlib.ExitStack() as stack:
        _private(module, name)
        yield lambda: stack.enter_context(_replaced(module, name, _nothing))


@contextmanager
def workers_kept(leaving: Callable[[], Collection[str]]) -> Iterator[None]:
    """While it lasts, Tune gives the process of a trial that ended to no trial whose own process is starting.

    Tune would end the one that starts. Where trials are shorter than a start, no node that joins would ever be used:
    there is always a trial that ends first. And no process on a node that is about to end is kept for another trial.

    Args:
        leaving: the addresses of such nodes.
    """
    controller = _private("ray.tune.tune", "TuneController")

    class Patient(controller):  # type: ignore[misc, valid-type]
        def _maybe_reuse_cached_actor(self, trial: Any) -> bool:
            own = None if trial in self._resetting_trials else self._trial_to_actor.get(trial)
            if own is not None and self._actor_manager.is_actor_started(own):
                return False
            return bool(super()._maybe_reuse_cached_actor(trial))

        def _maybe_cache_trial_actor(self, trial: Any) -> bool:
            return trial.node_ip not in leaving() and bool(super()._maybe_cache_trial_actor(trial))

    with _replaced("ray.tune.tune", "TuneController", Patient):
        yield


@contextmanager
def callbacks_uncounted() -> Iterator[None]:
    """While it lasts, Tune does not look which kinds of callbacks a study has.

    It does so for Ray's statistics of use, which are off here, before the first trial begins. It imports MLflow for it,
    which takes five seconds of the processor.
    """
    with _replaced("ray.air._internal.usage", "tag_callbacks", _nothing):
        yield


def keep_credentials_out_of_runtime_environments() -> None:
    """Keep Tune from copying AWS's credentials into each worker's runtime environment.

    A runtime environment appears on command lines, in Ray's logs and in its dashboard. Workers inherit the credentials
    of their node's environment, and those of an embedded Ray inherit ours.
    """
    names: set[str] = _private("ray.tune.execution.class_cache", "ENV_VARS_TO_PROPAGATE")
    names.difference_update([name for name in names if name.startswith("AWS_")])


def key_value(key: str) -> bytes:
    """The value under a key in the control store of the session's cluster; empty where there is none.

    The state of Ray's autoscaler lies there, and its public interface takes requests and tells nothing.
    """
    found: bytes | None = _private("ray.experimental.internal_kv", "_internal_kv_get")(key)
    return found or b""


def announced_node_types() -> list[Any] | None:
    """The node groups that the session's cluster has announced to its control store; None where it has not.

    Each has a ``name``, ``resources`` and ``max_count`` (-1: any number).
    """
    config = _private("ray._private.state", "state").get_cluster_config()
    return None if config is None else list(config.node_group_configs)


def draining_nodes() -> set[str]:
    """The identities of the nodes that are about to end: a cloud takes them back, or the autoscaler lets them go.

    Ray's list of nodes calls them alive until they are gone.
    """
    return set(_private("ray._private.state", "state").get_draining_nodes())


@dataclass(frozen=True)
class Group:
    """A placement group of the session's cluster.

    Attributes:
        job: its job's identity.
        state: ``CREATED`` where it has its resources, ``PENDING`` where it waits for them, ``REMOVED``, and others.
        cores: whether it asks for cores; a group of Tune that only waits for several workers does not.
    """

    job: str
    state: str
    cores: bool


def placement_groups() -> dict[str, Group]:
    """The placement groups of all jobs, by identity, which ends with that of the job.

    Those of Tune and of Ray Train are among them, and neither tells them publicly.
    """
    from ray.util import placement_group_table

    return {
        name: Group(name[-_JOB:], group["state"], any("CPU" in bundle for bundle in group["bundles"].values()))
        for name, group in placement_group_table().items()
    }


_JOB = 8  # letters of a job's identity


def commands_of_jobs() -> dict[str, str]:
    """The command line of each job's driver, by the job's identity: Ray's public list needs its dashboard."""
    return {job["JobID"]: job["Entrypoint"] for job in _private("ray._private.state", "state").job_table()}


def name_tasks(trial: Any, name: str) -> None:
    """Give the tasks of the process that runs a trial a name, until another trial gives them its own.

    Ray's dashboard and its list of tasks show it, where they would show that of a method of Tune for every trial.
    """
    actor = trial.temporary_state.ray_actor
    plain = vars(actor).setdefault("memsweep_train", actor.train)
    actor.train = plain.options(name=name)


def trial_error(trial: Any) -> tuple[BaseException | None, str]:
    """The error of one of Tune's trials, and its text.

    Tune has written both files on this machine by now; its own getters look in a folder to which they are copied later.
    """
    error = None
    with contextlib.suppress(OSError, TypeError, pickle.UnpicklingError):
        error = pickle.loads(Path(trial.pickled_error_file).read_bytes())
    with contextlib.suppress(OSError, TypeError):
        return error, Path(trial.error_file).read_text(encoding="utf-8", errors="replace")
    return error, str(error)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Takes the place of a function of Ray."""


def _private(module: str, name: str) -> Any:
    import ray

    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise MemsweepError(
            f"memsweep uses {module}.{name} of Ray {TESTED}, which Ray {ray.__version__} does not have. Install the "
            "pinned version: pip install -c constraints.txt ray"
        ) from None


@contextmanager
def _replaced(module: str, name: str, value: Any) -> Iterator[None]:
    before = _private(module, name)
    setattr(importlib.import_module(module), name, value)
    try:
        yield
    finally:
        setattr(importlib.import_module(module), name, before)
