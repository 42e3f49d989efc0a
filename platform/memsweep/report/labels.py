"""Short names for conditions: what a study varies is said, what it keeps fixed is said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memsweep.report.findings import Finding

_MACHINE = ("model", "activation", "parameterization", "normalize")
_DECAY = ("rate", "exponent")


class Labels:
    """Names the memory (task side) and the machine (model side) of a finding, relative to one study."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._conditions = [finding.condition for finding in findings]
        names = list(self._conditions[0]) if self._conditions else []
        extra = [name for name in names if name not in ("task", "kernel", *_DECAY, *_MACHINE)]
        self._task_extra = [name for name in extra if name.startswith("task.") and name != "task.name"]
        self._machine_extra = [name for name in extra if not name.startswith("task.")]
        self._varied = [name for name in _MACHINE if self._varies(name, self._conditions)]

    def memory(self, condition: Mapping[str, Any]) -> str:
        """The kernel (the task where there is none), with the fields that differ between its conditions."""
        name = str(condition["kernel"] or condition["task"])
        if self._varies("task", [c for c in self._conditions if c["kernel"] == condition["kernel"]]):
            name = ", ".join(dict.fromkeys([str(condition["task"]), name]))
        same = [c for c in self._conditions if (c["task"], c["kernel"]) == (condition["task"], condition["kernel"])]
        fields = [f for f in (*_DECAY, *self._task_extra) if condition[f] is not None and self._varies(f, same)]
        shown = ", ".join(f"{field.removeprefix('task.')} {show(condition[field])}" for field in fields)
        return f"{name} ({shown})" if shown else name

    def machine(self, condition: Mapping[str, Any]) -> str:
        """The parameterization, and whatever else of the model and its training the study varies."""
        parts = [self._machine_part(name, condition[name]) for name in self._varied or ["parameterization"]]
        parts += [f"{name.rpartition('.')[2]} {show(condition[name])}" for name in self._machine_extra]
        return " · ".join(part for part in parts if part) or str(condition["model"])

    def fixed(self) -> dict[str, str]:
        """The condition columns that have one value throughout, null ones left out."""
        if not self._conditions:
            return {}
        first = self._conditions[0]
        names = [name for name in ("task", *_MACHINE) if not self._varies(name, self._conditions)]
        return {name: show(first[name]) for name in names if first[name] is not None}

    def decays(self) -> dict[str, str]:
        """Memory label -> its decay fields, for kernels that have any."""
        found = {}
        for condition in self._conditions:
            fields = [f"{name} {show(condition[name])}" for name in _DECAY if condition[name] is not None]
            found[self.memory(condition)] = ", ".join(fields)
        return {label: fields for label, fields in found.items() if fields}

    def _machine_part(self, name: str, value: Any) -> str:
        if name == "normalize":
            return "" if value is None else ("normalized" if value else "plain")
        return "" if value is None else str(value)

    @staticmethod
    def _varies(name: str, conditions: Sequence[Mapping[str, Any]]) -> bool:
        return len({condition[name] for condition in conditions}) > 1


def show(value: Any) -> str:
    """A value as a reader writes it: yes and no, and numbers without noise digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)
