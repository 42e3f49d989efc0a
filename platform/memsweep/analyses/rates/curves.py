"""Studies of the learning rate: the rows of every curve of loss against learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memsweep.report.analysis.losses import LossRow
from memsweep.report.naming.conditions import BETWEEN, PARAMETERIZATION, RATE, Labels, masked
from memsweep.report.naming.numbers import show

RULE = "training.rule"
_LINES = (PARAMETERIZATION, RULE)


@dataclass(frozen=True)
class RateStudy:
    """Everything that shares one pair of pictures: trials that differ in parameterization, rule and rate alone.

    Attributes:
        memory: what is learnt, in words.
        machine: what learns it, in words, without what names its lines.
        lines: parameterization and learning rule, as far as the study has them (the machine where it has neither) ->
            its rows, by increasing rate.
    """

    memory: str
    machine: str
    lines: dict[str, tuple[LossRow, ...]]

    @property
    def rates(self) -> list[float]:
        """Every learning rate that was tried, increasing."""
        return sorted({rate_of(row) for rows in self.lines.values() for row in rows})


def rate_of(row: LossRow) -> float:
    """The learning rate of a row of a study that varies it."""
    return float(row.condition[RATE])


def rate_studies(rows: Sequence[LossRow], labels: Labels) -> list[RateStudy]:
    """The curves of a study that varies the learning rate on purpose; none for any other study.

    A rate that merely follows from another field (one rate per model) makes no curve.
    """
    if not rows or RATE not in rows[0].condition:
        return []
    names = _line_names(rows)
    inner = [name for name in rows[0].condition if name.startswith(f"{PARAMETERIZATION}.")]
    names += [name for name in labels.machine_fields if name in inner]  # two of one name: told apart by their fields
    hidden = (RATE, *names, *inner)
    shared = labels.without(*hidden)
    sizes = {(row.width, row.horizon) for row in rows}
    grouped: dict[tuple[object, ...], dict[str, list[LossRow]]] = {}
    for row in rows:
        rest = masked(row.condition, hidden)
        key = (*rest.values(), row.width, row.horizon)
        parts = [str(row.condition[name]) for name in names if row.condition.get(name) is not None]
        line = BETWEEN.join(parts) or shared.machine(rest)
        grouped.setdefault(key, {}).setdefault(line, []).append(row)
    studies = []
    for lines in grouped.values():
        first = next(iter(lines.values()))[0]
        rest = masked(first.condition, hidden)
        title = ", ".join([shared.machine(rest), *(_size(first) if len(sizes) > 1 else [])])
        ordered = {name: tuple(sorted(members, key=rate_of)) for name, members in lines.items()}
        study = RateStudy(shared.memory(rest), title, ordered)
        if len(study.rates) > 1:
            studies.append(study)
    return studies


def _line_names(rows: Sequence[LossRow]) -> list[str]:
    """The columns that tell lines apart: the parameterization unless only the rule varies."""
    varied = [name for name in _LINES if len({row.condition.get(name) for row in rows}) > 1]
    return varied or [_LINES[0]]


def _size(row: LossRow) -> list[str]:
    return [f"{name} {show(value)}" for name, value in (("width", row.width), ("horizon", row.horizon)) if value]
