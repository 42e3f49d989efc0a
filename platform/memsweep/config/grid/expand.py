"""Expands a base configuration and the axes of a grid to the trials of a study, one checked TrialConfig each.

A trial has few sections (task, model, ...) and an axis sets fields of one of them. So the combinations of each section
are built and checked once, and a trial is put together from finished sections.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memsweep.config.core.build import INVALID, build_field
from memsweep.config.core.merge import as_mapping, edited
from memsweep.config.core.problems import REQUIRED, WHOLE, Problem, sentence
from memsweep.config.core.reflect import config_of, keys, layout
from memsweep.config.grid.budget import BUDGET_KEY, NARROWEST_BELOW, Budgeted, budgeted, widest, without_budget
from memsweep.config.grid.causes import Causes
from memsweep.config.grid.chains import chain_problems, link_chains
from memsweep.config.schema.axes import ROWS, Axes
from memsweep.config.schema.chain import CHAIN
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ModuleError

MOST_TRIALS = 1_000_000

Indices = tuple[int, ...]
"""The index of a value on each axis, in order."""


def expand(
    base: Mapping[str, Any], axes: Axes, problems: list[str], *, for_models: Mapping[str, Any] | None = None
) -> tuple[TrialConfig, ...]:
    """Every combination of the axes' values over the base, the last axis fastest.

    Args:
        base: plain data of a trial; its sections may be incomplete where the axes complete them.
        axes: dotted path -> values, from ``valid_axes``.
        problems: collects what is wrong, each mistake once.
        for_models: settings of the model, used where neither base nor axes say otherwise and the model has the field.

    Returns:
        The trials, chained where the base has a chain; incomplete or none when there are problems.
    """
    count = math.prod(len(values) for values in axes.values())
    if count > MOST_TRIALS:
        sizes = " x ".join(str(len(values)) for values in axes.values())
        rule = f"has {count:,} trials ({sizes}), more than {MOST_TRIALS:,}. Take values out, or make several studies"
        problems.append(sentence("grid", rule))
        return ()
    sections = [
        _Section(name, base, axes, problems, for_models if name == "model" else None) for name in keys(TrialConfig)
    ]
    parts = {section.name: section.parts for section in sections}
    chains = [chain for chain in parts.pop(CHAIN) if chain is not None]
    problems += chain_problems(chains, axes, parts)
    trials = _trials(sections, axes, problems)
    return tuple((link_chains(trials, axes, problems) if chains and not problems else trials).values())


def _trials(sections: list[_Section], axes: Axes, problems: list[str]) -> dict[Indices, TrialConfig]:
    causes = Causes(axes)
    trials: dict[Indices, TrialConfig] = {}
    first: dict[tuple[int, ...], Indices] = {}
    equal: list[tuple[Indices, Indices]] = []
    known: dict[Any, Any] = {}  # models of a budget: equal ones are one object
    for indices, at in _all(axes):
        chosen = {section.name: section.at(indices) for section in sections}
        if INVALID in chosen.values():
            continue
        if isinstance(chosen["model"], Budgeted):
            found = _within_budget(chosen["model"], chosen["task"])
            if isinstance(found, str):
                causes.add([Problem("", found, kind=WHOLE)], at)
                continue
            chosen["model"] = known.setdefault(found, found)
        trial = TrialConfig(**chosen)
        if wrong := [Problem("", text, kind=WHOLE) for text in trial.problems()]:
            causes.add(wrong, at)
        same = first.setdefault(tuple(map(id, chosen.values())), indices)
        if same is not indices:
            equal.append((same, indices))
        trials[indices] = trial
    problems += causes.sentences()
    if equal:
        problems.append(_equal_trials(equal, axes))
    return trials


def _within_budget(model: Budgeted, task: Any) -> Any:
    """As ``widest``; in words, too, where a user's code refuses every width: it is one problem of the study."""
    try:
        return widest(model, task)
    except ModuleError as error:
        return sentence("model", str(error)).rstrip(".")


def _equal_trials(equal: list[tuple[Indices, Indices]], axes: Axes) -> str:
    one, other = equal[0]
    spelled = [
        ", ".join(f"{axis}={values[index]}" for (axis, values), index in zip(axes.items(), indices, strict=True))
        for indices in (one, other)
    ]
    rule = f"{len(equal)} trials repeat an earlier trial: ({spelled[1]}) is the same trial as ({spelled[0]})"
    return sentence("grid", f"{rule}. Take one of them out")


class _Section:
    """One section of a trial (task, model, ..., chain): builds and checks its combinations.

    Args:
        name: of the section, a field of TrialConfig.
        base, axes, problems: as for ``expand``.
        usual: values of fields, used where the part has the field and neither base nor axes set it.

    Attributes:
        values: indices on the section's own axes -> the built part, or INVALID; equal parts are one object.
    """

    def __init__(
        self,
        name: str,
        base: Mapping[str, Any],
        axes: Axes,
        problems: list[str],
        usual: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.values: dict[Indices, Any] = {}
        self._usual = usual or {}
        self._trial = layout(TrialConfig)
        self._base = {name: base.get(name, None if self._trial.fields[name].default is None else {})}
        self._own = [number for number, path in enumerate(axes) if _sets(path, axes[path], name)]
        self._axes = {path: values for path, values in axes.items() if _sets(path, values, name)}
        rows = self._axes.get(ROWS, ())
        self._parts_of_rows = {axis for axis in self._axes if any(_sets_fields(row, axis) for row in rows)}
        known: list[Problem] = []
        if self._axes:
            self._make(self._base, known)
        # a field that is left out may come from an axis, which may also repair a rule about several fields
        known = [problem for problem in known if problem.kind not in (REQUIRED, WHOLE)]
        problems += map(str, known)
        if any(problem.path == name for problem in known):
            return  # the section is no mapping, so the axes cannot set its fields
        causes = Causes(self._axes, known)
        self._build(causes)
        problems += causes.sentences()

    @property
    def parts(self) -> list[Any]:
        """The different parts that are valid."""
        return [part for part in dict.fromkeys(self.values.values()) if part is not INVALID]

    def at(self, indices: Indices) -> Any:
        """The part of a trial, or INVALID."""
        return self.values.get(tuple(indices[number] for number in self._own), INVALID)

    def _build(self, causes: Causes) -> None:
        distinct: dict[Any, Any] = {}
        # an axis over a group of fields comes before the axes of its fields, so that the fields win
        order = sorted(enumerate(self._axes), key=lambda axis: (axis[1] != ROWS, axis[1].count(".")))
        for indices, at in _all(self._axes):
            edits = [self._edit(axis, self._axes[axis][indices[number]]) for number, axis in order]
            problems: list[Problem] = []
            value = self._make(edited(TrialConfig, self._base, edits), problems)
            if problems:
                causes.add(problems, at)
            self.values[indices] = distinct.setdefault(value, value)

    def _edit(self, axis: str, value: Any) -> tuple[str, Any]:
        """The path and value that a value of an axis sets in this section."""
        path, value = (self.name, value.get(self.name, {})) if axis == ROWS else (axis, value)
        # beside rows that set fields of a part a bare name chooses the part, and keeps these fields
        return path, as_mapping(value) if axis in self._parts_of_rows else value

    def _make(self, data: Mapping[str, Any], problems: list[Problem]) -> Any:
        written = data[self.name]
        config = config_of(TrialConfig, self._trial.fields[self.name], written) if self._usual else None
        if config is not None and isinstance(held := as_mapping(written), Mapping):
            written = {**{key: value for key, value in self._usual.items() if key in keys(config)}, **held}
        if self.name == "model" and isinstance(written, Mapping) and BUDGET_KEY in written:
            return self._make_budgeted(written, problems)
        return build_field(self._trial, self.name, written, self.name, problems)

    def _make_budgeted(self, written: Mapping[str, Any], problems: list[Problem]) -> Any:
        settings, budget = without_budget(written, problems)

        def of(settings: Any) -> tuple[Any, list[Problem]]:
            wrong: list[Problem] = []
            return build_field(self._trial, self.name, settings, self.name, wrong), wrong

        model, wrong = of(settings)
        if wrong and budget is not None:  # they may be of the usual width alone, which the model will not have
            narrow = (of({**settings, "width": width}) for width in range(1, NARROWEST_BELOW))
            model, wrong = next((found for found in narrow if not found[1]), (model, wrong))
        problems += wrong
        return budgeted(model, budget, settings, problems)


def _sets(axis: str, values: Iterable[Any], section: str) -> bool:
    """Whether an axis sets fields of a section."""
    return any(section in row for row in values) if axis == ROWS else axis.split(".")[0] == section


def _sets_fields(row: Any, axis: str) -> bool:
    """Whether a row sets fields of the part at the path of an axis."""
    for key in axis.split("."):
        row = row.get(key) if isinstance(row, Mapping) else None
    return isinstance(row, Mapping)


def _all(axes: Axes) -> Iterator[tuple[Indices, dict[str, int]]]:
    """Every combination: its indices, and the same by axis."""
    for indices in itertools.product(*(range(len(values)) for values in axes.values())):
        yield indices, dict(zip(axes, indices, strict=True))
