"""Why a row has no result to reuse: never computed, by other code or versions, damaged, failed, or set aside."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memsweep.config.core.reflect import default, key_of
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.errors import StoreError
from memsweep.sweep.planning.identity import identity_of
from memsweep.sweep.store.filesystem import Location, at_once, storage_errors
from memsweep.sweep.store.results import Store

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan import PlannedTrial
    from memsweep.sweep.store.journal import Row

SET_ASIDE = ".set-aside"


class Why(enum.StrEnum):
    """Why a row is not reused, in the words of the plan."""

    NEVER = "never computed"
    CODE = "computed by other code"
    DATA = "computed from other data files"
    VERSIONS = "computed with other versions"
    DEVICE = "computed on another type of device"
    SHARDS = "computed by another number of workers, each on its part of the data"
    KERNELS = "computed by other kernels"
    IDENTITY = "computed under an older kind of identity"
    DAMAGED = "damaged"
    FAILED = "failed before"
    ASIDE = "set aside"


@dataclass(frozen=True)
class Reason:
    """Why one row is not reused.

    Attributes:
        why: the kind of reason, the first that applies.
        text: what exactly is different, or went wrong; may be empty.
    """

    why: Why
    text: str = ""


def reasons(
    trials: Sequence[PlannedTrial],
    reused: Iterable[str],
    store: Store,
    results: Location,
    damaged: Mapping[str, str],
    rows: Mapping[str, Row],
) -> dict[str, Reason]:
    """Why rows have no result to reuse. Reads every record of the results folder where rows are missing, once.

    Args:
        trials: the rows.
        reused: identities that need no work.
        store: the study's results.
        results: the folder of all studies.
        damaged: identities stored in this study, but not as they were written -> what is wrong.
        rows: what the journal knows of each.

    Returns:
        Identity -> reason, for each row that is not reused, in the order of the rows.

    Raises:
        StoreError: the storage cannot be read.
    """
    have = set(reused)
    missing = [trial for trial in trials if trial.identity not in have]
    if not missing:
        return {}
    failures, aside = store.failures(), _aside(store)
    found: dict[str, Reason] = {}
    for trial in missing:
        name = trial.identity
        if name in damaged:
            found[name] = Reason(Why.DAMAGED, damaged[name])
        elif name in failures:
            found[name] = Reason(Why.FAILED, _failed(failures[name], rows.get(name)))
        elif name in aside:
            found[name] = Reason(Why.ASIDE, f"its last result lies in {store.location}/{SET_ASIDE}")
    left = [trial for trial in missing if trial.identity not in found]
    found |= _compared(left, results) if left else {}
    return {trial.identity: found[trial.identity] for trial in missing}


def by_reason(found: Mapping[str, Reason]) -> str:
    """How many rows have which reason: ``3 never computed, 1 damaged``; empty where every row is reused."""
    return ", ".join(f"{count} {why}" for why, count in Counter(reason.why for reason in found.values()).most_common())


def examples(found: Mapping[str, Reason], each: int = 3) -> list[str]:
    """A few rows of each reason that has more to say: ``1a2b3c4d5e6f damaged: ...``."""
    lines: dict[Why, list[str]] = {}
    for name, reason in found.items():
        if reason.text:
            lines.setdefault(reason.why, []).append(f"{name[:12]} {reason.why}: {reason.text}")
    return [line for told in lines.values() for line in told[:each]]


def _failed(failure: Mapping[str, Any], row: Row | None) -> str:
    times = f"{row.failures} times in the same way, " if row is not None and row.failures > 1 else ""
    lines = str(failure.get("error") or "").splitlines() or [""]
    return f"{times}{failure.get('outcome', 'failed')}: {lines[0][:300]}"


def _aside(store: Store) -> set[str]:
    with storage_errors("read", store.location):
        return {name.partition(".")[0] for name in (store.location / SET_ASIDE).folders()}


def _compared(trials: Sequence[PlannedTrial], results: Location) -> dict[str, Reason]:
    """Rows against the stored results of the same config, whose code, versions, device or kernels are others."""
    kinds: dict[tuple[str, str], _Kind] = {}
    wanted: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        kind = kinds.setdefault((trial.config.task.name, trial.config.model.name), _Kind())
        kind.add(trial.config)
    for trial in trials:
        wanted.setdefault(_key(to_dict(trial.config), kinds), []).append(trial)
    nearest: dict[str, tuple[int, str, Reason]] = {}
    for folder, record in _records(results):
        for trial in wanted.get(_key(record["config"], kinds), ()):
            told = _told(record, trial, folder)
            latest = nearest.get(trial.identity)
            if latest is None or (told[0], latest[1]) < (latest[0], told[1]):  # fewest differences, then the youngest
                nearest[trial.identity] = told
    return {
        trial.identity: nearest[trial.identity][2] if trial.identity in nearest else Reason(Why.NEVER)
        for trial in trials
    }


class _Kind:
    """What the rows of one task and one model say of their fields: which are cosmetic, and the defaults of others."""

    def __init__(self) -> None:
        self.cosmetic: set[str] = set()
        self.defaults: dict[str, Any] = {}

    def add(self, config: Any, path: str = "") -> None:
        for field in dataclasses.fields(config):
            here, value = f"{path}{key_of(field)}", getattr(config, field.name)
            if field.metadata.get("cosmetic"):
                self.cosmetic.add(here)
            elif dataclasses.is_dataclass(value):
                self.add(value, f"{here}.")
            else:
                self.defaults.setdefault(here, _number(default(field)))


def _key(config: Any, kinds: Mapping[tuple[str, str], _Kind]) -> str:
    """What two records of one trial share, also when one was written before a field was added; empty for other kinds.

    Plain data are compared, since a record of an older version may be no valid trial here.
    """
    try:
        kind = kinds[config["task"]["name"], config["model"]["name"]]
        flat = {path: _number(value) for path, value in flatten(config).items()}
    except (KeyError, TypeError, AttributeError):
        return ""
    own = {
        path: value
        for path, value in flat.items()
        if path not in kind.cosmetic and (path not in kind.defaults or value != kind.defaults[path])
    }
    return json.dumps(own, sort_keys=True, default=str)


def _number(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _records(results: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of the study's folder, record) of every result that can be read."""
    with storage_errors("read", results):
        folders = results.folders()
    for folder in folders:
        store = Store(results / folder)
        for record in at_once(partial(_record, store), sorted(store.identities())):
            if record is not None:
                yield folder, record


def _record(store: Store, name: str) -> dict[str, Any] | None:
    try:
        return store.record(name)
    except StoreError:  # damaged, or of another version: it explains nothing
        return None


def _told(record: Mapping[str, Any], trial: PlannedTrial, folder: str) -> tuple[int, str, Reason]:
    """(number of differences, when it was computed, reason) of a result of the same config."""
    source = record["provenance"]
    finished = str(source.get("finished") or "")
    if record["identity"] == trial.identity:
        return 0, finished, Reason(Why.DAMAGED, f"its result in {folder} is not what was written")
    differences = _differences(_made_from(source), trial)
    why = differences[0][0] if differences else Why.IDENTITY
    texts = ", ".join(text for _, text in differences)
    return len(differences), finished, Reason(why, f"{texts or 'the same code and versions'} (in {folder}, {finished})")


def _made_from(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a result's identity was made from; a record of an older version tells a part of it."""
    if isinstance(source.get("identity_of"), Mapping):
        return source["identity_of"]
    versions = source.get("versions") or {}
    return {
        "code": source.get("code_fingerprint"),
        "versions": {name: versions[name] for name in ("torch", "numpy") if name in versions},
        "device": str(source.get("device") or "").partition(" ")[0] or None,
    }


def _differences(before: Mapping[str, Any], trial: PlannedTrial) -> list[tuple[Why, str]]:
    """What is different now, most telling first. What a record does not tell is no difference."""
    now = identity_of(trial.config, trial.arithmetic)
    found: list[tuple[Why, str]] = []
    for name, why in _PARTS.items():
        if before.get(name) is not None and before[name] != now[name]:
            found.append((why, f"{name} {before[name] or 'none'}, now {now[name] or 'none'}"))
    versions = before.get("versions") or {}
    others = [name for name in versions if versions[name] != now["versions"].get(name)]
    texts = [f"{name} {versions[name]}, now {now['versions'].get(name, 'none')}" for name in others]
    return sorted([*found, *((Why.VERSIONS, text) for text in texts)], key=lambda pair: _ORDER.index(pair[0]))


_ORDER = tuple(Why)
_PARTS = {
    "code": Why.CODE,
    "data": Why.DATA,
    "device": Why.DEVICE,
    "shards": Why.SHARDS,
    "kernels": Why.KERNELS,
}
"""What an identity is made from beside config and versions, and why a result with another of it is none."""
