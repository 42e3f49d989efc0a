"""A study: its trials and the sections that hold for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.config.core.problems import sentence
from memsweep.config.schema.claims import Claims
from memsweep.config.schema.search import ConfirmConfig, Search
from memsweep.config.schema.trial import TrialConfig

KEEP = ("weights", "none")
"""The parts of a trained trial that may be kept beside its tables; the first is the default."""


@dataclass(frozen=True, kw_only=True)
class ResourcesConfig:
    """The share of the cluster that a pack of trials asks for: how fast numbers come, and their last bits at most."""

    cpus: float = setting(1.0, "CPU cores per process; each process runs one thread per core asked", above=0.0)
    gpus: float = setting(
        0.0,
        "share of a GPU per pack, in one process (0: computed on CPUs); where a probe finds that a pack needs more of "
        "the card's memory, it gets more",
        at_least=0.0,
        at_most=1.0,
    )
    workers: int = setting(1, "processes that run one pack together, on one node or several", at_least=1)
    gpus_per_worker: float = setting(
        0.0, "share of a GPU for each of several workers (0: computed on CPUs)", at_least=0.0, at_most=1.0
    )
    strategy: str = setting(
        "replicas",
        "the work that several workers share: the seeds, with equal bits, or the data of each step, whose gradients "
        "are summed over all of them, equal but for rounding",
        choices=("replicas", "data"),
    )
    max_concurrent: int = setting(0, "packs that run at once (0: as many as the resources allow)", at_least=0)
    time_limit: float = setting(
        86_400.0,
        "seconds that a trial may take (0: no limit); trials that run together in a pack have their limits together, "
        "and where they exceed it each runs alone, so that only the one that hangs fails",
        at_least=0.0,
        at_most=1e8,
    )
    memory: float = setting(
        0.0,
        "GiB that a pack may ask for on top of its bare process (0: no limit): one that asks for more fails by itself "
        "before it takes the node's memory from others; not with --inline",
        at_least=0.0,
        at_most=1e6,
    )

    def problems(self) -> Iterable[str]:
        if self.workers > 1 and self.gpus:
            yield (
                f"gpus is {self.gpus:g} with {self.workers} workers: it is for packs in one process. Set gpus to 0 and "
                "gpus_per_worker to the share of each worker"
            )
        if self.workers == 1 and self.gpus_per_worker:
            yield (
                f"gpus_per_worker is {self.gpus_per_worker:g} with one worker: set gpus instead, or workers to at "
                "least 2"
            )

    def sharing_problems(self, trials: Iterable[TrialConfig]) -> list[str]:
        """Why several workers cannot share out the data of these trials, each reason once."""
        return list(dict.fromkeys(text for trial in trials for text in self._sharing(trial))) if self.shards > 1 else []

    def _sharing(self, trial: TrialConfig) -> Iterator[str]:
        if trial.training.objective == "population":
            yield sentence(
                "resources.strategy",
                "data shares out the sequences of a step, and with training.objective: population there are none. Take "
                "strategy: replicas",
            )
        for name in ("batch_size", "validation_size"):
            if (size := getattr(trial.training, name)) < self.workers:
                rule = f"must be at least resources.workers, {self.workers}, which share its sequences out"
                yield sentence(f"training.{name}", f"{rule} (strategy: data)", str(size))
        for kind, config in ((registry.TASK, trial.task), (registry.MODEL, trial.model)):
            if reason := registry.get(kind, config.name).sharing_problem(config):
                yield sentence("resources.strategy", reason)

    @property
    def card(self) -> float:
        """The share of a GPU that each process gets."""
        return self.gpus_per_worker if self.workers > 1 else self.gpus

    @property
    def device(self) -> str:
        """Type of the device that computes: ``cpu`` or ``cuda``."""
        return "cuda" if self.card else "cpu"

    @property
    def shards(self) -> int:
        """The number of parts of a training step's data; the sum over several parts has another rounding."""
        return self.workers if self.strategy == "data" else 1


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """One study: the base trial, the grid over it, and the resources of a pack.

    Attributes:
        name: the study's name as its author wrote it (any text; the results folder escapes it).
        rows: the trials of the grid, in the order of the axes, the last axis fastest.
        grid: the axes as they were written: dotted path -> values.
        resources: the resources of a pack.
        description: the comment lines at the top of the study file.
        claims: what was published about these conditions, for the report; None where the study claims nothing.
        protocol: the preset under the study's own settings (memsweep.config.schema.protocols).
        search: the searched fields; the trials are then the cells in which, or over which, they are searched.
        confirm: how the winners are retrained; None where they are not.
        keep: one of ``KEEP``. It changes no number, and no identity.
    """

    name: str
    rows: tuple[TrialConfig, ...]
    grid: Mapping[str, tuple[Any, ...]]
    resources: ResourcesConfig
    description: str = ""
    claims: Claims | None = None
    protocol: str = "matched"
    search: Search | None = None
    confirm: ConfirmConfig | None = None
    keep: str = KEEP[0]
