"""Short names for conditions: they say the fields that a study varies and leave out the fixed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memsweep.report.naming.conditions import KERNEL, PARAMETERIZATION
from memsweep.report.naming.numbers import show

BETWEEN = " · "

Condition = Mapping[str, Any]
_FAMILY = ("model", "model.activation")
_NAMES = (*_FAMILY, PARAMETERIZATION)
_BARE = (*_NAMES, "model.unit")
"""Fields whose values need no field name beside them."""
# The fields by which people know such a model, then the rule that it learns by.
_FIRST = ("model.stair", "model.map", "model.initialization", "model.unit", "model.layers", "training.rule")
_PLAIN = {("model.stair", "none")}  # goes without saying: a model without gains


class Labels:
    """Names the memory (task side) and the machine (model side) of a condition, relative to one study.

    A machine is a family (the model and its activation) and a member of it (the parameterization and the rest).

    Args:
        conditions: of the whole study: column -> value, None where the part has no such field.

    Attributes:
        machine_fields: the fields besides model, activation and parameterization that names of machines say.
        following: the fields that follow from these names, which therefore do not say them.
    """

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._conditions = list({tuple(condition.values()): condition for condition in conditions}.values())
        names = [*next(iter(self._conditions), {})]
        self._task_fields = [name for name in names if name.startswith("task.") and name != KERNEL]
        fixed = [name for name in names if name.partition(".")[0] == "task" or name in _NAMES]
        others = [name for name in names if name not in fixed]
        # A field that only follows from the model, say, tells nothing apart: it is reported once, not in every label.
        self.machine_fields = self._needed(others, fixed)
        self.following = tuple(name for name in others if name not in self.machine_fields and self._has_several(name))
        self._varied = [name for name in _NAMES if self._varies(name)]
        self._memories: dict[tuple[Any, ...], str] = {}

    def _needed(self, fields: Sequence[str], fixed: Sequence[str]) -> list[str]:
        """The fewest fields that tell apart the conditions which agree in all others; names of a model first."""
        chosen: list[str] = []
        for name in sorted(fields, key=_readability):
            if self._varies_within(name, [*fixed, *chosen]):
                chosen.append(name)
        for name in reversed(list(chosen)):
            rest = [other for other in chosen if other != name]
            of_its_fields = any(other.startswith(f"{name}.") for other in rest)  # which say little without its name
            if not of_its_fields and not self._varies_within(name, [*fixed, *rest]):
                chosen = rest
        return sorted((name for name in fields if name in chosen), key=_order)

    def memory(self, condition: Condition) -> str:
        """The kernel (the task where there is none), with the fields that differ between its conditions."""
        key = tuple(condition.get(name) for name in ("task", KERNEL, *self._task_fields))
        if key not in self._memories:
            self._memories[key] = self._memory(condition)
        return self._memories[key]

    def _memory(self, condition: Condition) -> str:
        kernel, task = condition.get(KERNEL), condition["task"]
        name = str(kernel or task)
        if self._varies("task", [c for c in self._conditions if c.get(KERNEL) == kernel]):
            name = ", ".join(dict.fromkeys([str(task), name]))
        shown = ", ".join(f"{field_name(f)} {show(condition[f])}" for f in self._memory_fields(condition))
        return f"{name} ({shown})" if shown else name

    def _memory_fields(self, condition: Condition) -> list[str]:
        """The fields of its task that tell a condition from others of the same task and kernel."""
        key = (condition["task"], condition.get(KERNEL))
        same = [c for c in self._conditions if (c["task"], c.get(KERNEL)) == key]
        return [name for name in self._task_fields if condition[name] is not None and self._varies(name, same)]

    def machine(self, condition: Condition) -> str:
        """The parameterization, and the other fields of model and training that the study varies."""
        parts = [self.family(condition), self._member(condition)]
        return BETWEEN.join(part for part in parts if part) or str(condition["model"])

    def names(self, condition: Condition) -> tuple[str, str]:
        """``memory`` and ``machine``."""
        return self.memory(condition), self.machine(condition)

    def family(self, condition: Condition) -> str:
        """The model and its activation, as far as the study varies them; may be empty."""
        return _parts(condition, [name for name in _FAMILY if name in self._varied])

    def member(self, condition: Condition) -> str:
        """The name of a machine within its family; never empty."""
        return self._member(condition) or self.family(condition) or str(condition["model"])

    def families(self, conditions: Iterable[Condition]) -> list[tuple[str, list[tuple[str, str]]]]:
        """The machines of these conditions by family, in order of appearance.

        Returns:
            For each family its heading, empty where it is one machine of the same name, and its machines: each as
            ``machine`` and as ``member`` names it.
        """
        members: dict[str, dict[str, str]] = {}
        for condition in conditions:
            members.setdefault(self.family(condition), {})[self.machine(condition)] = self.member(condition)
        return [("" if [*names] == [family] else family, [*names.items()]) for family, names in members.items()]

    def _member(self, condition: Condition) -> str:
        named = [PARAMETERIZATION] if PARAMETERIZATION in self._varied or not self._varied else []
        return _parts(condition, [*named, *self.machine_fields])

    def without(self, *columns: str) -> Labels:
        """Labels that do not speak of these columns: conditions that differ in them alone share a name."""
        return Labels([masked(condition, columns) for condition in self._conditions])

    def settings(self) -> dict[str, str]:
        """Memory label -> the fields of its task that its name does not say, as far as the study varies them."""
        settings = {}
        for condition in self._conditions:
            said = self._memory_fields(condition)
            others = [name for name in self._task_fields if condition[name] is not None and name not in said]
            settings[self.memory(condition)] = ", ".join(f"{field_name(f)} {show(condition[f])}" for f in others)
        return {label: fields for label, fields in settings.items() if fields}

    def _varies(self, name: str, conditions: Sequence[Condition] | None = None) -> bool:
        rows = self._conditions if conditions is None else conditions
        return len({condition.get(name) for condition in rows}) > 1

    def _has_several(self, name: str) -> bool:
        """Whether a field differs between the conditions that have it."""
        return len({condition[name] for condition in self._conditions} - {None}) > 1

    def _varies_within(self, name: str, columns: Sequence[str]) -> bool:
        """Whether a field differs between conditions that agree in all of these columns."""
        values: dict[tuple[Any, ...], set[Any]] = {}
        for condition in self._conditions:
            values.setdefault(tuple(condition[column] for column in columns), set()).add(condition[name])
        return any(len(different) > 1 for different in values.values())


def masked(condition: Condition, columns: Sequence[str]) -> dict[str, Any]:
    """A condition that says nothing in these columns."""
    return {name: None if name in columns else value for name, value in condition.items()}


def field_name(path: str) -> str:
    """The last part of a dotted path."""
    return path.rpartition(".")[2]


def _parts(condition: Condition, names: Iterable[str]) -> str:
    """``tanh · exp · stair n``: bare values of _BARE, other fields with their names."""
    said = [(name, condition[name]) for name in names if condition.get(name) is not None]
    return BETWEEN.join(
        show(value) if name in _BARE else f"{field_name(name)} {show(value)}"
        for name, value in said
        if (name, value) not in _PLAIN
    )


def _readability(name: str) -> tuple[int, bool]:
    """Smaller for fields that say more to a reader."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), not name.startswith("model.")


def _order(name: str) -> int:
    """The model, then the rule that it learns by, then the rest: each in the order of the columns."""
    return 0 if name.startswith("model.") else 1 if name == "training.rule" else 2
