"""Turns what Tune tells its callbacks into the runner's events. Imports Ray: import it only to run on Ray."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune import Callback

from memsweep.outcome import Outcome
from memsweep.redaction import without_secrets
from memsweep.sweep.backend import Events
from memsweep.sweep.worker.execute import Failure, PackJob, PackReport
from memsweep.sweep.worker.failure import NODE_LOST
from memsweep.sweep.worker.memory import GIB
from memsweep.sweep.worker.oom import KernelKills


class Relay(Callback):
    """One for each experiment; every job ends exactly once, and those that have not ended are ``open``."""

    def __init__(self, jobs: dict[str, PackJob], events: Events) -> None:
        self.open = dict(jobs)
        self._events = events
        self._kills = KernelKills()
        self._peaks: dict[str, int] = {}  # bytes, by pack, as the worker told last

    def setup(
        self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any
    ) -> None:
        _keep_credentials()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune saves its callbacks for a restore of its own; ours is the store, so there is nothing to save

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if (job := self._job(trial)) is not None:
            self._events.started(job)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        job = self._job(trial)
        if job is None:
            return
        if "report" in result:
            del self.open[job.pack]
            self._events.finished(job, PackReport.from_json(result["report"]))
        else:
            self._peaks[job.pack] = int(result.get("peak_memory", 0))
            self._events.advanced(job, result["fraction"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        job = self._job(trial)
        if job is not None:  # a worker that dies after its report has harmed nothing
            del self.open[job.pack]
            self._events.died(job, _death(trial, self._kills, self._peaks.get(job.pack, 0)))

    def _job(self, trial: Any) -> PackJob | None:
        return self.open.get(trial.config["pack"])


def _keep_credentials() -> None:
    """Tune would write AWS's credentials into each worker's runtime environment.

    That is on command lines, which all users of the machine can list, in Ray's logs and in its dashboard. Workers need
    no such favour: they inherit their node's environment, and an embedded Ray inherits ours.
    """
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE

    ENV_VARS_TO_PROPAGATE.difference_update([name for name in ENV_VARS_TO_PROPAGATE if name.startswith("AWS_")])


def _death(trial: Any, kills: KernelKills, peak: int) -> Failure:
    error, text = _error_of(trial)
    # Ray's own words; nothing else of it tells a lost node from a lost process
    node_lost = isinstance(error, RayActorError) and "node has died" in text
    if node_lost:
        outcome, cause = Outcome.FAILED, "its node was lost"
    elif isinstance(error, OutOfMemoryError) or "low on memory" in text:
        outcome, cause = Outcome.OUT_OF_MEMORY, "Ray stopped the worker because its node ran low on memory"
    elif kills.happened():
        outcome, cause = Outcome.OUT_OF_MEMORY, "the worker process was killed by the kernel's out-of-memory killer"
    elif isinstance(error, RayActorError):
        outcome = Outcome.FAILED
        cause = (
            "the worker process died without a Python error: it was killed (often by the out-of-memory killer of its "
            "node), it crashed in native code, or its node was lost"
        )
    else:
        outcome, cause = Outcome.FAILED, f"the worker could not run the pack: {error or text.strip()[-300:]}"
    failure: Failure = {"outcome": str(outcome), "error": without_secrets(cause), "traceback": without_secrets(text)}
    if node_lost:
        failure["cause"] = NODE_LOST
    if outcome is Outcome.OUT_OF_MEMORY and peak:
        failure |= {"error": f"{cause}; it held at least {peak / GIB:.2f} GiB", "peak_memory": peak}
    return failure


def _error_of(trial: Any) -> tuple[BaseException | None, str]:
    # Tune has written both files on this machine by now; its own getters look where they are copied only later.
    error = None
    with contextlib.suppress(OSError, TypeError, pickle.UnpicklingError):
        error = pickle.loads(Path(trial.pickled_error_file).read_bytes())
    with contextlib.suppress(OSError, TypeError):
        return error, Path(trial.error_file).read_text(encoding="utf-8", errors="replace")
    return error, str(error)
