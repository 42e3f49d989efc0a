"""Stored results, and stored trainings of trials that are measured anew: neither is computed again."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import trial_from_dict
from memsweep.errors import ConfigError, StoreError
from memsweep.outcome import Outcome
from memsweep.sweep.planning.identity import identifying, identity_of, training_of
from memsweep.sweep.store.filesystem import Location, at_once, storage_errors
from memsweep.sweep.store.layout import SET_ASIDE, SUFFIX, WEIGHTS
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

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from memsweep.config.schema.trial import TrialConfig
    from memsweep.learning.state.trained import Trained
    from memsweep.sweep.planning.plan import PlannedTrial
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.record import Record


@dataclass(frozen=True)
class Reuse:
    """Which results need no work.

    Attributes:
        here: identities stored in this study, whole.
        elsewhere: identities that another study of the results folder holds -> its folder.
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
        results: the folder of all studies, which are searched as well; None: the study's own results alone.
    """
    required = {trial.identity for trial in trials}
    stored = required & store.identities()
    damaged = store.check(stored)
    here = frozenset(stored - damaged.keys())
    elsewhere = find_elsewhere(results, required - here) if results is not None else {}
    return Reuse(here, elsewhere, damaged)


class Why(enum.StrEnum):
    """Why a trial is not reused, in the words of the plan."""

    NEVER = "never computed"
    CODE = "computed by other code"
    DATA = "computed from other data files"
    VERSIONS = "computed with other versions"
    DEVICE = "computed on another type of device"
    SHARDS = "computed by another number of workers, each on its part of the data"
    KERNELS = "computed by other kernels"
    IDENTITY = "computed under another kind of identity"
    DAMAGED = "damaged"
    FAILED = "failed before"
    ASIDE = "set aside"


@dataclass(frozen=True)
class Reason:
    """Why one trial is not reused.

    Attributes:
        why: the kind of reason, the first that applies.
        text: the exact difference or error; may be empty.
    """

    why: Why
    text: str = ""


def reasons(
    trials: Sequence[PlannedTrial],
    reused: Iterable[str],
    store: Store,
    results: Location,
    damaged: Mapping[str, str],
    statuses: Mapping[str, TrialStatus],
) -> dict[str, Reason]:
    """Says why trials have no result to reuse. Reads every record of the results folder once, if any is missing.

    Args:
        trials: the trials of the study.
        reused: identities that need no work.
        store: the study's results.
        results: the folder of all studies.
        damaged: identities stored in this study, but not as they were written -> what is wrong.
        statuses: the journal's state of each trial.

    Returns:
        Identity -> reason, for each trial that is not reused, in the order of the trials.

    Raises:
        StoreError: the storage cannot be read.
    """
    have = set(reused)
    missing = [trial for trial in trials if trial.identity not in have]
    if not missing:
        return {}
    with storage_errors("read", store.location):
        aside = {name.partition(".")[0] for name in (store.location / SET_ASIDE).folders()}
    failures = store.failures()
    why: dict[str, Reason] = {}
    for name in (trial.identity for trial in missing):
        if name in damaged:
            why[name] = Reason(Why.DAMAGED, damaged[name])
        elif name in failures:
            why[name] = Reason(Why.FAILED, _failed(failures[name], statuses.get(name)))
        elif name in aside:
            why[name] = Reason(Why.ASIDE, f"its last result lies in {store.location}/{SET_ASIDE}")
    unexplained = [trial for trial in missing if trial.identity not in why]
    why |= _compare(unexplained, results) if unexplained else {}
    return {trial.identity: why[trial.identity] for trial in missing}


def by_reason(reason_of: Mapping[str, Reason]) -> str:
    """How many trials have which reason: ``3 never computed, 1 damaged``; empty where every trial is reused."""
    return ", ".join(
        f"{count} {why}" for why, count in Counter(reason.why for reason in reason_of.values()).most_common()
    )


def examples(reason_of: Mapping[str, Reason], each: int = 3) -> list[str]:
    """A few trials of each reason that has details: ``1a2b3c4d5e6f damaged: ...``."""
    lines: dict[Why, list[str]] = {}
    for name, reason in reason_of.items():
        if reason.text:
            lines.setdefault(reason.why, []).append(f"{name[:12]} {reason.why}: {reason.text}")
    return [line for of_reason in lines.values() for line in of_reason[:each]]


def _failed(failure: Mapping[str, Any], status: TrialStatus | None) -> str:
    times = f"{status.failures} times in the same way, " if status is not None and status.failures > 1 else ""
    lines = str(failure.get("error") or "").splitlines() or [""]
    return f"{times}{failure.get('outcome', 'failed')}: {lines[0][:300]}"


def _compare(trials: Sequence[PlannedTrial], results: Location) -> dict[str, Reason]:
    """Compares trials with stored results of the same config, made by other code, versions, devices or kernels."""
    by_config: dict[str, list[PlannedTrial]] = {}
    nearest: dict[str, tuple[int, str, Reason]] = {}
    for folder, record in _records(results):
        if not by_config:
            for trial in trials:
                by_config.setdefault(_key(trial.config), []).append(trial)
        try:
            key = _key(trial_from_dict(record["config"]))
        except ConfigError:  # of an earlier version: it explains nothing
            continue
        for trial in by_config.get(key, ()):
            difference = _difference(record, trial, folder)
            best = nearest.get(trial.identity)
            # fewest differences first, then the youngest
            if best is None or (difference[0], best[1]) < (best[0], difference[1]):
                nearest[trial.identity] = difference
    never = (0, "", Reason(Why.NEVER))
    return {trial.identity: nearest.get(trial.identity, never)[2] for trial in trials}


def _key(config: TrialConfig) -> str:
    return json.dumps(identifying(config), sort_keys=True)


def _records(results: Location) -> Iterator[tuple[str, Record]]:
    """Yields (name of the study's folder, record) of every result that can be read."""
    with storage_errors("read", results):
        folders = results.folders()
    for folder in folders:
        store = Store(results / folder)
        for record in at_once(partial(_record, store), sorted(store.identities())):
            if record is not None:
                yield folder, record


def _record(store: Store, name: str) -> Record | None:
    try:
        record = store.record(name)
        return record if "identity_of" in record["provenance"] else None
    except StoreError:  # damaged, or of another version: it explains nothing
        return None


def _difference(record: Record, trial: PlannedTrial, folder: str) -> tuple[int, str, Reason]:
    """(number of differences, time of the result, reason) for a result of the same config."""
    source = record["provenance"]
    finished = source.get("finished", "")
    if record["identity"] == trial.identity:
        return 0, finished, Reason(Why.DAMAGED, f"its result in {folder} is not what was written")
    before, now = source["identity_of"], identity_of(trial.config, trial.arithmetic)
    differences = [
        (why, f"{name} {before[name] or 'none'}, now {now[name] or 'none'}")
        for name, why in _PARTS.items()
        if before[name] != now[name]
    ]
    for name, version in before["versions"].items():
        if version != (new := now["versions"].get(name, "none")):
            differences.append((Why.VERSIONS, f"{name} {version}, now {new}"))
    why = min((why for why, _ in differences), key=tuple(Why).index, default=Why.IDENTITY)
    texts = ", ".join(text for _, text in differences)
    return len(differences), finished, Reason(why, f"{texts or 'the same code and versions'} (in {folder}, {finished})")


_PARTS = {
    "code": Why.CODE,
    "data": Why.DATA,
    "device": Why.DEVICE,
    "shards": Why.SHARDS,
    "kernels": Why.KERNELS,
}
"""The parts of an identity besides config and versions -> why a result with another value of it is not reused."""


TRAINED_BY = "trained_by"
"""In the provenance of a result whose weights were not trained for it: the folder and the trial that hold them."""


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

    Raises:
        StoreError: a table cannot be read.
    """
    places = (trial.trained for trial in trials if trial.trained[0])
    curves = (Store(folder).tables(identity, (CURVES,))[CURVES] for folder, identity in places)
    return sum(bool(len(table)) and bool(table["threshold"].isna().all()) for table in curves)


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
