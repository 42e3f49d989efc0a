"""The cells of a grid as a search sees them: which of them are looked at, and what suggestions must leave alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.config.core.problems import sentence, show
from memsweep.config.core.reflect import keys
from memsweep.config.schema.axes import Axes, root
from memsweep.config.schema.search import Domain, same
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.paths import leaves, meet
from memsweep.config.search.suggestion import plain_at

_HOME = "search"


@dataclass(frozen=True)
class Cell:
    """A row of the grid.

    Attributes:
        config: its trial.
        entry: axis -> its value; empty where other rows are wrong.
        at: axis -> index of this value among those that are looked at.
    """

    config: TrialConfig
    entry: Mapping[str, Any]
    at: Mapping[str, int]

    def __str__(self) -> str:
        return ", ".join(f"{axis}={show(value)}" for axis, value in self.entry.items())


def representatives(cells: Sequence[TrialConfig], most: int) -> list[int]:
    """Numbers of the cells that are looked at: all where they are few, else one of each form, and others in between."""
    if len(cells) <= most:
        return list(range(len(cells)))
    forms: dict[tuple[Any, ...], int] = {}
    known: dict[int, tuple[Any, ...]] = {}
    for number, cell in enumerate(cells):
        parts = (cell.task, cell.model)
        for part in parts:
            if id(part) not in known:  # rows share their parts
                known[id(part)] = tuple(v if isinstance(v, str) else type(v) for v in vars(part).values())
        forms.setdefault(tuple((type(part), known[id(part)]) for part in parts), number)
    spread = range(0, len(cells), math.ceil(len(cells) / most))
    return sorted({*list(forms.values())[:most], *spread})


def indices_of(cells: Sequence[TrialConfig], axes: Axes, looked: Sequence[int]) -> dict[int, dict[str, int]]:
    """Number of a cell -> axis -> index of its value; empty where cells are missing, because they are wrong."""
    if len(cells) != math.prod(map(len, axes.values())):
        return {}
    found: dict[int, dict[str, int]] = {}
    for number in looked:
        rest, at = number, dict[str, int]()
        for axis in reversed(axes):
            rest, at[axis] = divmod(rest, len(axes[axis]))
        found[number] = at
    return found


def lost(cell: Cell, trials: Sequence[TrialConfig], touched: Sequence[str], said: Iterable[str]) -> Iterator[str]:
    """Fields that the study sets and that a suggestion would set to something else without saying so.

    A default follows from other fields (of another model, say), and a value that equals it cannot be told from it.

    Args:
        cell: the row.
        trials: what suggestions make of it.
        touched: paths that suggestions set, from ``touched_by``.
        said: paths that the study's base sets, from ``set_by``.
    """
    on_axes = dict.fromkeys(leaf for axis, value in cell.entry.items() for leaf in leaves(root(axis), value))
    for path in {**dict.fromkeys(said), **on_axes}:
        if any(meet(path, leaf) for leaf in touched) or (path not in on_axes and _depends(path, cell.config)):
            continue
        before = _value(cell.config, path)
        other = next((now for trial in trials if not same(now := _value(trial, path), before)), before)
        if None in (before, other) or same(before, other):  # None: a part has no such field, and says so itself
            continue
        rule = f"a suggestion would set {path} to {show(other)}, and the study says {show(before)}"
        advice = f"Search it, too: {path}: {{choice: [{show(before)}]}}"
        if path in on_axes:
            advice = "Take the axis out of the grid, or the field that decides it out of the search"
        yield sentence(_HOME, f"{rule}. {advice}")


def set_by(data: Mapping[str, Any]) -> Iterator[str]:
    """Paths of the fields that plain data of a trial sets; those inside a nested part belong to it and are left out."""
    for section, inner in data.items():
        for key, value in inner.items() if isinstance(inner, Mapping) else ():
            if key != "name" and value is not None and not isinstance(value, Mapping):
                yield f"{section}.{key}"


def touched_by(space: Mapping[str, Domain]) -> list[str]:
    """Paths of the fields that suggestions set, those inside of groups spelled out."""
    values = ((path, value) for path, domain in space.items() for value in domain.values or (None,))
    return list(dict.fromkeys(leaf for path, value in values for leaf in leaves(path, value)))


def _value(config: TrialConfig, path: str) -> Any:
    try:
        return plain_at(config, path)
    except KeyError:
        return None


def _depends(path: str, config: TrialConfig) -> bool:
    section, _, key = path.partition(".")
    part: type = type(getattr(config, section, None))
    if not dataclasses.is_dataclass(part):
        return False
    field = keys(part).get(key)
    return field is not None and field.metadata.get("depends_on") is not None
