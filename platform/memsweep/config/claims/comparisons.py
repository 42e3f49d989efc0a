"""Comparisons of cells: what a claim in words speaks of, once its names are looked up in the study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memsweep.config.claims.sentences import Sentence
from memsweep.config.core.problems import sentence
from memsweep.config.schema.search import METRICS, TEST
from memsweep.errors import did_you_mean


@dataclass(frozen=True)
class Comparison:
    """A claim about two sides of a study.

    Attributes:
        text: as it was written.
        metric: what is compared (memsweep.stability.comparison.metrics).
        left, right: dotted path of a trial's field -> value, which single out each side's trials.
        op: ``>`` or ``<``: how the left side's metric is claimed to be to the right's.
        at: what holds on both sides.
        same: what the other axes of the study set: a pair of trials agrees on each of these paths.
    """

    text: str
    metric: str
    left: Mapping[str, Any]
    op: str
    right: Mapping[str, Any]
    at: Mapping[str, Any]
    same: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ``from_dict`` is the inverse."""
        sides = {"left": dict(self.left), "right": dict(self.right), "at": dict(self.at)}
        return {"text": self.text, "metric": self.metric, "op": self.op, **sides, "same": list(self.same)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Comparison:
        """The comparison that ``to_dict`` wrote."""
        return Comparison(**{**data, "same": tuple(data["same"])})

    def covers(self, side: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """Whether a trial (canonical plain data) belongs to a side of this comparison, ``left`` or ``right``."""
        return all(fits(at_path(config, path), value) for path, value in (*side.items(), *self.at.items()))


def metric_problems(sentence_: Sentence, path: str, reported: frozenset[str]) -> Iterator[str]:
    """What is wrong with a sentence's metric.

    Args:
        sentence_: the claim.
        path: where it stands in the study file.
        reported: the metrics that all tasks of the study report.
    """
    name = sentence_.metric
    if name.startswith(TEST):
        if name.removeprefix(TEST) not in reported:
            there = f"its tasks report {', '.join(sorted(reported))}" if reported else "its tasks report no metrics"
            yield sentence(path, f"the study has no metric {name}: {there}")
    elif name not in METRICS:
        known = (*METRICS, *(f"{TEST}{metric}" for metric in sorted(reported)))
        yield sentence(path, f"there is no metric {name!r}.{did_you_mean(name, known)} Metrics: {', '.join(known)}")


def at_path(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of plain data; ``MISSING`` where there is none. A part is a mapping or its name."""
    node: Any = config
    for key in path.split("."):
        if isinstance(node, str) and key == "name":
            return node
        if not isinstance(node, Mapping) or key not in node:
            return MISSING
        node = node[key]
    return node


MISSING = object()
"""What a path without a value has: it fits no value, ``null`` neither."""


def fits(found: Any, wanted: Any) -> bool:
    """Whether a value of a trial is the one that is meant; a part is meant by its name, or by name and some fields."""
    if isinstance(wanted, Mapping):
        return all(
            fits(at_path(found, key) if isinstance(found, Mapping) else found if key == "name" else MISSING, value)
            for key, value in wanted.items()
        )
    if isinstance(found, Mapping):
        return "name" in found and fits(found["name"], wanted)
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        return list(found) == list(wanted)
    return bool(found == wanted)
