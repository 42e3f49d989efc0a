"""The trained weights of a study's trials, by the module's own names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import MemsweepError, did_you_mean, one_of
from memsweep.report.read.fields import fields_of
from memsweep.sweep.planning.reuse import stored_weights
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store

if TYPE_CHECKING:
    from torch import Tensor

    from memsweep.sweep.store.record import Record

_MOST_NAMED = 8


@dataclass(frozen=True)
class ReplicaWeights:
    """The trained weights of one model of a trial.

    Attributes:
        identity: of the trial.
        seed: of the model.
        config: the trial's canonical config.
        tensors: name -> tensor, as ``load_state_dict`` of the model takes them: raw weights, before a parameterization
            makes rates of them, at the step of the best validation.
    """

    identity: str
    seed: int
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def to_bytes(self) -> bytes:
        """A safetensors file with these tensors; its metadata ``memsweep`` is JSON: trial, seed and config."""
        from memsweep.learning.state.weights_file import to_bytes

        origin = {"trial": self.identity, "seed": self.seed, "config": self.config}
        return to_bytes(self.tensors, {"memsweep": json.dumps(origin, sort_keys=True)})


def weights(
    where: Location | Path,
    words: Sequence[str] = (),
    seed: int | None = None,
    among: Collection[str] | None = None,
) -> ReplicaWeights:
    """Read the trained weights of one model of a study.

    Args:
        where: the study's folder.
        words: which trial: its identity or the beginning of it, or values of its fields (``model.width=8``); none where
            the study has one trial.
        seed: of the model; None where the trial has one.
        among: identities of the trials to look at; None for all that are stored.

    Raises:
        MemsweepError: no trial or several are meant, or the trial has no such seed; the message lists what there is.
        StoreError: the weights were not kept, were deleted, or are damaged.
    """
    store = Store(Location.at(where))
    found = list(matching(store, words, among))
    if len(found) != 1:
        what = f"{' '.join(words)!r} means" if words else "no trial is named, and there are"
        raise MemsweepError(
            f"{what} {len(found) or 'none'} of the {len(among or store.identities())} trials of {store.location.name}"
            f"{': ' if found else ''}{_some([record['identity'][:12] for record in found])}."
            f"{'' if found else near_field(store, words, among)} {_apart(found)}Name one "
            "by the beginning of its identity or by its fields (model.width=8); memsweep weights STUDY lists them."
        )
    record = found[0]
    by_seed = stored_weights(store, record)
    if seed is None and len(by_seed) == 1:
        (seed,) = by_seed
    if seed is None or isinstance(seed, bool) or seed not in by_seed:
        asked = "say which seed" if seed is None else f"there is no seed {seed!r}"
        raise MemsweepError(
            f"{asked}: the trial {record['identity'][:12]} has {one_of(map(str, sorted(by_seed)))}. "
            "Give --seed (in Python seed=)."
        )
    return ReplicaWeights(record["identity"], seed, record["config"], by_seed[seed])


def matching(store: Store, words: Sequence[str], among: Collection[str] | None = None) -> Iterator[Record]:
    """The stored records that all of these words fit: beginnings of an identity, or ``field=value``.

    Args:
        store: the study's results.
        words: all must fit.
        among: identities of the trials to look at; None for all.
    """
    wanted = [word.partition("=")[::2] for word in words if "=" in word]
    starts = [word for word in words if "=" not in word]
    for identity in sorted(store.identities() if among is None else among):
        if all(identity.startswith(start) for start in starts):
            record = store.record(identity)
            fields = fields_of(record["config"])
            if all(path in fields and str(fields[path]) == value for path, value in wanted):
                yield record


def near_field(store: Store, words: Sequence[str], among: Collection[str] | None = None) -> str:
    """A sentence that suggests the nearest field of the trials for the first word that names none; or empty.

    Args:
        store, words, among: as of ``matching``.
    """
    records = map(store.record, sorted(store.identities() if among is None else among))
    known = {path for record in records for path in fields_of(record["config"])}
    paths = [path for path, equals, _ in (word.partition("=") for word in words) if equals and path not in known]
    return did_you_mean(paths[0], known) if paths else ""


def _apart(found: Sequence[Record]) -> str:
    """``They differ in model.width: 2, 3. ``; empty where there is nothing to tell apart."""
    fields = [fields_of(record["config"]) for record in found]
    paths = dict.fromkeys(path for each in fields for path in each)
    values = {path: list(dict.fromkeys(str(each[path]) for each in fields if path in each)) for path in paths}
    differing = [f"{path}: {_some(texts)}" for path, texts in values.items() if len(texts) > 1]
    return f"They differ in {'; '.join(differing)}. " if differing else ""


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
