"""The trials that the page can be asked about: settings, seeds, curves and provenance, as much as has room."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.charts.trial import trial_charts
from memsweep.report.naming.numbers import show
from memsweep.report.page.compact import plain
from memsweep.report.read.settings import fields_of

_BYTES = 640_000
"""Of all trials; those beyond are files beside the page alone."""
_FROM = ("code_revision", "code_fingerprint", "host", "device")


class Trials:
    """Collects the trials that figures and tables point to, in the order in which they are asked for."""

    def __init__(self, contents: Contents) -> None:
        self._study, self._records = contents.study, contents.study.records
        self._fields = {identity: fields_of(record["config"]) for identity, record in self._records.items()}
        paths = dict.fromkeys(path for fields in self._fields.values() for path in fields)
        values = {path: {str(fields.get(path)) for fields in self._fields.values()} for path in paths}
        self._common = {path for path, different in values.items() if len(different) == 1}
        self._places: dict[str, int] = {}

    def place(self, identity: str) -> int | None:
        """The number of a trial on the page; None for a trial without a result."""
        if identity not in self._records:
            return None
        return self._places.setdefault(identity, len(self._places))

    def content(self) -> dict[str, Any]:
        """``trials`` by their numbers (null where there was no room), and what they share."""
        for identity in self._records:  # the remaining ones: tables name them
            self.place(identity)
        room, sources, trials = _BYTES, dict[str, int](), list[Any]()
        for identity in self._places:
            one = plain(self._trial(identity, sources)) if room > 0 else None
            room -= len(json.dumps(one))
            trials.append(one if room > 0 else None)
        first = next(iter(self._fields.values()), {})
        return {
            "trials": trials,
            "without_room": trials.count(None),
            "common": {path: show(first.get(path)) for path in sorted(self._common)},
            "sources": [json.loads(text) for text in sources],
        }

    def _trial(self, identity: str, sources: dict[str, int]) -> dict[str, Any]:
        record = self._records[identity]
        about = record["provenance"]
        source = {name: str(about[name]) for name in _FROM if about.get(name)}
        source["versions"] = ", ".join(f"{name} {one}" for name, one in (about.get("versions") or {}).items())
        fields = self._fields[identity]
        return {
            "id": identity,
            "fields": {path: show(fields[path]) for path in fields if path not in self._common},
            "seeds": self._seeds(identity),
            "charts": [*trial_charts(self._study, identity)],
            "source": sources.setdefault(json.dumps(source), len(sources)),
            "finished": str(about.get("finished", "")),
        }

    def _seeds(self, identity: str) -> list[list[Any]]:
        return [
            [row["seed"], str(row["outcome"]).replace("_", " "), _loss(row), row["test_metric"], row["best_step"]]
            for row in self._study.of("replicas", [identity]).to_dict("records")
        ]


def _loss(row: Mapping[Any, Any]) -> float:
    loss = float(row["error"])
    return float(row["validation_loss"]) if math.isnan(loss) else loss
