"""Problems that many trials of a grid share: one sentence each, with the axis values that cause it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memsweep.config.core.problems import UNKNOWN, VALUE, Problem, lies_in, phrase, sentence, show
from memsweep.config.schema.axes import Axes


@dataclass
class _Case:
    """One broken rule: the values that broke it, and the indices of each axis at which it broke."""

    problem: Problem
    got: dict[str, None] = field(default_factory=dict)
    seen: dict[str, set[int]] = field(default_factory=dict)


class Causes:
    """Collects the problems of combinations of axis values.

    Args:
        axes: the axes of the combinations.
        known: problems of the base configuration, which are reported elsewhere.
        home: section of the study file that the values come from.
    """

    def __init__(self, axes: Axes, known: Sequence[Problem] = (), home: str = "grid") -> None:
        self._home = home
        self._axes = axes
        self._known = set(known)
        self._cases: dict[tuple[str, str], _Case] = {}

    def add(self, problems: Sequence[Problem], at: Mapping[str, int]) -> None:
        """Add the problems of one combination; ``at`` has the index of its value on each of its axes."""
        for problem in problems:
            if problem in self._known:
                continue
            case = self._cases.setdefault((problem.path, problem.rule), _Case(problem))
            case.got[problem.got] = None
            for axis, index in at.items():
                case.seen.setdefault(axis, set()).add(index)

    def sentences(self) -> list[str]:
        """One sentence for each broken rule, in the order of their first case."""
        return [self._sentence(case) for case in self._cases.values()]

    def _sentence(self, case: _Case) -> str:
        problem = case.problem
        for axis in case.seen:
            if problem.kind == VALUE and axis.startswith(f"{problem.path}."):
                return sentence(f"{self._home}.{axis}", f"names no field: {problem.path} has no fields below it here")
            if problem.kind == UNKNOWN and lies_in(axis, problem.path):
                where = self._where(case).replace(f" (in the {self._home})", "").replace(f"in the {self._home}, ", "")
                return sentence(f"{self._home}.{axis}", f"names no field: {problem.rule}", "", where)
        return sentence(problem.path, problem.rule, phrase(got for got in case.got if got), self._where(case))

    def _where(self, case: _Case) -> str:
        """The axis values that all wrong trials share and the others lack, in brackets."""
        words, related = [], False
        for axis, indices in case.seen.items():
            values = self._axes[axis]
            inside = lies_in(case.problem.path, axis)
            related |= inside
            obvious = axis == case.problem.path and case.problem.kind == VALUE
            if len(indices) < len(values) and not obvious:
                words.append(f"{axis}={phrase(show(values[index]) for index in sorted(indices))}")
        if words:
            return f" (in the {self._home}, with {', '.join(words)})"
        return f" (in the {self._home})" if related else ""
