"""Stored results, and stored trainings of trials that are measured anew: neither is computed again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import StoreError
from memsweep.outcome import Outcome
from memsweep.sweep.planning.identity import training_of
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.layout import SUFFIX, WEIGHTS
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import (
    CURVES,
    HISTORY,
    REPLICAS,
    SIZE,
    columns,
    from_safetensors,
    in_training,
)
from memsweep.sweep.store.unwritable import fallback_root

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from memsweep.learning.state.trained import Trained
    from memsweep.sweep.planning.plan import PlannedTrial


TRAINED_BY = "trained_by"
"""In the provenance of a result whose weights were not trained for it: the folder and the trial that hold them."""


@dataclass(frozen=True)
class Reuse:
    """Which results need no work.

    Attributes:
        here: identities stored in this study, whole.
        elsewhere: identities that another study of the results folder holds, or an earlier run left on this machine
            -> the folder.
        damaged: identities stored in this study whose files are not what was written -> what is wrong.
    """

    here: frozenset[str] = frozenset()
    elsewhere: Mapping[str, Location] = dataclasses.field(default_factory=dict)
    damaged: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def all(self) -> frozenset[str]:
        """Every identity that needs no work."""
        return self.here | self.elsewhere.keys()

    @property
    def left_here(self) -> frozenset[str]:
        """Those of ``elsewhere`` that the storage of an earlier run, at whatever place, did not take."""
        root = fallback_root()
        return frozenset(identity for identity, folder in self.elsewhere.items() if folder.parent == root)

    @property
    def is_whole(self) -> bool:
        """Whether the study itself holds every one of them."""
        return not self.elsewhere and not self.damaged

    def __or__(self, other: Reuse) -> Reuse:
        return Reuse(self.here | other.here, {**self.elsewhere, **other.elsewhere}, {**self.damaged, **other.damaged})

    def apply(self, store: Store) -> None:
        """Brings the study's folder in line: sets damaged results aside, copies the results of other studies."""
        for identity in sorted(self.damaged):
            store.set_aside(identity)
        for identity, folder in self.elsewhere.items():
            store.copy_from(Store(folder), identity)


def find_reusable(trials: Sequence[PlannedTrial], store: Store, results: Location | None) -> Reuse:
    """Finds the stored results of these trials; reads and checks every file of a result that is to be reused.

    Args:
        trials: the trials.
        store: the study's results.
        results: the folder of all studies, which are searched as well, and then what earlier runs of this user left on
            this machine; None: the study's own results alone.
    """
    required = {trial.identity for trial in trials}
    stored = required & store.identities()
    damaged = store.check(stored)
    here = frozenset(stored - damaged.keys())
    elsewhere = find_elsewhere(results, required - here) if results is not None else {}
    if results is not None:
        with contextlib.suppress(StoreError):  # a folder of which the study does not depend
            elsewhere |= find_elsewhere(fallback_root(), required - here - elsewhere.keys())
    return Reuse(here, elsewhere, damaged)


def with_stored_training(
    trials: Iterable[PlannedTrial], stored: Iterable[str], results: Location
) -> tuple[PlannedTrial, ...]:
    """The trials, those without a result with the place of their trained weights, where another trial keeps them.

    Args:
        trials: of a study.
        stored: identities that have a result.
        results: the folder of all studies.
    """
    trials, have = tuple(trials), set(stored)
    places = _stored_trainings({training_of(t.identity) for t in trials if t.identity not in have}, results)
    return tuple(
        trial
        if trial.identity in have
        else dataclasses.replace(trial, trained=places.get(training_of(trial.identity), ("", "")))
        for trial in trials
    )


def interpolated(trials: Iterable[PlannedTrial]) -> int:
    """How many of these trials have radii, beside their trained weights, that were read between points of a curve.

    A trial whose curves cannot be read is left out: its measurement begins anew whatever they hold.
    """
    return sum(_interpolated(trial) for trial in trials if trial.trained[0])


def _interpolated(trial: PlannedTrial) -> bool:
    folder, identity = trial.trained
    try:
        curves = Store(folder).tables(identity, (CURVES,))[CURVES]
    except StoreError:
        return False
    asked = curves[curves["ball"].isin(trial.config.perturbation.balls)]  # not errors by bits: they have no thresholds
    return bool(len(asked)) and bool(asked["threshold"].isna().all())


def _stored_trainings(wanted: set[str], results: Location) -> dict[str, tuple[str, str]]:
    """Training -> (URI of a study's folder, identity of the trial there that keeps its weights)."""
    found: dict[str, tuple[str, str]] = {}
    with storage_errors("read", results):
        folders = [results / name for name in (results.folders() if wanted else ())]
    for folder in folders:
        store = Store(folder)
        with storage_errors("read", folder):
            sizes = folder.names(WEIGHTS)
        for name, size in sorted(sizes.items()):
            identity, _, suffix = name.partition(".")
            training = training_of(identity)
            if suffix == SUFFIX and training in wanted - found.keys() and _size_in_record(store, identity) == size:
                found[training] = (folder.uri, identity)
    return found


def _size_in_record(store: Store, identity: str) -> int:
    """Bytes of a trial's weights by its record; -1 without a record that says it."""
    try:
        return store.record(identity)["files"][WEIGHTS]["bytes"]
    except (StoreError, KeyError):
        return -1


def stored_training(store: Store, identity: str) -> dict[int, Trained]:
    """The training of a stored trial, by seed.

    Raises:
        StoreError: it keeps no weights, or a file of it is missing or damaged.
    """
    from memsweep.learning.state.trained import Trained

    record, observed = store.record(identity), in_training()
    weights = stored_weights(store, record)
    tables = store.tables(identity, (REPLICAS, HISTORY, *observed))

    def rows(table: str, seed: int) -> list[dict[str, Any]]:
        frame: pd.DataFrame = tables[table]
        return [
            {str(name): value for name, value in row.items()} for row in frame[frame["seed"] == seed].to_dict("records")
        ]

    def own(table: str, row: dict[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in columns(table) if name not in (*SIZE, "seed")}

    ratio = "gradient_over_weight_"
    return {
        seed: Trained(
            seed=seed,
            outcome=Outcome(row["outcome"]),
            steps=int(row["steps"]),
            best_step=int(row["best_step"]),
            validation_loss=row["validation_loss"],
            gradient_over_weight={name.removeprefix(ratio): row[name] for name in row if name.startswith(ratio)},
            history=[(int(at["step"]), at["train_loss"], at["validation_loss"]) for at in rows(HISTORY, seed)],
            observed={name: found for name in observed if (found := [own(name, at) for at in rows(name, seed)])},
            weights=named,
        )
        for seed, named in weights.items()
        for row in rows(REPLICAS, seed)
    }


def stored_trainings(sources: Mapping[str, tuple[str, str]], names: Sequence[str]) -> list[dict[int, Trained]]:
    """The trainings of these trials, in order, from the places of ``with_stored_training``; empty without any.

    Raises:
        StoreError: see ``stored_training``.
    """
    if any(name not in sources for name in names):
        return []
    return [stored_training(Store(folder), identity) for folder, identity in map(sources.__getitem__, names)]


def stored_weights(store: Store, record: Mapping[str, Any]) -> dict[int, dict[str, Tensor]]:
    """The weights of the result with this record: seed -> name -> tensor.

    Those of a trial that was measured without training lie with the trial that was trained.

    Raises:
        StoreError: it keeps none, or their file is missing or damaged.
    """
    identity = record["identity"]
    if trained_by := record["provenance"].get(TRAINED_BY):
        store = Store(store.location.parent / trained_by["folder"])
        record = store.record(trained_by["identity"])
    if not store.has_weights(record):
        how = "were deleted" if WEIGHTS in record["files"] else "were not kept (keep: none)"
        raise StoreError(
            f"the weights of the trial {identity} {how}. To have them, train it again: memsweep sweep STUDY "
            "--no-reuse keep=weights."
        )
    return from_safetensors(store.bytes_of(WEIGHTS, record), f"the file of weights of {identity}")


def find_elsewhere(results: Location | Path, identities: Iterable[str]) -> dict[str, Location]:
    """Which study folders below ``results`` hold these results whole: identity -> folder (the first by name)."""
    missing = set(identities)
    folder_of: dict[str, Location] = {}
    root = Location.at(results)
    with storage_errors("read", root):
        folders = [root / name for name in (root.folders() if missing else ())]
    for folder in folders:
        store = Store(folder)
        here = missing & store.identities()
        intact = here - store.faults(here).keys()  # a record of a newer version is a fault, too
        folder_of |= dict.fromkeys(intact, folder)
        missing -= intact
    return folder_of
