"""A worker's job and its answer, which it leaves in the store where it ends itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import counted
from memsweep.models.module.in_memory import held
from memsweep.sweep.planning.fingerprint import configs_in
from memsweep.sweep.planning.identity import ON_CPU, Arithmetic, pack_identity
from memsweep.sweep.planning.resources import threads
from memsweep.sweep.store.filesystem import FileSlot, storage_errors
from memsweep.sweep.store.layout import WEIGHTS
from memsweep.sweep.store.record import Failure
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.unwritable import UnstoredResult
from memsweep.sweep.worker.provenance import code_revision

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan import Plan


@dataclass(frozen=True)
class PackJob:
    """A pack as plain data that any process can unpickle; the same job gives the same numbers wherever it runs.

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
        workers: processes that run it together. They share out the data of each step if ``arithmetic`` has as many
            shards, and the models if it has one.
        arithmetic: the device and the shards, on which the last bits of results depend.
        card_bytes: bytes of tensors that each process may hold on its GPU (0: no limit).
        after: identity of a member -> identity of the trial from whose kept state it may go on. With one worker only;
            it saves time and moves no number.
        keep: ``weights``: results hold the trained weights; ``none``: they do not.
        trained: identity of a member -> URI of the folder and identity of the trial that keep its trained weights.
        resources: what it asks for, without rules.
        measures: a member whose trained weights cannot be read fails, and is not trained.
        whole: identity of the pack of the study's plan to which its members belong; empty outside of a plan.
        code: name -> class or function that a member's config names and no file holds, as of a notebook's cell.
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
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    card_bytes: int = 0
    after: tuple[tuple[str, str], ...] = ()
    keep: str = WEIGHTS
    trained: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    measures: bool = False
    whole: str = ""
    code: Mapping[str, Callable[..., Any]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def title(self) -> str:
        """The study and the condition of its first trial, such as ``lengths: lru 16, mqar 64, 4 trials``."""
        parts = []
        for part, size in (("model", "width"), ("task", "horizon")) if self.members else ():
            config = self.members[0][1].get(part, {})
            parts += [f"{config.get('name', part)} {config.get(size, '')}".rstrip()]
        return f"{self.study}: {', '.join([*parts, counted(len(self.members), 'trial')])}"

    @property
    def is_chained(self) -> bool:
        """Whether its trials need one another's results."""
        return any(data.get("chain") for _, data in self.members)

    def only(self, name: str) -> PackJob:
        """The job with one of its members."""
        return self.of(tuple(member for member in self.members if member[0] == name))

    def of(self, members: tuple[tuple[str, dict[str, Any]], ...]) -> PackJob:
        """The job with these of its members, as a pack of their own."""
        return replace(self, pack=pack_identity(name for name, _ in members), members=members)

    def slots(self, names: Iterable[str]) -> list[str]:
        """Names of the checkpoints of trials that train together: one for each process that trains by itself.

        They depend only on the trials, because another run may put them into another pack.
        """
        whole = pack_identity(names)
        if self.inline or self.workers == 1 or self.arithmetic.shards > 1:
            return [whole]
        return [f"{whole}.{rank + 1}of{self.workers}" for rank in range(self.workers)]


def jobs_of(plan: Plan, workspace: Path, folder: str) -> list[PackJob]:
    """The jobs of a plan's packs; ``folder`` is that of the study's results."""
    revision = code_revision(workspace)
    packs = [(pack, plan.sweep.resources.of(pack.trials[0].config)) for pack in plan.packs]
    return [
        PackJob(
            pack=pack.identity,
            whole=pack.whole,
            study=plan.sweep.name,
            folder=folder,
            workspace=str(workspace),
            members=tuple((trial.identity, to_dict(trial.config)) for trial in pack.trials),
            threads=threads(resources),
            time_limit=resources.time_limit,
            memory=resources.memory,
            revision=revision,
            workers=resources.workers,
            arithmetic=Arithmetic.of(resources),
            resources=resources,
            after=tuple((trial.identity, trial.after) for trial in pack.trials if trial.after),
            keep=plan.sweep.keep,
            trained={trial.identity: trial.trained for trial in pack.trials if trial.trained[0]},
            measures=plan.measures,
            code=code_of(trial.config for trial in pack.trials),
        )
        for pack, resources in packs
    ]


def code_of(configs: Iterable[Any]) -> dict[str, Callable[..., Any]]:
    """The classes and functions that configs name and no file holds, by name."""
    return held(str(getattr(owner, "factory", "")) for config in configs for owner in configs_in(config))


@dataclass(frozen=True)
class PackReport:
    """Results and failures of a pack.

    Attributes:
        finished: identity -> outcome of each trial whose result is in the store.
        failed: identity -> failure (see ``memsweep.sweep.worker.failure``) of each trial without a result.
        culprits: identities in ``failed`` that failed alone, so that their failures are certainly their own.
        unstored: identity -> result of each trial that has one which the storage did not take.
        outage: why the storage could not be used; the worker then left out the other members. Empty where it could.
        seconds: phase -> wall-clock seconds, see ``memsweep.sweep.worker.timing``.
    """

    finished: dict[str, str] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    culprits: tuple[str, ...] = ()
    unstored: dict[str, UnstoredResult] = field(default_factory=dict)
    outage: str = ""
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    def to_json(self) -> str:
        unstored = {name: result.to_json() for name, result in self.unstored.items()}
        return json.dumps(asdict(replace(self, unstored={})) | {"unstored": unstored})

    @classmethod
    def from_json(cls, text: str) -> PackReport:
        data = json.loads(text)
        unstored = {name: UnstoredResult.from_json(result) for name, result in data["unstored"].items()}
        return cls(**data | {"culprits": tuple(data["culprits"]), "unstored": unstored})


def leave_report(store: Store, pack: str, report: str) -> None:
    """Write the report of a pack, which can no longer be sent.

    Args:
        store: the study's.
        pack: the pack's identity.
        report: ``PackReport.to_json``.

    Raises:
        StoreError: the storage does not allow it.
    """
    with storage_errors("leave_report", store.location):
        _slot(store, pack).write(report.encode())


def take_report(store: Store, pack: str) -> str | None:
    """Read the report of this pack and delete it; None if there is none, as after a kill.

    Raises:
        StoreError: the storage does not allow it.
    """
    slot = _slot(store, pack)
    with storage_errors("read", store.location):
        if (data := slot.read()) is None:
            return None
        slot.delete()
    return data.decode()


def _slot(store: Store, pack: str) -> FileSlot:
    return FileSlot(store.location / "crash_reports", f"{pack}.json")
