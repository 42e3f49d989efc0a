"""The core seconds of a condition: of the trials that it has, and of those that rounds have replaced."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memsweep.report.read.fields import fields_of
from memsweep.report.read.rounds import REPAIRED_FIELDS
from memsweep.report.read.study import Study
from memsweep.sweep.store.record import Record


def seconds_of(record: Mapping[str, Any]) -> float:
    """Core seconds of one trial: it has an equal part of what its program took."""
    made = record["provenance"]
    return float(made.get("seconds") or 0.0) * int(made.get("threads") or 1) / int(made.get("members") or 1)


def key_of(condition: Mapping[str, Any]) -> str:
    """A text that names a condition in every round, whatever was repaired."""
    kept = {name: value for name, value in condition.items() if not name.startswith(REPAIRED_FIELDS)}
    return json.dumps(kept, sort_keys=True, default=str)


def replaced_in(study: Study, condition: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The records of trials of a condition that later rounds have replaced."""
    return _of_condition(study.replaced, condition)


def _of_condition(records: Mapping[str, Record], condition: Mapping[str, Any]) -> Iterator[Record]:
    key = key_of(condition)
    for record in records.values():
        fields = fields_of(record["config"])
        if key_of({name: fields.get(name) for name in condition}) == key:
            yield record


def core_seconds(study: Study, condition: Mapping[str, Any], identities: Iterable[str]) -> float:
    """Core seconds of a condition, as far as they were measured.

    The sum holds these trials, those that a round replaced, and those of a round that has not ended.
    """
    there = sum(seconds_of(study.records[name]) for name in identities if name in study.records)
    return there + sum(map(seconds_of, _of_condition({**study.replaced, **study.waiting}, condition)))
