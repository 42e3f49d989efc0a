"""Short names for conditions: what a study varies is said, what it keeps fixed is said once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_FAMILY, _MEMBER = ("model", "activation"), ("parameterization", "normalize")
_MACHINE = (*_FAMILY, *_MEMBER)
_DECAY = ("rate", "exponent")
BETWEEN = " · "

Condition = Mapping[str, Any]
# What people call such a model by, and then how it learns.
_FIRST = ("model.stair", "model.map", "model.initialization", "model.unit.name", "model.layers", "training.rule")

_PLAIN = {("model.stair", "none")}  # goes without saying: a model without gains


class Labels:
    """Names the memory (task side) and the machine (model side) of a condition, relative to one study.

    A machine is a family (the model and its activation) and a member of it (the parameterization and the rest).

    Args:
        conditions: of the whole study: column -> value, None where the part has no such field.
    """

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._conditions = list({tuple(condition.values()): condition for condition in conditions}.values())
        names = list(self._conditions[0]) if self._conditions else []
        extra = [name for name in names if name not in ("task", "kernel", *_DECAY, *_MACHINE)]
        self._task_extra = [name for name in extra if name.startswith("task.") and name != "task.name"]
        fixed = [name for name in names if name not in extra or name in self._task_extra]
        others = [name for name in extra if not name.startswith("task.")]
        # A field that only follows from the model, say, tells nothing apart: it is reported once, not in every label.
        self._machine_extra = self._needed(others, fixed)
        self.following = tuple(name for name in others if name not in self._machine_extra)
        self._varied = [name for name in _MACHINE if self._varies(name) and not self._is_one_option(name)]
        self._memories: dict[tuple[Any, ...], str] = {}

    def _needed(self, fields: Sequence[str], fixed: Sequence[str]) -> list[str]:
        """The fields that tell conditions apart which agree in all the others: no more of them than it takes.

        What names a model comes before how it was trained.
        """
        chosen: list[str] = []
        for name in sorted(fields, key=_readability):
            if self._varies_within(name, [*fixed, *chosen]):
                chosen.append(name)
        for name in reversed(list(chosen)):
            rest = [other for other in chosen if other != name]
            if not self._varies_within(name, [*fixed, *rest]):
                chosen = rest
        return sorted((name for name in fields if name in chosen), key=_order)

    def memory(self, condition: Condition) -> str:
        """The kernel (the task where there is none), with the fields that differ between its conditions."""
        key = tuple(condition.get(name) for name in ("task", "kernel", *_DECAY, *self._task_extra))
        if key not in self._memories:
            self._memories[key] = self._memory(condition)
        return self._memories[key]

    def _memory(self, condition: Condition) -> str:
        name = str(condition["kernel"] or condition["task"])
        if self._varies("task", [c for c in self._conditions if c["kernel"] == condition["kernel"]]):
            name = ", ".join(dict.fromkeys([str(condition["task"]), name]))
        same = [c for c in self._conditions if (c["task"], c["kernel"]) == (condition["task"], condition["kernel"])]
        fields = [f for f in (*_DECAY, *self._task_extra) if condition[f] is not None and self._varies(f, same)]
        shown = ", ".join(f"{field.removeprefix('task.')} {show(condition[field])}" for field in fields)
        return f"{name} ({shown})" if shown else name

    def machine(self, condition: Condition) -> str:
        """The parameterization, and whatever else of the model and its training the study varies."""
        parts = [self.family(condition), self._member(condition)]
        return BETWEEN.join(part for part in parts if part) or str(condition["model"])

    def family(self, condition: Condition) -> str:
        """The model and its activation, as far as the study varies them; may be empty."""
        parts = [_part(name, condition[name]) for name in _FAMILY if name in self._varied]
        return BETWEEN.join(part for part in parts if part)

    def member(self, condition: Condition) -> str:
        """What tells a machine from the others of its family; never empty."""
        return self._member(condition) or self.family(condition) or str(condition["model"])

    def families(self, conditions: Iterable[Condition]) -> list[tuple[str, list[tuple[str, str]]]]:
        """The machines of these conditions by family, in order of appearance.

        Returns:
            For each family its heading, empty where it is one machine of the same name, and its machines: each as
            ``machine`` and as ``member`` names it.
        """
        found: dict[str, dict[str, str]] = {}
        for condition in conditions:
            found.setdefault(self.family(condition), {})[self.machine(condition)] = self.member(condition)
        return [("" if [*members] == [name] else name, [*members.items()]) for name, members in found.items()]

    def _member(self, condition: Condition) -> str:
        names = [name for name in _MEMBER if name in self._varied] if self._varied else ["parameterization"]
        parts = [_part(name, condition[name]) for name in names]
        parts += [
            f"{field_name(name)} {show(condition[name])}"
            for name in self._machine_extra
            if condition[name] is not None and (name, condition[name]) not in _PLAIN
        ]
        return BETWEEN.join(part for part in parts if part)

    def without(self, *columns: str) -> Labels:
        """Labels that do not speak of these columns: conditions that differ in them alone share a name."""
        return Labels([masked(condition, columns) for condition in self._conditions])

    def fixed(self) -> dict[str, str]:
        """The condition columns that have one value throughout, null ones left out."""
        if not self._conditions:
            return {}
        first = self._conditions[0]
        names = [name for name in ("task", *_MACHINE) if not self._varies(name)]
        return {name: show(first[name]) for name in names if first[name] is not None}

    def decays(self) -> dict[str, str]:
        """Memory label -> its decay fields, for kernels that have any."""
        found = {}
        for condition in self._conditions:
            fields = [f"{name} {show(condition[name])}" for name in _DECAY if condition[name] is not None]
            found[self.memory(condition)] = ", ".join(fields)
        return {label: fields for label, fields in found.items() if fields}

    def _is_one_option(self, name: str) -> bool:
        """Whether ``normalize`` differs only because some models lack it."""
        return name == "normalize" and len({c[name] for c in self._conditions if c[name] is not None}) < 2

    def _varies(self, name: str, conditions: Sequence[Condition] | None = None) -> bool:
        found = self._conditions if conditions is None else conditions
        return len({condition[name] for condition in found}) > 1

    def _varies_within(self, name: str, columns: Sequence[str]) -> bool:
        """Whether a field differs between conditions that agree in all of these columns."""
        values: dict[tuple[Any, ...], set[Any]] = {}
        for condition in self._conditions:
            values.setdefault(tuple(condition[column] for column in columns), set()).add(condition[name])
        return any(len(found) > 1 for found in values.values())


def masked(condition: Condition, columns: Sequence[str]) -> dict[str, Any]:
    """A condition that says nothing in these columns."""
    return {name: None if name in columns else value for name, value in condition.items()}


def field_name(path: str) -> str:
    """The last part of a dotted path; of a part's name, which part it is: ``unit`` of ``model.unit.name``."""
    return path.removesuffix(".name").rpartition(".")[2]


def _readability(name: str) -> tuple[int, bool]:
    """Smaller for fields that say more to a reader."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), not name.startswith("model.")


def _order(name: str) -> int:
    """The model, then the rule that it learns by, then the rest: each in the order of the columns."""
    return 0 if name.startswith("model.") else 1 if name == "training.rule" else 2


def _part(name: str, value: Any) -> str:
    if name == "normalize":
        return "" if value is None else ("normalized" if value else "plain")
    return "" if value is None else str(value)


def show(value: Any) -> str:
    """A value as a reader writes it: yes and no, and numbers without noise digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)
