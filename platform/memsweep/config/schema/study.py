"""A study: its trials and the sections that hold for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.config.core.problems import sentence
from memsweep.config.schema.claims import Claims
from memsweep.config.schema.resource_rules import ResourceRule
from memsweep.config.schema.search import ConfirmConfig, Search
from memsweep.config.schema.trial import TrialConfig

_A_LITTLE = 0.001  # of the mark that a node with such a GPU has; Ray's own share of it, too

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
    node_memory: float | None = setting(
        None,
        "GiB of a node's memory that each process asks a cluster for, so that packs share a node as far as its memory "
        "goes (0: none; left out: as the largest programs need, measured on the cluster before the study starts)",
        at_least=0.0,
        at_most=1e6,
    )
    accelerator: str = setting(
        "", "type of the GPU that each process needs, as Ray names it, such as H100 or A100 (empty: any)"
    )
    labels: tuple[str, ...] = setting(
        (), "labels that a node needs, each as key=value, such as ray.io/market-type=spot"
    )
    rules: tuple[ResourceRule, ...] = setting(
        (),
        "other resources for some trials, each rule as {field: model.width, above: 256, gpus: 1}; of two that set the "
        "same, the later one counts",
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
        if self.accelerator and not self.card:
            yield (
                f"accelerator is {self.accelerator} without a GPU: set gpus, or gpus_per_worker of several workers, or "
                "leave accelerator out"
            )
        for label in self.labels:
            if not all(label.partition("=")[::2]):
                yield f"labels holds {label!r}: write each as key=value"
        if self.rules and self.workers > 1:
            yield f"rules are for packs in one process, and workers is {self.workers}: leave one of them out"

    def of(self, trial: TrialConfig) -> ResourcesConfig:
        """The resources of a pack of such trials."""
        if not self.rules:
            return self
        changes = {name: value for rule in self.rules if rule.holds(trial) for name, value in rule.changes.items()}
        return replace(self, rules=(), **changes)

    def rule_problems(self, trials: Sequence[TrialConfig], searched: Collection[str]) -> Iterator[str]:
        """The mistakes in the rules, given these trials, of whose fields some are ``searched``."""
        for number, rule in enumerate(self.rules):
            why = "is searched: a rule may read fields of the grid" if rule.field in searched else rule.problem(trials)
            if why:
                yield sentence(f"resources.rules[{number}].field", why, rule.field)
        kinds = dict.fromkeys(map(self.of, trials)) if self.rules else {}
        yield from dict.fromkeys(sentence("resources.rules", text) for kind in kinds for text in kind.problems())

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
    def selector(self) -> dict[str, str]:
        """The labels that a node needs, by key."""
        return {key: value for key, _, value in (label.partition("=") for label in self.labels)}

    @property
    def bundle(self) -> dict[str, float]:
        """The share of a node that each process asks Ray for, by Ray's names."""
        card = {"GPU": self.card} if self.card else {}
        kind = {f"accelerator_type:{self.accelerator}": _A_LITTLE} if self.accelerator else {}
        memory = {"memory": float(round(self.node_memory * 2**30))} if self.node_memory else {}
        return {"CPU": self.cpus, **card, **kind, **memory}

    @property
    def words(self) -> str:
        """``1 CPU, 0.5 GPU``, and what else a process asks for."""
        more = [self.accelerator] if self.accelerator else []
        more += [f"{self.node_memory:g} GiB of memory"] if self.node_memory else []
        return ", ".join([f"{self.cpus:g} CPU", f"{self.card:g} GPU", *more, *self.labels])

    @property
    def device(self) -> str:
        """Type of the device that computes: ``cpu`` or ``cuda``."""
        return "cuda" if self.card else "cpu"

    @property
    def shards(self) -> int:
        """The number of parts of a training step's data; the sum over several parts has another rounding."""
        return self.workers if self.strategy == "data" else 1


@dataclass(frozen=True, kw_only=True)
class DecideConfig:
    """How far one run of memsweep decide goes with the study; a limit of the command line wins."""

    max_hours: float | None = setting(None, "stop after so many hours", above=0.0)
    max_core_hours: float | None = setting(
        None, "stop after so much work of cores; a question that needs more is hopeless", above=0.0
    )
    max_gpu_hours: float | None = setting(None, "stop after so much work of GPUs", above=0.0)
    max_node_hours: float | None = setting(None, "stop after so many hours of nodes, idle ones too", above=0.0)
    max_cost: float | None = setting(
        None, "stop when nodes have cost so much, idle ones too, by $MEMSWEEP_NODE's price of an hour", above=0.0
    )
    max_trials: int | None = setting(None, "stop after so many trials got a result", at_least=1)
    max_failures: int | None = setting(None, "stop once so many trials have failed", at_least=1)


@dataclass(frozen=True)
class FirstPlan:
    """Trials and axes that decide may have begun with: of other horizons, widths or seeds than the study's own."""

    rows: tuple[TrialConfig, ...]
    grid: Mapping[str, tuple[Any, ...]]


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
        decide: limits of ``memsweep decide``. They belong to its runs: no plan holds them, and no identity.
        smaller: where horizons, widths or seeds were found, with what less ``decide`` may begin, the largest first. A
            stored plan holds what was begun with, and none of these.
        earlier: the same of earlier versions, which found other sizes: ``decide`` goes on with them, and begins none.
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
    decide: DecideConfig = field(default_factory=DecideConfig)
    smaller: tuple[FirstPlan, ...] = ()
    earlier: tuple[FirstPlan, ...] = ()

    @property
    def kinds(self) -> dict[ResourcesConfig, int]:
        """The resources that packs ask for -> how many rows ask for them."""
        return dict(Counter(map(self.resources.of, self.rows)))
