"""Runs packs on Ray: each pack is one Tune trial, and worker processes are reused from pack to pack."""

from __future__ import annotations

import bisect
import contextlib
import logging
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.backend import Events, Work
from memsweep.sweep.ray.capacity import (
    Kinds,
    Requests,
    capacity,
    each,
    refuse_impossible,
    room,
    wait_for_room,
    work_of,
)
from memsweep.sweep.ray.private import callbacks_uncounted, workers_kept
from memsweep.sweep.ray.room import NodeHours, Room
from memsweep.sweep.ray.scratch import scratch_folder
from memsweep.sweep.ray.session import ray_session
from memsweep.sweep.ray.turns import Turns
from memsweep.sweep.ray.worker_group import WorkerGroup, WorkerGroupLostError
from memsweep.sweep.worker.execute import PackJob, PackReport
from memsweep.sweep.worker.failure import StoppedError
from memsweep.sweep.worker.gpu_memory import PATIENCE
from memsweep.sweep.worker.limits import peak_memory
from memsweep.sweep.worker.timing import report_interval, throttled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from ray.tune import PlacementGroupFactory

    from memsweep.sweep.ray.callbacks import GatedVariants, RunnerCallback

_SOON = 5.0  # seconds of a measurement after which it is said
_log = logging.getLogger("memsweep")

Fitted = tuple[ResourcesConfig, int]
"""The resources that a pack gets, and the bytes of tensors that a process may hold on a GPU."""
Fit = Callable[[ResourcesConfig], Fitted]


@contextmanager
def ray_backend(
    work: Work, packs: Callable[[], Kinds], fit: Fit, address: str | None, most: Callable[[], int | None] = lambda: None
) -> Iterator[RayBackend]:
    """A Ray session and the backend on it.

    Args:
        work: function that a worker runs with a job.
        packs: how many packs there are so far that this driver may get, by what they ask for; the answer changes.
        fit: what packs of a kind get; called once Ray runs, for the kinds of later jobs when they come.
        address: see ``memsweep.sweep.ray.session``.
        most: the most nodes that packs may fill at once; called once Ray runs, where the cluster can hold the packs.

    Raises:
        ConfigError: the cluster can never hold one pack.
        MemsweepError: Ray cannot start or be joined, or no node came in time.
    """
    with ray_session(address):
        refuse_impossible(packs(), capacity())
        hours, nodes = NodeHours(), most()
        wait_for_room(packs, nodes, hours.look)
        fitted = _fitted([kind for kind, count in packs().items() if count], fit)  # others come with their jobs
        wait_for_room(lambda: _as_fitted(packs(), fitted), nodes, hours.look)
        kinds = {got for got, _ in fitted.values()}
        follows = address is not None
        yield RayBackend(work, fitted, fit, Room(kinds, follows=follows, nodes=nodes, hours=hours))


def _as_fitted(packs: Kinds, fitted: Mapping[ResourcesConfig, Fitted]) -> Kinds:
    """How many packs there are, by what they get."""
    found = Counter[ResourcesConfig]()
    for asked, (got, _) in fitted.items():
        found[got] += packs[asked]
    return found


def _fitted(kinds: Collection[ResourcesConfig], fit: Fit) -> dict[ResourcesConfig, Fitted]:
    """Fits each kind; those with room are measured first, while nodes for the others come.

    Raises:
        ConfigError: the cluster can never hold a pack of one of them.
    """
    found = capacity()
    refuse_impossible(kinds, found)
    fitted = dict[ResourcesConfig, Fitted]()
    for number, asked in enumerate(sorted(kinds, key=lambda kind: not room(kind, found.living)), 1):
        most = PATIENCE * (1 + (asked.card not in (0.0, 1.0)))  # of a share of a card, its memory first
        with _said(f"packs of {each(asked)}, kind {number} of {len(kinds)}, at most {most:.0f} s"):
            fitted[asked] = fit(asked)
    return fitted


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Says what is measured, and whose work holds the nodes meanwhile, unless that is over in a few seconds."""
    from ray.exceptions import RayError

    def say() -> None:
        with contextlib.suppress(RayError):
            others = Requests().look().others
            behind = f" Others hold nodes: {work_of(others)}." if others else ""
            _log.warning("measuring what a pack needs, once a core is free: %s.%s", what, behind)

    timer = threading.Timer(_SOON, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class RayBackend:
    """Runs jobs as the trials of a Tune experiment, one experiment per call of ``run``.

    Args:
        work: function that a worker runs with a job.
        fitted: what jobs ask for -> what they get, of the kinds so far.
        fit: what a kind that comes later gets.
        room: for what they get.
    """

    def __init__(self, work: Work, fitted: Mapping[ResourcesConfig, Fitted], fit: Fit, room: Room) -> None:
        self._work, self._fitted, self._fit_kind, self._room = work, dict(fitted), fit, room

    @property
    def slots(self) -> int:
        return self._room.most

    @property
    def absent(self) -> float:
        return self._room.absent

    @property
    def node_hours(self) -> float:
        return self._room.node_hours

    def run(self, jobs: Sequence[PackJob], events: Events, *, one_by_one: bool = False) -> None:
        if not jobs:
            return
        if new := dict.fromkeys(job.resources for job in jobs if job.resources not in self._fitted):
            fitted = _fitted(new, self._fit_kind)
            self._fitted |= fitted
            self._room.add({got for got, _ in fitted.values()})
        at_once = 1 if one_by_one else len(jobs)
        callback, gate = self._experiment({job.pack: job for job in jobs}, at_once, events)
        # on SIGINT fit() stops its workers and returns without an error
        if callback.open and (callback.running or not gate.closed):
            raise KeyboardInterrupt

    def _fit(self, job: PackJob) -> PackJob:
        got, card_bytes = self._fitted[job.resources]
        return replace(job, resources=got, card_bytes=card_bytes)

    def _experiment(
        self, asked: dict[str, PackJob], at_once: int, events: Events
    ) -> tuple[RunnerCallback, GatedVariants]:
        """Runs jobs until they have ended, or none runs and none may be started."""
        from ray import tune

        from memsweep.sweep.ray.callbacks import GatedVariants, RunnerCallback

        by_pack = {pack: self._fit(job) for pack, job in asked.items()}
        callback = RunnerCallback(  # a job that is tried again comes back as it was asked for, and is fitted anew
            asked, events, lambda waiting: self._room.look(partial(turns.left, waiting=waiting))
        )
        turns = Turns([*by_pack.values()], self._room, callback.open, at_once, events.first, events.free)
        gate = GatedVariants(events.may_start, lambda: turns.limit)
        kinds = {job.resources: _requested(job.resources) for job in by_pack.values()}
        numbers = {kind: number for number, kind in enumerate(kinds)}
        requested = [*kinds.values()]

        def job() -> dict[str, Any]:
            pack = turns.next()
            return {"pack": pack, "kind": numbers[by_pack[pack].resources]}

        trainable = tune.with_resources(
            tune.with_parameters(
                _run_job,
                jobs=JobTable.of(by_pack),
                work=self._work,
                interval=report_interval(min(len(by_pack), self._room.expected)),
            ),
            lambda config: requested[config["job"]["kind"]],
        )
        # Tune's own state is not needed afterwards: the results are in the store.
        kept = workers_kept(lambda: self._room.leaving)
        with self._room.followed(), kept, callbacks_uncounted(), scratch_folder() as scratch:
            tune.Tuner(
                trainable,
                # Not a grid: Tune copies a grid's whole list for each of its trials.
                param_space={"job": tune.sample_from(job)},
                tune_config=tune.TuneConfig(
                    search_alg=gate,
                    num_samples=len(by_pack),
                    reuse_actors=True,
                ),
                run_config=tune.RunConfig(
                    name="packs",
                    storage_path=str(scratch),
                    verbose=0,
                    failure_config=tune.FailureConfig(max_failures=0),
                    callbacks=[callback],
                ),
            ).fit()
        return callback, gate


@dataclass(frozen=True)
class JobTable:
    """All jobs of an experiment; every worker gets them again with each job that it runs.

    They are arrays, whose memory Ray shares with its workers, while it would copy every entry of a dict: the cost of
    one job must not grow with the number of jobs.

    Attributes:
        packs: (J, 32) uint8, the jobs' identities in ascending order.
        ends: (J,) int64, where each job's bytes end.
        data: uint8, the pickled jobs one after the other.
    """

    packs: NDArray[np.uint8]
    ends: NDArray[np.int64]
    data: NDArray[np.uint8]

    @classmethod
    def of(cls, jobs: Mapping[str, PackJob]) -> JobTable:
        """The table of these jobs, by the identities of their packs."""
        import numpy as np
        from ray.cloudpickle import dumps

        names = sorted(jobs)
        blobs = [dumps(jobs[name]) for name in names]  # a class of a notebook goes by value
        packs = np.frombuffer("".join(names).encode(), np.uint8).reshape(len(names), -1)
        return cls(packs, np.cumsum([len(blob) for blob in blobs]), np.frombuffer(b"".join(blobs), np.uint8))

    def job(self, pack: str) -> PackJob:
        """The job of a pack.

        Raises:
            KeyError: no such job.
        """
        place = bisect.bisect_left(range(len(self.packs)), pack, key=lambda row: bytes(self.packs[row]).decode())
        if place == len(self.packs) or bytes(self.packs[place]).decode() != pack:
            raise KeyError(pack)
        begin = int(self.ends[place - 1]) if place else 0
        job: PackJob = pickle.loads(self.data[begin : int(self.ends[place])].tobytes())
        return job


def _requested(resources: ResourcesConfig) -> PlacementGroupFactory:
    """The resources that Tune requests from Ray for one pack.

    Several workers request their own; Tune's process only waits for them. It may hold nothing that a worker needs,
    because those workers would wait for ever, and it runs on the head, without which nothing runs.
    """
    from ray import tune

    if resources.workers > 1:
        return tune.PlacementGroupFactory([{"node:__internal_head__": 0.001}])
    labels = {"bundle_label_selector": [resources.selector]} if resources.labels else {}
    return tune.PlacementGroupFactory([resources.bundle], **labels)


def _run_job(config: dict[str, Any], jobs: JobTable, work: Work, interval: float) -> None:
    """Tune's function of a trial: runs the pack in this process, or waits for its group of workers."""
    from ray import tune

    job = jobs.job(config["job"]["pack"])
    group = WorkerGroup(job, job.resources) if job.workers > 1 else None

    def report_progress(fraction: float, doing: str = "") -> None:
        peak = group.peak_memory if group is not None else peak_memory()
        try:
            tune.report({"fraction": float(fraction), "doing": doing, "peak_memory": peak})
        except SystemExit as end:  # Tune ends a function so; one that a task raises is an error of the task
            raise StoppedError from end

    try:
        if group is None:
            report = work(job, throttled(report_progress, interval))
        else:
            with group:
                grouped: Callable[..., PackReport] = work
                report = grouped(job, throttled(report_progress, interval), together=group)
    except WorkerGroupLostError as lost:
        raise lost.cause from None
    except StoppedError:
        sys.exit(0)
    tune.report({"fraction": 1.0, "report": report.to_json()})
