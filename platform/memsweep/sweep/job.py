"""One pack as a worker process sees it: what to run, where results go, and what came of it."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator
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
from memsweep.sweep.record import SCHEMA
from memsweep.sweep.store import Store

if TYPE_CHECKING:
    from memsweep.config.schema import TrialConfig
    from memsweep.trial import TrialResult

Progress = Callable[[float], None]
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
    """

    finished: dict[str, str] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    guilty: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PackReport:
        data = json.loads(text)
        return cls(data["finished"], data["failed"], tuple(data["guilty"]))


def execute_pack(job: PackJob, progress: Progress) -> PackReport:
    """Run the members of a pack that have no result yet, and store each result.

    Whatever the task's or the model's code raises comes back as failures in the report; only
    KeyboardInterrupt passes.

    Args:
        job: what to run.
        progress: called now and then with the fraction done, in [0, 1].
    """
    broken = registry.discover(Path(job.workspace))
    store = Store(Path(job.folder))
    finished: dict[str, str] = {}
    failed: dict[str, Failure] = {}
    todo: dict[str, TrialConfig] = {}
    for name, data in job.members:
        try:
            if store.has(name):
                finished[name] = str(store.record(name)["outcome"])
            else:
                todo[name] = _rebuild(name, data)
        except Exception as error:  # the member itself is at fault: the others go on without it
            failed[name] = failure_of(error, hint=" ".join(broken))
    if any(config.chain is not None for config in todo.values()):
        return _execute_chain(job, store, todo, progress, PackReport(finished, failed))
    guilty = tuple(failed)
    if todo:
        try:
            finished |= _run_and_store(job, store, todo, progress)
        except (Exception, SystemExit) as error:  # foreign code may raise anything, sys.exit() included
            failed |= {name: failure_of(error) for name in todo if not store.has(name)}
            finished |= {name: str(store.record(name)["outcome"]) for name in todo if store.has(name)}
    return PackReport(finished, failed, guilty)


def _execute_chain(
    job: PackJob, store: Store, todo: dict[str, TrialConfig], progress: Progress, before: PackReport
) -> PackReport:
    """Run the trials of a chain one after the other, each with what the store says of its predecessor.

    Each result is stored at once. A trial without its predecessor's value fails; nobody else shares its program, so
    every failure is the trial's own.
    """
    finished, failed = dict(before.finished), dict(before.failed)
    for position, (name, config) in enumerate(todo.items()):
        share = partial(_part, progress, position, len(todo))
        try:
            finished[name] = _run_link(job, store, name, config, share)
        except (Exception, SystemExit) as error:  # as in execute_pack
            failed[name] = failure_of(error)
        share(1.0)
    return PackReport(finished, failed, tuple(failed))


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


def _run_and_store(job: PackJob, store: Store, todo: dict[str, TrialConfig], progress: Progress) -> dict[str, str]:
    from memsweep.trial import run_pack

    began = time.monotonic()
    checkpoint = Path(job.folder) / "checkpoints" / f"{job.pack}.pt"
    with _threads(job.threads):
        results = run_pack(list(todo.values()), checkpoint=checkpoint, progress=progress)
    origin = provenance.collect(job.revision, seconds=time.monotonic() - began, pack=list(todo))
    for name, result in zip(todo, results, strict=True):
        _write(job, store, name, result, origin)
    checkpoint.unlink(missing_ok=True)
    return {name: str(result.outcome) for name, result in zip(todo, results, strict=True)}


def _run_link(job: PackJob, store: Store, name: str, config: TrialConfig, progress: Progress) -> str:
    """Run one trial of a chain and store it under its own identity and config; its outcome."""
    from memsweep.trial import run_trial

    if (chain := config.chain) is None:
        raise RuntimeError(f"the trial {name} is not chained, but its pack is: a fault of memsweep, please report it")
    began = time.monotonic()
    carried = carried_value(store, config)
    # Named for the one trial: it outlives this pack, which another run may cut elsewhere.
    checkpoint = Path(job.folder) / "checkpoints" / f"{pack_identity([name])}.pt"
    with _threads(job.threads):
        result = run_trial(resolved(config, carried), checkpoint=checkpoint, progress=progress, company=False)
    summary = result.summary | {chain.into.rpartition(".")[2]: taken(chain, carried)}
    origin = provenance.collect(job.revision, seconds=time.monotonic() - began, pack=[name])
    _write(job, store, name, replace(result, config=config, summary=summary), origin)
    checkpoint.unlink(missing_ok=True)
    return str(result.outcome)


def _write(job: PackJob, store: Store, name: str, result: TrialResult, origin: dict[str, Any]) -> None:
    record = {
        "schema": SCHEMA,
        "identity": name,
        "study": job.study,
        "outcome": str(result.outcome),
        "config": to_dict(result.config),
        "summary": result.summary,
        "provenance": {"code_fingerprint": code_fingerprint(result.config), **origin},
    }
    store.write(name, record, {table: frame.assign(identity=name) for table, frame in result.tables.items()})


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
