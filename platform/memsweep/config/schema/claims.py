"""The claims of a study: rows of a published table, and comparisons of its cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memsweep.config.schema.canonical import MISSING
from memsweep.config.schema.search import same

GREATER, LESS = "greater", "less"
DIRECTIONS = {GREATER: ">", LESS: "<"}
"""The relation of a comparison's left side to its right, and the sign for it."""


@dataclass(frozen=True)
class Claim:
    """One row of a published table.

    Attributes:
        name: the row's label, as published.
        where: condition column -> the values it may have; a row without conditions speaks of all.
        verdicts: kernel -> ``stable`` or ``unstable``.
    """

    name: str
    where: Mapping[str, tuple[Any, ...]]
    verdicts: Mapping[str, str]

    def covers(self, condition: Mapping[str, Any]) -> bool:
        """Whether the row speaks of a condition (column -> value, None where it has no such field).

        The label of a part with fields, ``best(a=1.0, b=0.5)``, equals itself and its bare name ``best``.
        """
        return all(any(_equal(condition.get(column), value) for value in self.where[column]) for column in self.where)


@dataclass(frozen=True)
class Comparison:
    """A claim that one metric is greater, or less, in the cells of its left side than in those of its right side.

    Attributes:
        text: the claim in words, ``radius(exp) > radius(direct) at width 8``; unique among a study's claims.
        metric: what is compared (memsweep.stability.comparison.metrics).
        direction: ``greater`` or ``less``.
        left, right: dotted path of a trial's field -> value, which select each side's cells.
        at: dotted path -> value, on both sides.
        same: paths that the other axes of the study set. The two cells of a pair have equal values there.
    """

    text: str
    metric: str
    direction: str
    left: Mapping[str, Any]
    right: Mapping[str, Any]
    at: Mapping[str, Any]
    same: tuple[str, ...] = ()

    def covers(self, side: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """Whether a trial (canonical plain data) belongs to a side of this comparison, ``left`` or ``right``."""
        return all(same(at_path(config, path), value) for path, value in (*side.items(), *self.at.items()))


@dataclass(frozen=True)
class Claims:
    """A published table, comparisons of cells, or both.

    Attributes:
        source: where the table was published, in words; empty without a table.
        rows: of the table, in the order of publication.
        compare: the comparisons, in the order of the study file.
    """

    source: str = ""
    rows: tuple[Claim, ...] = ()
    compare: tuple[Comparison, ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that any row speaks of, in order of appearance."""
        return tuple(dict.fromkeys(kernel for row in self.rows for kernel in row.verdicts))


def claims_from_dict(data: Any) -> Claims | None:
    """The claims whose ``asdict`` this is, after JSON. Names that are not registered here are accepted."""
    if not data:
        return None
    rows = [
        Claim(row["name"], {column: tuple(values) for column, values in row["where"].items()}, row["verdicts"])
        for row in data["rows"]
    ]
    compare = [Comparison(**{**comparison, "same": tuple(comparison["same"])}) for comparison in data["compare"]]
    return Claims(data["source"], tuple(rows), tuple(compare))


def at_path(data: Any, path: str) -> Any:
    """The value at a dotted path of plain data; ``MISSING`` where there is none. A part is a mapping or its name."""
    for key in path.split(".") if path else ():
        if isinstance(data, str) and key == "name":
            continue
        if not isinstance(data, Mapping) or key not in data:
            return MISSING
        data = data[key]
    return data


def _equal(value: Any, claimed: Any) -> bool:
    if isinstance(value, str) and isinstance(claimed, str):
        return claimed in (value, value.partition("(")[0])
    return same(value, claimed)
