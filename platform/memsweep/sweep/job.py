"""One pack as a worker process sees it: what to run, where results go, and what came of it."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.canonical import to_dict, trial_from_dict
from memsweep.config.chain import resolved, taken
from memsweep.outcome import Outcome
from memsweep.sweep import provenance
from memsweep.sweep.carry import carried_value
from memsweep.sweep.identity import code_fingerprint, identity, pack_identity
from memsweep.sweep.phases import STARTING, STORING, Phases
from memsweep.sweep.record import SCHEMA
from memsweep.sweep.store import Store

if TYPE_CHECKING:
    from memsweep.config.schema import TrialConfig
    from memsweep.trial import TrialResult

Progress = Callable[[float], None]
RunPack = Callable[..., "list[TrialResult]"]
"""``memsweep.trial.run_pack``, or whatever takes its arguments and returns results of its shape."""
Failure = dict[str, str]


@dataclass(frozen=True)
class PackJob:
    """Plain data that any process can unpickle; the same job gives the same numbers wherever it runs.

    Attributes:
        pack: identity of the pack; names its checkpoint.
        study: the study's name.
        folder: the study's results folder, reachable from every worker.
        workspace: folder whose ``tasks/`` are imported.
        members: identity and canonical config of each trial.
        threads: threads of the process that runs it.
        revision: code revision, for the record.
    """

    pack: str
    study: str
    folder: str
    workspace: str
    members: tuple[tuple[str, dict[str, Any]], ...]
    threads: int = 1
    revision: str = ""


@dataclass(frozen=True)
class PackReport:
    """What came of a pack.

    Attributes:
        finished: identity -> outcome of each trial whose result is in the store.
        failed: identity -> failure (``outcome``, ``error``, ``traceback``) of each trial without a result.
        guilty: identities in ``failed`` whose own fault it is beyond doubt; to run them alone would tell no more.
        seconds: phase -> wall-clock seconds, see ``memsweep.sweep.phases``.
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


def execute_pack(job: PackJob, progress: Progress, run: RunPack | None = None) -> PackReport:
    """Run the members of a pack that have no result yet, one program after the other, and store each result.

    Whatever the task's or the model's code raises comes back as failures in the report; only
    KeyboardInterrupt passes.

    Args:
        job: what to run.
        progress: called now and then with the fraction done, in [0, 1].
        run: what computes the results (None: ``memsweep.trial.run_pack``).
    """
    phases = Phases()
    finished: dict[str, str] = {}
    failed: dict[str, Failure] = {}
    with phases.phase(STARTING):
        store = Store(Path(job.folder))
        todo = _begin(job, store, finished, failed)
        worker = _Worker(job, store, run or _run_pack(), phases)
    if any(config.chain is not None for config in todo.values()):
        guilty = worker.chain(todo, progress, finished, failed)
    else:
        guilty = (*failed, *worker.packs(todo, progress, finished, failed))
    return PackReport(finished, failed, guilty, phases.seconds)


def _begin(job: PackJob, store: Store, finished: dict[str, str], failed: dict[str, Failure]) -> dict[str, TrialConfig]:
    """The members that have no result yet; the others are put into ``finished``, broken ones into ``failed``."""
    broken = registry.discover(Path(job.workspace))
    todo: dict[str, TrialConfig] = {}
    for name, data in job.members:
        try:
            if store.has(name):
                finished[name] = str(store.record(name)["outcome"])
            else:
                todo[name] = _rebuild(name, data)
        except Exception as error:  # the member itself is at fault: the others go on without it
            failed[name] = failure_of(error, hint=" ".join(broken))
    return todo


def _by_program(todo: Mapping[str, TrialConfig]) -> list[dict[str, TrialConfig]]:
    """The trials that run as one, in order of first appearance."""
    from memsweep.trial import program

    found: dict[str, dict[str, TrialConfig]] = {}
    for name, config in todo.items():
        found.setdefault(program(config), {})[name] = config
    return list(found.values())


def _run_pack() -> RunPack:
    from memsweep.trial import run_pack

    return run_pack


@dataclass(frozen=True)
class _Worker:
    """What runs the members of one job and stores what they found."""

    job: PackJob
    store: Store
    run: RunPack
    phases: Phases

    def packs(
        self,
        todo: dict[str, TrialConfig],
        progress: Progress,
        finished: dict[str, str],
        failed: dict[str, Failure],
    ) -> tuple[str, ...]:
        """Run the trials of each program together, program by program.

        What a program raises is the failure of all its trials that have no result then. A trial that had its program
        for itself need not be run alone again to know that the fault is its own: such are returned.
        """
        programs = _by_program(todo)
        for position, members in enumerate(programs):
            self._together(members, partial(_part, progress, position, len(programs)), finished, failed)
        return tuple(name for members in programs if len(members) == 1 for name in members if name in failed)

    def _together(
        self,
        todo: dict[str, TrialConfig],
        progress: Progress,
        finished: dict[str, str],
        failed: dict[str, Failure],
    ) -> None:
        checkpoint = self._checkpoint(todo)
        try:
            results, origin = self._computed(todo, list(todo.values()), checkpoint, progress, company=True)
            for name, result in zip(todo, results, strict=True):
                self._write(name, result, origin)
                finished[name] = str(result.outcome)
            checkpoint.unlink(missing_ok=True)
        except (Exception, SystemExit) as error:  # foreign code may raise anything, sys.exit() included
            failed |= {name: failure_of(error) for name in todo if not self.store.has(name)}
            finished |= {name: str(self.store.record(name)["outcome"]) for name in todo if self.store.has(name)}

    def chain(
        self,
        todo: dict[str, TrialConfig],
        progress: Progress,
        finished: dict[str, str],
        failed: dict[str, Failure],
    ) -> tuple[str, ...]:
        """Run the trials of a chain one after the other, each with what the store says of its predecessor.

        Each result is stored at once. A trial without its predecessor's value fails; nobody else shares its program,
        so every failure is the trial's own: all that failed is returned.
        """
        for position, (name, config) in enumerate(todo.items()):
            share = partial(_part, progress, position, len(todo))
            try:
                finished[name] = self._link(name, config, share)
            except (Exception, SystemExit) as error:  # as in a pack
                failed[name] = failure_of(error)
            share(1.0)
        return tuple(failed)

    def _link(self, name: str, config: TrialConfig, progress: Progress) -> str:
        """Run one trial of a chain and store it under its own identity and config; its outcome."""
        if (chain := config.chain) is None:
            raise RuntimeError(
                f"the trial {name} is not chained, but its pack is: a fault of memsweep, please report it"
            )
        carried = carried_value(self.store, config)
        checkpoint = self._checkpoint([name])
        (result,), origin = self._computed([name], [resolved(config, carried)], checkpoint, progress, company=False)
        summary = result.summary | {chain.into.rpartition(".")[2]: taken(chain, carried)}
        self._write(name, replace(result, config=config, summary=summary), origin)
        checkpoint.unlink(missing_ok=True)
        return str(result.outcome)

    def _checkpoint(self, names: Iterable[str]) -> Path:
        """Named for those who train together: it outlives this pack, which another run may cut elsewhere."""
        return Path(self.job.folder) / "checkpoints" / f"{pack_identity(names)}.pt"

    def _computed(
        self, names: Iterable[str], configs: list[TrialConfig], checkpoint: Path, progress: Progress, *, company: bool
    ) -> tuple[list[TrialResult], dict[str, Any]]:
        """The results of trials that run together, and where they come from."""
        phases = Phases()
        try:
            with _threads(self.job.threads):
                results = self.run(
                    configs, checkpoint=checkpoint, progress=progress, company=company, phase=phases.phase
                )
        finally:
            self.phases.add(phases.seconds)
        return results, provenance.collect(self.job.revision, seconds=phases.seconds, pack=list(names))

    def _write(self, name: str, result: TrialResult, origin: dict[str, Any]) -> None:
        with self.phases.phase(STORING):
            record = {
                "schema": SCHEMA,
                "identity": name,
                "study": self.job.study,
                "outcome": str(result.outcome),
                "config": to_dict(result.config),
                "summary": result.summary,
                "provenance": {"code_fingerprint": code_fingerprint(result.config), **origin},
            }
            tables = {table: frame.assign(identity=name) for table, frame in result.tables.items()}
            self.store.write(name, record, tables)


def _part(progress: Progress, position: int, count: int, fraction: float) -> None:
    progress((position + fraction) / count)


def failure_of(error: BaseException, hint: str = "") -> Failure:
    """An exception as the plain data of a failure: ``outcome``, ``error`` and ``traceback``."""
    sentence = f"{type(error).__name__}: {error}" + (f" ({hint})" if hint else "")
    return {
        "outcome": str(Outcome.OUT_OF_MEMORY if is_memory(error) else Outcome.FAILED),
        "error": sentence,
        "traceback": "".join(traceback.format_exception(error)),
    }


def is_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out: Python's, torch's on a GPU, or torch's on a CPU."""
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    # torch raises a bare RuntimeError when the CPU allocator fails; only its words tell.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def _rebuild(name: str, data: dict[str, Any]) -> TrialConfig:
    config = trial_from_dict(data)
    here = identity(config)
    if here != name:
        raise RuntimeError(
            f"this worker's code gives the trial the identity {here}, the driver's gave {name}: the two run different "
            "code. Install one version of memsweep, of the workspace's tasks/ and of the plugins on every node."
        )
    return config


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
