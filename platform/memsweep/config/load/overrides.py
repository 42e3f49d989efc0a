"""The overrides of a command line (``key=value``, in Hydra's grammar), sorted by the part of a study they change."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memsweep.config.core.merge import leaves
from memsweep.config.core.problems import show
from memsweep.config.load.bounded import too_many_parts

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

GRID, SEARCH = "grid", "search"
MOST_VALUES = 100_000
"""Values of one axis: ``range(1, 1000000000)`` is a typing error."""
_LONGEST_REASON = 100
_FORM = "Write key=value, for example training.steps=100, model.width=2,4,8 or 'name=\"my study\"'"

REMOVED: Final = object()
"""Stands for the value of a field that an override removes."""


@dataclass
class Overrides:
    """The changes that a command line makes to a study; not yet checked.

    Attributes:
        values: (dotted path, value) of the base configuration.
        axes: (dotted path, values) of the grid, new or replaced.
        removed: dotted paths to remove from the base.
        removed_axes: dotted paths to remove from the grid ("" for all of it).
        search: (dotted path below ``search``, value) in the order of the command line; REMOVED removes a field.
        groups: words for Hydra itself: they choose a file of a config group.
        problems: sentences.
    """

    values: list[tuple[str, Any]] = field(default_factory=list)
    axes: list[tuple[str, Any]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    removed_axes: list[str] = field(default_factory=list)
    search: list[tuple[str, Any]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse(words: Sequence[str], folder: Path) -> Overrides:
    """Sort the overrides of a command line.

    Args:
        words: as they were typed.
        folder: where the study file lies; its subfolders are Hydra's config groups.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser, result = OverridesParser.create(), Overrides()
    for word in words:
        try:
            problem = too_many_parts(word) or _sort(parser.parse_override(word), word, folder, result)
        except Exception as error:  # Hydra's own errors, and Python's: too many digits, nested too deeply
            reason = next(iter(str(error).splitlines()), type(error).__name__)[:_LONGEST_REASON]
            problem = f"cannot be read ({reason}). {_FORM}"
        if problem:
            result.problems.append(f"the override {show(word)} {problem}.")
    return result


def _sort(override: Override, word: str, folder: Path, result: Overrides) -> str:
    """Add one override to ``result``; returns the rest of a sentence where it cannot be used, else an empty text."""
    path = override.key_or_group
    if re.split(r"[./]", path)[0] == "hydra":
        return (
            "sets Hydra itself, which memsweep does not use. Results go to --results DIR, several values make a grid "
            "(model.width=2,4,8), the section search searches (memsweep describe search), and --address or memsweep "
            "submit runs on a cluster. Leave it out"
        )
    if not path:
        return f"cannot be read (it names nothing). {_FORM}"
    if "/" in path or override.package is not None or os.path.isdir(folder / path):
        if "${" in word:
            return "chooses a file by an interpolation. Write the file's name itself"
        result.groups.append(word)
        return ""
    section, _, below = path.partition(".")
    if section == SEARCH and override.is_sweep_override():
        return (
            "lists values for a search, which has one of each setting. Write one value, search.trials=40 say, or a "
            "domain: 'search.training.learning_rate={log_uniform: [1e-4, 1e-1]}'"
        )
    at = below if section in (GRID, SEARCH) else path
    if override.is_sweep_override():
        return _add_axis(override, at, result)
    value = REMOVED if override.is_delete() else override.value()
    if section == SEARCH:
        result.search.append((at, value))
    elif value is REMOVED:
        (result.removed_axes if section == GRID else result.removed).append(at)
    elif section != GRID:
        result.values.append((at, value))
    elif at or (isinstance(value, Mapping) and value):
        result.axes += leaves(value, at)  # grid={model: {width: [2, 4]}} is the axis model.width
    else:
        return f"gives no axes. Write {GRID}.model.width=[2,4]"
    return ""


def _add_axis(override: Override, path: str, result: Overrides) -> str:
    from hydra.core.override_parser.types import Transformer

    try:
        values = list(itertools.islice(override.sweep_iterator(Transformer.identity), MOST_VALUES + 1))
    except Exception:  # a sweep without a list of values, or with bounds that are no numbers
        return f"does not list its values. For a grid write {path}=1,2,3 or {path}=range(1,10)"
    if len(values) > MOST_VALUES:
        return f"lists more than {MOST_VALUES:,} values. Take values out"
    result.axes.append((path, values))
    return ""
