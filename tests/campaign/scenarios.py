"""The scenario of a round: a study of seconds, a storage, an MLflow, with Ray or in one process."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

STEPS, CHECKPOINT_EVERY = 80, 5

_TRAINING = (
    f"{{seeds: 2, steps: {STEPS}, batch_size: 8, validation_size: 16, validate_every: 10, "
    f"checkpoint_every: {CHECKPOINT_EVERY}}}"
)
_PERTURBATION = "{radii: {from: 1e-3, to: 1.0, count: 3}, starts: 1, ascent_steps: 1, test_size: 16}"
_COMMON = f"training: {_TRAINING}\nperturbation: {_PERTURBATION}\n"
_SEARCH = (
    "task: {name: watched, horizon: 1000000}\nmodel: {name: diagonal_rnn, width: 2}\n"
    "grid: {model.parameterization: [direct, exp]}\n"
    "confirm: {seeds: 2, top: 1}\n"
    "search:\n  training.learning_rate: {log_uniform: [1e-3, 0.3]}\n  trials: 4\n  batch: 2\n  startup: 2\n"
)

STUDIES = {
    "grid": (
        "task: {name: watched}\nmodel: {name: diagonal_rnn}\n"
        f"{_COMMON}grid: {{task.horizon: [1000000, 1100000, 1200000], model.width: [2, 3]}}\n"
    ),
    "tpe": f"{_SEARCH}  algorithm: tpe\n{_COMMON}",
    "asha": f"{_SEARCH}  scheduler: {{name: asha, grace: 20, reduction: 2}}\n{_COMMON}",
    "chain": (
        "task: {name: watched}\nmodel: {name: diagonal_rnn, parameterization: exp}\n"
        f"training: {_TRAINING[:-1]}, schedule: constant}}\nperturbation: {_PERTURBATION}\n"
        "chain: {along: model.width, carry: validation_loss, into: training.stop_below, factor: 0.5, first: 100.0}\n"
        "grid: {task.horizon: [1000000, 1100000], model.width: [2, 3]}\n"
    ),
    "workers": (
        "task: {name: watched, horizon: 1000000}\nmodel: {name: diagonal_rnn}\nresources: {workers: 2}\n"
        f"{_COMMON}grid: {{model.width: [2, 3]}}\n"
    ),
    "carried": (
        "task: {name: watched_text}\nmodel: {name: rnn, width: 4, initialization: xavier, activation: tanh}\n"
        f"training: {_TRAINING[:-1]}, optimizer: rmsprop, schedule: constant, select: loss, clip: 0,"
        " amplitude_penalty: 0, merge_redundant: false}\nperturbation: {balls: [], test_size: 16}\n"
        "grid: {task.horizon: [10, 12], training.learning_rate: [1e-3, 1e-2]}\n"
    ),
}
"""The text of each study; they all take their batches from the workspace's ``watched.py``."""

STORES = ("disk", "mount", "bucket")
"""A folder of this machine; one on a small file system of its own (needs root); an S3 bucket behind a proxy."""

TRACKINGS = ("sqlite", "server")
"""MLflow's database in the results folder; an MLflow server behind a proxy."""


@dataclass(frozen=True)
class Scenario:
    """The study, storage and place of a round.

    Attributes:
        study: a key of STUDIES.
        store: one of STORES.
        tracking: one of TRACKINGS.
        ray: whether packs run on Ray; else in the driver's own process.
        hosts: whether the driver and its workers run on several hosts.
    """

    study: str
    store: str
    tracking: str
    ray: bool
    hosts: bool = False

    def __str__(self) -> str:
        how = "hosts" if self.hosts else "Ray" if self.ray else "inline"
        return f"{self.study}, {self.store}, MLflow {self.tracking}, {how}"

    @property
    def words(self) -> list[str]:
        """The words of a command beside its verb and the study's name."""
        return ["--address", "auto"] if self.hosts else ["--ray" if self.ray else "--inline"]

    @property
    def alone(self) -> list[str]:
        """The same for a command in one process; with Ray where the study needs it."""
        return self.words if self.study == "workers" else ["--inline"]


def scenarios(stores: tuple[str, ...], *, hosts: bool) -> list[Scenario]:
    """All that this machine can run.

    Args:
        stores: the storages that can be had here.
        hosts: whether hosts can be made here.
    """
    found = [
        Scenario(study, store, tracking, ray)
        for study, store, tracking, ray in itertools.product(STUDIES, stores, TRACKINGS, (False, True))
        if ray or study != "workers"  # several workers are Ray's
    ]
    if hosts and "bucket" in stores:
        found += [Scenario(study, "bucket", "sqlite", ray=True, hosts=True) for study in ("grid", "chain")]
    return found
