"""One pack as a worker process sees it: what to run, where results go, and what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.chain import resolved, taken
from memsweep.errors import StoreError
from memsweep.sweep.planning.chain_values import carried_value
from memsweep.sweep.planning.identity import ON_CPU, Arithmetic, identity, pack_identity
from memsweep.sweep.store.record import SCHEMA, now
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.retry import patient
from memsweep.sweep.worker import crash_report, provenance
from memsweep.sweep.worker.failure import Failure, StoppedError, TimeLimitError, failure_of, is_memory
from memsweep.sweep.worker.guards import ShareFailedError, can_go_on, computing
from memsweep.sweep.worker.memory import memory_limit
from memsweep.sweep.worker.timing import STARTING, STORING, Phases

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.learning.state.checkpoint import Slot
    from memsweep.trial import RunOptions, TrialResult

__all__ = ["Failure", "PackJob", "PackReport", "Progress", "execute_pack", "failure_of", "is_memory"]

Progress = Callable[[float], None]
RunPack = Callable[["list[TrialConfig]", "RunOptions"], "list[TrialResult]"]
"""``memsweep.trial.run_pack``, or a function with its signature."""
Together = Callable[..., "tuple[list[TrialResult], dict[str, Any]]"]
"""Several workers: ``(names, configs, progress, padded=)`` gives the results and their provenance."""


@dataclass(frozen=True)
class PackJob:
    """Plain data that any process can unpickle; the same job gives the same numbers wherever it runs.

    Attributes:
        pack: identity of the pack.
        study: the study's name.
        folder: path or URI of the study's results, reachable from every worker.
        workspace: folder whose ``tasks/`` are imported.
        members: identity and canonical config of each trial.
        threads: threads of the process that runs it.
        revision: code revision, for the record.
        time_limit: seconds of one trial (0: none).
        memory: GiB that the pack may ask for (0: no limit).
        inline: it runs in the driver's own process.
        workers: processes that run it together; they share out the data of each step where ``arithmetic`` has as many
            shards, and the replicas where it has one.
        arithmetic: where it is computed, as far as its last bits depend on it.
        card_bytes: bytes of tensors that each process may hold on its GPU (0: no limit).
        after: identity of a member -> identity of the trial from whose kept state it may go on. With one worker only;
            it saves time and moves no number.
    """

    pack: str
    study: str
    folder: str
    workspace: str
    members: tuple[tuple[str, dict[str, Any]], ...]
    threads: int = 1
    revision: str = ""
    time_limit: float = 0.0
    memory: float = 0.0
    inline: bool = False
    workers: int = 1
    arithmetic: Arithmetic = ON_CPU
    card_bytes: int = 0
    after: tuple[tuple[str, str], ...] = ()

    def slots(self, names: Iterable[str]) -> list[str]:
        """Names of the checkpoints of trials that train together: one for each process that trains by itself.

        They are named for these trials, and outlive this pack, which another run may cut elsewhere.
        """
        whole = pack_identity(names)
        if self.inline or self.workers == 1 or self.arithmetic.shards > 1:
            return [whole]
        return [f"{whole}.{rank + 1}of{self.workers}" for rank in range(self.workers)]


@dataclass(frozen=True)
class PackReport:
    """What came of a pack.

    Attributes:
        finished: identity -> outcome of each trial whose result is in the store.
        failed: identity -> failure (see ``memsweep.sweep.worker.failure``) of each trial without a result.
        guilty: identities in ``failed`` whose own fault it is beyond doubt; to run them alone would tell no more.
        seconds: phase -> wall-clock seconds, see ``memsweep.sweep.worker.timing``.
    """

    finished: dict[str, str] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    guilty: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PackReport:
        data = json.loads(text)
        return cls(data["finished"], data["failed"], tuple(data["guilty"]), data["seconds"])


@patient()
def execute_pack(
    job: PackJob, progress: Progress, run: RunPack | None = None, together: Together | None = None
) -> PackReport:
    """Run the members of a pack that have no result yet, one program after the other, and store each result.

    Whatever the task's or the model's code raises comes back as failures in the report; only a KeyboardInterrupt of
    the main thread passes, where Ctrl-C raises it.

    Args:
        job: what to run.
        progress: called now and then with the fraction done, in [0, 1].
        run: what computes the results in this process (None: ``memsweep.trial.run_pack``).
        together: the workers that compute them in its stead.
    """
    worker = _Worker(job, Store(job.folder), run or _run_pack(), together)
    with worker.phases.phase(STARTING):
        todo = worker.begin()
    with memory_limit(0.0 if job.inline or together else job.memory):
        if any(config.chain is not None for config in todo.values()):
            worker.chain(todo, progress)
        else:
            worker.packs(todo, progress)
    return worker.report()


def _run_pack() -> RunPack:
    from memsweep.trial import run_pack

    return run_pack


@dataclass
class _Worker:
    """What runs the members of one job, stores what they found, and knows what came of each."""

    job: PackJob
    store: Store
    run: RunPack
    together: Together | None = None
    phases: Phases = field(default_factory=Phases)
    finished: dict[str, str] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    guilty: list[str] = field(default_factory=list)

    def report(self) -> PackReport:
        return PackReport(self.finished, self.failed, tuple(self.guilty), self.phases.seconds)

    def begin(self) -> dict[str, TrialConfig]:
        """The members that have no result yet; the others are finished, broken ones have failed."""
        broken = registry.discover(Path(self.job.workspace))
        todo: dict[str, TrialConfig] = {}
        for name, data in self.job.members:
            try:
                if self.store.has(name):
                    self._finish(name)
                else:
                    todo[name] = _rebuild(name, data, self.job.arithmetic)
            except BaseException as error:  # the member itself is at fault: the others go on without it
                if _is_stop(error):
                    raise
                self.failed[name] = failure_of(error, hint=" ".join(broken))
                self.guilty.append(name)
        return todo

    def packs(self, todo: dict[str, TrialConfig], progress: Progress) -> None:
        """Run the trials of each program together, program by program.

        What a program raises is the failure of all its trials that have no result then. A trial that had its program
        for itself need not be run alone again to know that the fault is its own: it is guilty.
        """
        programs = _by_program(todo, dict(self.job.after))
        for position, members in enumerate(programs):
            self._together(members, partial(_part, progress, position, len(programs)))

    def _together(self, todo: dict[str, TrialConfig], progress: Progress) -> None:
        try:
            results, origin = self._computed(todo, list(todo.values()), progress, padded=True)
            for name, result in zip(todo, results, strict=True):
                self._write(name, result, origin)
                self.finished[name] = str(result.outcome)
            self._forget(todo)
        except BaseException as error:
            self._fail(todo, error)

    def chain(self, todo: dict[str, TrialConfig], progress: Progress) -> None:
        """Run the trials of a chain one after the other, each with what the store says of its predecessor.

        Each result is stored at once. A trial without its predecessor's value fails; nobody else shares its program,
        so every failure is the trial's own.
        """
        for position, (name, config) in enumerate(todo.items()):
            share = partial(_part, progress, position, len(todo))
            try:
                self.finished[name] = self._link(name, config, share)
                self._forget([name])
            except BaseException as error:
                self._fail([name], error)
            share(1.0)

    def _link(self, name: str, config: TrialConfig, progress: Progress) -> str:
        """Run one trial of a chain and store it under its own identity and config; its outcome."""
        if (chain := config.chain) is None:
            raise RuntimeError(
                f"the trial {name} is not chained, but its pack is: a fault of memsweep, please report it"
            )
        carried = carried_value(self.store, config, self.job.arithmetic)
        (result,), origin = self._computed([name], [resolved(config, carried)], progress, padded=False)
        summary = result.summary | {chain.into.rpartition(".")[2]: taken(chain, carried)}
        self._write(name, replace(result, config=config, summary=summary), origin)
        return str(result.outcome)

    def _computed(
        self, names: Collection[str], configs: list[TrialConfig], progress: Progress, *, padded: bool
    ) -> tuple[list[TrialResult], dict[str, Any]]:
        """The results of trials that run together, and where they come from."""
        if self.together is not None:
            results, origin = self.together(names, configs, progress, padded=padded)
            self.phases.add(origin["phases"])
            return results, origin
        from memsweep.trial import RunOptions

        phases, arithmetic = Phases(), self.job.arithmetic
        try:
            with computing(self.job, len(names), partial(self._hung, names)) as undisturbed:
                options = RunOptions(
                    shards=arithmetic.shards,
                    checkpoint=self._slots(names)[0],
                    start_states=self._start_states(names),
                    end_states=self._end_states(names, configs),
                    progress=undisturbed(progress),
                    padded=padded,
                    device=arithmetic.device,
                    phase=phases.phase,
                )
                results = self.run(configs, options)
        finally:
            self.phases.add(phases.seconds)
        origin = provenance.collect(
            self.job.revision, seconds=phases.seconds, pack=list(names), device=arithmetic.device
        )
        return results, origin | {"threads": self.job.threads}

    def _start_states(self, names: Collection[str]) -> list[Slot | None]:
        """The states from which trials may start; empty where there are none."""
        before = dict(self.job.after)
        slots: list[Slot | None] = [self.store.state_slot(before[name]) if name in before else None for name in names]
        return slots if any(slots) else []

    def _end_states(self, names: Collection[str], configs: list[TrialConfig]) -> list[Slot | None]:
        """Where trials that stop before all their steps leave their states; empty where none does."""
        slots: list[Slot | None] = [
            self.store.state_slot(name) if config.training.until else None
            for name, config in zip(names, configs, strict=True)
        ]
        return slots if any(slots) else []

    def _slots(self, names: Collection[str]) -> list[Slot]:
        return [self.store.slot(name) for name in self.job.slots(names)]

    def _forget(self, names: Collection[str]) -> None:
        for slot in self._slots(names):
            with contextlib.suppress(OSError, StoreError):  # one that stays costs a little space
                slot.delete()

    def _write(self, name: str, result: TrialResult, origin: dict[str, Any]) -> None:
        with self.phases.phase(STORING):
            record = {
                "schema": SCHEMA,
                "identity": name,
                "study": self.job.study,
                "outcome": str(result.outcome),
                "config": to_dict(result.config),
                "summary": result.summary,
                "provenance": {**provenance.of_trial(result.config, self.job.arithmetic), **origin},
            }
            tables = {table: frame.assign(identity=name) for table, frame in result.tables.items()}
            self.store.write(name, record, tables)

    def _finish(self, name: str) -> None:
        self.finished[name] = str(self.store.record(name)["outcome"])

    def _fail(self, names: Collection[str], error: BaseException) -> None:
        """Those of a program that raised which have no result; foreign code may raise anything, sys.exit() included."""
        if _is_stop(error):
            raise error
        self._fault(names, error.failure if isinstance(error, ShareFailedError) else failure_of(error))
        if not can_go_on(error):
            self._forget(names)

    def _fault(self, names: Collection[str], failure: Failure) -> None:
        for name in names:
            if self.store.has(name):
                self._finish(name)
            else:
                self.failed[name] = failure
                if len(names) == 1:
                    self.guilty.append(name)

    def _hung(self, names: Collection[str], error: TimeLimitError, stack: str) -> None:
        """The end of this process, whose own thread does not hear that its time is over."""
        try:
            failure = failure_of(error, stack=stack)
            if self.job.inline:
                told = f"memsweep: {failure['error']}\n{stack}The process ends: what is finished is kept.\n"
                os.write(2, told.encode(errors="backslashreplace"))  # whatever became of sys.stderr
            self._fault(names, failure)
            for name in set(names) & set(self.failed):
                self.store.fail(name, {"study": self.job.study, "time": now(), **failure})
            if not self.job.inline:
                self._miss(failure_of(TimeLimitError(f"its worker ended at another trial's time limit: {error}")))
                crash_report.leave(self.store, self.job.pack, self.report().to_json())
        finally:
            os._exit(1)

    def _miss(self, failure: Failure) -> None:
        """The members that this process never came to."""
        for name, _ in self.job.members:
            if name not in self.finished and name not in self.failed:
                self.failed[name] = failure


def _by_program(todo: Mapping[str, TrialConfig], after: Collection[str]) -> list[dict[str, TrialConfig]]:
    """The trials that run as one, in order of first appearance; those that may go on from a state apart from others."""
    from memsweep.trial import program

    found: dict[tuple[str, bool], dict[str, TrialConfig]] = {}
    for name, config in todo.items():
        found.setdefault((program(config), name in after), {})[name] = config
    return list(found.values())


def _part(progress: Progress, position: int, count: int, fraction: float) -> None:
    progress((position + fraction) / count)


def _is_stop(error: BaseException) -> bool:
    """Whether somebody wants the job to end: its backend, or Ctrl-C.

    Signals reach the main thread only; elsewhere it is the task that raises a KeyboardInterrupt.
    """
    if isinstance(error, StoppedError):
        return True
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _rebuild(name: str, data: dict[str, Any], arithmetic: Arithmetic) -> TrialConfig:
    from memsweep.trial import program

    config = trial_from_dict(data)
    here = identity(config, arithmetic)
    if here != name:
        raise RuntimeError(
            f"this worker's code gives the trial the identity {here}, the driver's gave {name}: the two run different "
            "code. Install one version of memsweep, of the workspace's tasks/ and of the plugins on every node."
        )
    program(config)  # what its parts say of themselves is foreign code, too, and shall fail here, alone
    return config
