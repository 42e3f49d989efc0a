"""The reason why a planned trial is computed, and no stored result is taken; shown before anything runs."""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import trial_from_dict
from memsweep.errors import ConfigError, StoreError
from memsweep.sweep.planning.identity import identifying, identity_of
from memsweep.sweep.store.filesystem import Location, at_once, storage_errors
from memsweep.sweep.store.layout import SET_ASIDE
from memsweep.sweep.store.results import Store

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.planning.plan import PlannedTrial
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.record import Record


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
