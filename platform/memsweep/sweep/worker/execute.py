"""Runs one pack in a worker process: trains and measures its trials, stores their results, reports their failures."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.chain import chain_value, resolve_chain
from memsweep.errors import ConfigError, ModuleError, RegistryError, StorageError, StoreError
from memsweep.gate import gated
from memsweep.imports import importing
from memsweep.models.module.in_memory import put_all
from memsweep.sweep.planning.chain_values import carried_value
from memsweep.sweep.planning.cost import training_share
from memsweep.sweep.planning.identity import Arithmetic, identity
from memsweep.sweep.planning.reuse import TRAINED_BY, stored_trainings
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import WEIGHTS
from memsweep.sweep.store.record import SCHEMA, Failure, now
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.retry import storage_retries
from memsweep.sweep.store.unwritable import UnstoredResult
from memsweep.sweep.worker import provenance
from memsweep.sweep.worker.data_faults import data_fault
from memsweep.sweep.worker.failure import GroupFailedError, StoppedError, can_resume, failure_of, is_memory
from memsweep.sweep.worker.gpu_memory import hold_to
from memsweep.sweep.worker.isolation import isolated, original_only
from memsweep.sweep.worker.job import PackJob, PackReport, leave_report
from memsweep.sweep.worker.limits import OnHang, Report, TimeLimitError, forget_peak, memory_limit, time_limit
from memsweep.sweep.worker.misfits import without_misfits
from memsweep.sweep.worker.timing import STARTING, STORING, Phases, telling

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.learning.state.checkpoint import Slot
    from memsweep.learning.state.trained import Trained
    from memsweep.trial import RunOptions, TrialResult

_log = logging.getLogger("memsweep")

__all__ = ["Failure", "PackJob", "PackReport", "Progress", "execute_pack", "failure_of", "is_memory"]


class Progress(Protocol):
    """Called while a job runs."""

    def __call__(self, fraction: float, doing: str = "") -> None:
        """The job has done this fraction of its work; what it does now, in words."""


RunPack = Callable[["list[TrialConfig]", "RunOptions"], "list[TrialResult]"]
"""``memsweep.trial.run_pack``, or a function with its signature."""
Together = Callable[..., "tuple[list[TrialResult], dict[str, Any]]"]
"""A group of workers: ``(names, configs, progress, padded=)`` gives the results and their provenance."""


@contextlib.contextmanager
def guarded(job: PackJob, trials: int, on_hang: OnHang) -> Iterator[Callable[[Report], Report]]:
    """The body computes trials of a pack under its limits; the settings of the process are restored afterwards.

    Args:
        job: the pack: threads, time limit of one trial, and bytes on the GPU.
        trials: how many there are.
        on_hang: ends this process when the body does not react to the time limit; see
            ``memsweep.sweep.worker.limits``.

    Returns:
        A function that makes a callback one that the time limit does not interrupt.
    """
    import torch

    forget_peak()
    with isolated(), registry.files_held():  # a process of a group has it from here alone
        torch.set_num_threads(job.threads)
        hold_to(job.card_bytes)
        with time_limit(job.time_limit, trials, on_hang) as undisturbed, original_only():
            yield undisturbed


@storage_retries()
def execute_pack(
    job: PackJob, progress: Progress, run: RunPack | None = None, together: Together | None = None
) -> PackReport:
    """Run the members of a pack that have no result yet, one program after the other, and store each result.

    Every error of a task's or a model's code becomes a failure in the report. Only a KeyboardInterrupt of the main
    thread is raised again, because it is Ctrl-C. The first result that the storage does not take ends the work: it
    goes to the driver with the report.

    Args:
        job: the pack.
        progress: called with the fraction done, in [0, 1], and the step of the training.
        run: computes the results in this process (None: ``memsweep.trial.run_pack``).
        together: the group of workers that computes them instead.
    """
    worker = _Worker(job, Store(job.folder), run or _run_pack(), together)
    try:
        with worker.phases.phase(STARTING):
            todo = worker.start()
        with memory_limit(0.0 if job.inline or together else job.memory), registry.files_held():
            if any(config.chain is not None for config in todo.values()):
                worker.chain(todo, progress)
            else:
                worker.packs(todo, progress)
    except StorageError as error:
        worker.outage = error.cause
    return worker.report()


def _run_pack() -> RunPack:
    with importing():
        from memsweep.trial import run_pack

    return run_pack


@dataclass
class _Worker:
    """Runs the members of one job, stores their results, and keeps the outcome of each."""

    job: PackJob
    store: Store
    run: RunPack
    together: Together | None = None
    phases: Phases = field(default_factory=Phases)
    finished: dict[str, str] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    culprits: list[str] = field(default_factory=list)
    unstored: dict[str, UnstoredResult] = field(default_factory=dict)
    outage: str = ""
    origins: dict[str, dict[str, Any]] = field(default_factory=dict)

    def report(self) -> PackReport:
        return PackReport(
            self.finished, self.failed, tuple(self.culprits), self.unstored, self.outage, self.phases.seconds
        )

    def start(self) -> dict[str, TrialConfig]:
        """The members that have no result yet; those with a result are finished, those with a broken config failed."""
        broken = registry.discover(Path(self.job.workspace))
        put_all(self.job.code)
        todo: dict[str, TrialConfig] = {}
        for name, data in self.job.members:
            try:
                if self.store.has(name):
                    self._finish(name)
                else:
                    config = _rebuild(name, data, self.job.arithmetic)
                    # now: what a file holds at the end is not what was run
                    self.origins[name] = provenance.of_trial(config, self.job.arithmetic)
                    todo[name] = config
            except BaseException as error:  # an error of this member: the others run without it
                if _ends_job(error):
                    raise
                self.failed[name] = failure_of(error, hint=" ".join([*broken, *self._of_this_node(error)]))
                self.culprits.append(name)
        return todo

    def _of_this_node(self, error: BaseException) -> list[str]:
        """Advice where this node may lack code: the command itself has made the same trial."""
        if self.job.inline or not isinstance(error, ModuleError | RegistryError | ConfigError | ImportError):
            return []
        return [
            f"The command could make this trial, and the node {platform.node()} could not. If it is another machine, "
            "its files or packages are others: put the same there, or hand the study over with memsweep submit, which "
            "uploads the workspace."
        ]

    def packs(self, todo: dict[str, TrialConfig], progress: Progress) -> None:
        """Run the trials of each program together, program by program.

        An error is the failure of all trials of its program that have no result then. A trial that ran alone is the
        culprit; the others of a program are run alone again to find theirs.
        """
        programs = _by_program(todo, dict(self.job.after), self.job.trained)
        for position, members in enumerate(programs):
            trained = bool(self.job.trained.keys() & members)
            part = partial(_part, progress, "program", position, len(programs), tuple(members.values()), trained)
            self._run_together(members, part)

    def _run_together(self, todo: dict[str, TrialConfig], progress: Callable[[float], None]) -> None:
        try:
            results, origin = self._computed(todo, list(todo.values()), progress, padded=True)
            found = {name: (result, data_fault(result)) for name, result in zip(todo, results, strict=True)}
            self._store_results({name: result for name, (result, fault) in found.items() if fault is None}, origin)
            self._delete_checkpoints(todo)
            for name, (_, fault) in found.items():
                if fault is not None:
                    self._fail([name], fault)
        except BaseException as error:
            self._fail(todo, error)

    def chain(self, todo: dict[str, TrialConfig], progress: Progress) -> None:
        """Run the trials of a chain one after the other, each with a value from its predecessor's stored result.

        Each result is stored at once. A trial without its predecessor's value fails. Each has a program of its own, so
        every failure is its own.
        """
        for position, (name, config) in enumerate(todo.items()):
            share = partial(_part, progress, "trial", position, len(todo), (config,), False)
            try:
                self._link(name, config, share)
                self._delete_checkpoints([name])
            except BaseException as error:
                self._fail([name], error)
            share(1.0)

    def _link(self, name: str, config: TrialConfig, progress: Callable[[float], None]) -> None:
        """Run one trial of a chain and store it under its own identity and config."""
        if (chain := config.chain) is None:
            raise RuntimeError(
                f"the trial {name} is not chained, but its pack is: a fault of memsweep, please report it"
            )
        carried = carried_value(self.store, config, self.job.arithmetic)
        (result,), origin = self._computed([name], [resolve_chain(config, carried)], progress, padded=False)
        if fault := data_fault(result):
            raise fault
        summary = result.summary | {chain.into.rpartition(".")[2]: chain_value(chain, carried)}
        self._store_results({name: replace(result, config=config, summary=summary)}, origin)

    def _computed(
        self, names: Collection[str], configs: list[TrialConfig], progress: Callable[[float], None], *, padded: bool
    ) -> tuple[list[TrialResult], dict[str, Any]]:
        """The results of trials that run together, and their provenance."""
        if self.together is not None:
            results, origin = self.together(names, configs, progress, padded=padded)
            self.phases.add(origin["phases"])
            return results, origin
        from memsweep.trial import RunOptions

        phases, arithmetic = Phases(), self.job.arithmetic
        try:
            with guarded(self.job, len(names), partial(self._exit_on_hang, names)) as undisturbed:
                told = undisturbed(progress)
                options = RunOptions(
                    shards=arithmetic.shards,
                    checkpoint=self._slots(names)[0],
                    trained=self._trainings(names),
                    start_states=self._start_states(names),
                    end_states=self._end_states(names, configs),
                    progress=told,
                    padded=padded,
                    device=arithmetic.device,
                    phase=telling(phases.phase, told),
                )
                results = self.run(configs, options)
        finally:
            self.phases.add(phases.seconds)
        origin = provenance.collect(
            self.job.revision, seconds=phases.seconds, pack=list(names), device=arithmetic.device
        )
        return results, origin | {"threads": self.job.threads}

    def _trainings(self, names: Collection[str]) -> list[dict[int, Trained]]:
        """The trainings of these trials, where they are stored; empty where they are to be trained."""
        try:
            return stored_trainings(self.job.trained, list(names))
        except StoreError as error:
            if self.job.measures or isinstance(error, StorageError):
                raise
            _log.warning("%s These trials are trained again.", error)
            left = {name: place for name, place in self.job.trained.items() if name not in names}
            self.job = replace(self.job, trained=left)
            return []

    def _start_states(self, names: Collection[str]) -> list[Slot | None]:
        """The stored states from which trials may start; empty if there are none."""
        before = dict(self.job.after)
        slots: list[Slot | None] = [self.store.state_slot(before[name]) if name in before else None for name in names]
        return slots if any(slots) else []

    def _end_states(self, names: Collection[str], configs: list[TrialConfig]) -> list[Slot | None]:
        """The places for the states of trials that stop before all their steps; empty if none does."""
        slots: list[Slot | None] = [
            self.store.state_slot(name) if config.training.until else None
            for name, config in zip(names, configs, strict=True)
        ]
        return slots if any(slots) else []

    def _slots(self, names: Collection[str]) -> list[Slot]:
        return [self.store.slot(name) for name in self.job.slots(names)]

    def _delete_checkpoints(self, names: Collection[str]) -> None:
        for slot in self._slots(names):
            with contextlib.suppress(OSError, StoreError):  # a file that stays costs only space
                slot.delete()

    def _store_results(self, results: Mapping[str, TrialResult], origin: dict[str, Any]) -> None:
        """Store results of trials that ran together.

        Raises:
            StorageError: the storage does not take one; it and those after it are in ``unstored``.
        """
        with self.phases.phase(STORING):
            self.unstored = {name: self._encoded(name, result, origin) for name, result in results.items()}
            for name, result in list(self.unstored.items()):
                self.store.commit(name, result.files)
                self.finished[name] = self.unstored.pop(name).outcome

    def _encoded(self, name: str, result: TrialResult, origin: dict[str, Any]) -> UnstoredResult:
        result = without_misfits(name, result)
        origin = {**self.origins[name], **origin}
        weights = result.weights if self.job.keep == WEIGHTS else None
        if name in self.job.trained:  # they are kept where they were trained
            folder, trial = self.job.trained[name]
            origin[TRAINED_BY] = {"folder": Location.at(folder).name, "identity": trial}
            weights = None
        record = {
            "schema": SCHEMA,
            "identity": name,
            "study": self.job.study,
            "outcome": str(result.outcome),
            "config": to_dict(result.config),
            "summary": result.summary,
            "provenance": origin,
        }
        tables = {table: frame.assign(identity=name) for table, frame in result.tables.items()}
        return UnstoredResult(str(result.outcome), self.store.encode(name, record, tables, weights))

    def _finish(self, name: str) -> None:
        self.finished[name] = str(self.store.record(name)["outcome"])

    def _fail(self, names: Collection[str], error: BaseException) -> None:
        """Note the error as the failure of the trials without a result; it may be of any kind, SystemExit included."""
        if _ends_job(error):
            raise error
        self._note_failure(names, error.failure if isinstance(error, GroupFailedError) else failure_of(error))
        if not can_resume(error):
            self._delete_checkpoints(names)

    def _note_failure(self, names: Collection[str], failure: Failure) -> None:
        for name in [name for name in names if name not in self.unstored]:
            if self.store.has(name):
                self._finish(name)
            else:
                self.failed[name] = failure
                if len(names) == 1:
                    self.culprits.append(name)

    def _exit_on_hang(self, names: Collection[str], error: TimeLimitError, stack: str) -> None:
        """End this process, whose main thread does not react to its time limit; report to the driver before."""
        try:
            failure = failure_of(error, stack=stack)
            if self.job.inline:
                text = gated(f"memsweep: {failure['error']}\n{stack}The process ends: finished results are kept.\n")
                os.write(2, text.encode(errors="backslashreplace"))  # a task may have replaced sys.stderr
            self._note_failure(names, failure)
            for name in set(names) & set(self.failed):
                self.store.fail(name, {"study": self.job.study, "time": now(), **failure})
            if not self.job.inline:
                self._note_unstarted(
                    failure_of(TimeLimitError(f"its worker ended at another trial's time limit: {error}"))
                )
                leave_report(self.store, self.job.pack, self.report().to_json())
        finally:
            os._exit(1)

    def _note_unstarted(self, failure: Failure) -> None:
        """Note the failure of the members that this process did not start."""
        for name, _ in self.job.members:
            if name not in self.finished and name not in self.failed:
                self.failed[name] = failure


def _by_program(
    todo: Mapping[str, TrialConfig], after: Collection[str], trained: Collection[str]
) -> list[dict[str, TrialConfig]]:
    """The trials of each program, in order of first appearance; those that begin with something stored separately."""
    from memsweep.trial import program

    programs: dict[tuple[str, bool, bool], dict[str, TrialConfig]] = {}
    for name, config in todo.items():
        programs.setdefault((program(config), name in after, name in trained), {})[name] = config
    return list(programs.values())


def _part(
    progress: Progress,
    what: str,
    position: int,
    count: int,
    configs: tuple[TrialConfig, ...],
    trained: bool,
    fraction: float,
) -> None:
    """Reports a fraction of one of the job's programs, or of the trials of its chain.

    Args:
        progress: takes the fraction of the job.
        what, position, count: "trial" or "program"; its place among all, and how many these are.
        configs: of its trials: how much of their time the training takes. A pack counts ``TRAINING_SHARE`` for it.
        trained: whether their weights are stored, so that the training takes none.
        fraction: of the program, by the pack.
    """
    from memsweep.trial import TRAINING_SHARE

    share, steps = 0.0 if trained else _training_share(configs), configs[0].training.end
    part, measured = fraction / TRAINING_SHARE, (fraction - TRAINING_SHARE) / (1.0 - TRAINING_SHARE)
    done = share * part if part < 1 else share + (1.0 - share) * measured
    does = f"step {steps * part:,.0f} of {steps:,}" if part < 1 else "measuring"
    place = f" ({what} {position + 1} of {count})" if count > 1 else ""
    progress((position + done) / count, f"{does}{place}")


@functools.lru_cache(maxsize=64)
def _training_share(configs: tuple[TrialConfig, ...]) -> float:
    """Asked with each report, and only once the trials run: what a task raises is a failure of its trials."""
    return training_share(configs)


def _ends_job(error: BaseException) -> bool:
    """Whether the storage, the backend or Ctrl-C ends the job.

    Signals reach the main thread only; in another thread it is the task that raises a KeyboardInterrupt.
    """
    if isinstance(error, StoppedError | StorageError):
        return True
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _rebuild(name: str, data: dict[str, Any], arithmetic: Arithmetic) -> TrialConfig:
    from memsweep.trial import program

    config = trial_from_dict(data)
    here = identity(config, arithmetic)
    if here != name:
        raise RuntimeError(
            f"this worker's code gives the trial the identity {here}, the driver's gave {name}: the two run different "
            "code. If a file of the study was edited since the command began, run the command again. Otherwise install "
            "one version of memsweep, of the workspace's tasks/ and of the plugins on every node."
        )
    program(config)  # calls code of its parts, whose errors are this member's alone here
    return config
