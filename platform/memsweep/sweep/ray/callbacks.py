"""Turns the calls of Tune's callbacks into the runner's events. Imports Ray: import it only to run on Ray."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune import Callback
from ray.tune.search.basic_variant import BasicVariantGenerator

from memsweep.outcome import Outcome
from memsweep.redaction import without_secrets
from memsweep.sweep.backend import Events
from memsweep.sweep.ray.private import keep_credentials_out_of_runtime_environments, name_tasks, trial_error
from memsweep.sweep.worker.execute import Failure, PackJob, PackReport
from memsweep.sweep.worker.failure import NODE_LOST
from memsweep.sweep.worker.limits import GIB, KernelKills


class RunnerCallback(Callback):
    """Callback of one experiment.

    Args:
        jobs: pack -> job.
        events: what is told of them.
        look: called often, and told whether jobs that wait may be started.

    Attributes:
        open: pack -> job of the jobs that have not ended; each ends exactly once.
        running: packs of those of them that have started.
    """

    def __init__(self, jobs: dict[str, PackJob], events: Events, look: Callable[[bool], None]) -> None:
        self.open, self.running = dict(jobs), set[str]()
        self._events, self._look = events, look
        self._kills = KernelKills()
        self._peaks: dict[str, int] = {}  # bytes, by pack, in the worker's last report
        self._folder = os.sep
        with contextlib.suppress(OSError):
            self._folder = os.getcwd()

    def setup(
        self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any
    ) -> None:
        self._leave_deleted_folder()
        keep_credentials_out_of_runtime_environments()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune saves its callbacks to restore a run; our runs are restored from the store

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._leave_deleted_folder()
        self._look(self._events.may_start())

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._leave_deleted_folder()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if (job := self._job(trial)) is not None:
            self.running.add(job.pack)
            name_tasks(trial, job.title)
            self._events.started(job)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        job = self._job(trial)
        if job is None:
            return
        if "report" in result:
            self._close(job)
            self._events.finished(job, PackReport.from_json(result["report"]))
        else:
            self._peaks[job.pack] = int(result.get("peak_memory", 0))
            self._events.advanced(job, result["fraction"], result["doing"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        job = self._job(trial)
        if job is not None:  # else the worker died after its report, which is no harm
            self._close(job)
            self._events.died(job, _failure_of(trial, self._kills, self._peaks.get(job.pack, 0)))

    def _leave_deleted_folder(self) -> None:
        """Goes to the folder of its name, or to the root: Tune and MLflow fail where no path can be made absolute."""
        for place in (".", self._folder, os.sep):
            with contextlib.suppress(OSError):
                os.chdir(place)
                os.getcwd()
                return

    def _close(self, job: PackJob) -> None:
        del self.open[job.pack]
        self.running.discard(job.pack)

    def _job(self, trial: Any) -> PackJob | None:
        return self.open.get(trial.config["job"]["pack"])


class GatedVariants(BasicVariantGenerator):
    """Gives Tune its trials, and none while no job may be started; where none runs then, the experiment ends.

    Args:
        may_start: whether a job may be started now.
        at_once: trials at a time, which may change from one trial to the next.

    Attributes:
        closed: whether no job might be started when Tune asked last; once nothing runs then, it stays so.
    """

    def __init__(self, may_start: Callable[[], bool], at_once: Callable[[], int]) -> None:
        super().__init__()
        self._may_start, self._at_once, self.closed = may_start, at_once, False

    def next_trial(self) -> Any:
        self.max_concurrent = max(1, self._at_once())  # Tune takes 0 for no limit
        return super().next_trial()

    def is_finished(self) -> bool:
        # Tune asks again while it ends; a job that may start by then is one of the next experiment
        self.closed = (self.closed and not self._live_trials) or not self._may_start()
        return self.closed or bool(super().is_finished())

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune saves it to restore a run; our runs are restored from the store

    def get_state(self) -> dict[str, Any]:
        return {}


def _failure_of(trial: Any, kills: KernelKills, peak: int) -> Failure:
    """Why the worker of a trial died."""
    error, text = trial_error(trial)
    # nothing but the text tells a lost node from a lost process
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
