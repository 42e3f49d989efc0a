"""The overrides of a command line, in Hydra's grammar: each is an edit at a path of the study's tree.

What a path means follows from its first key: an axis below ``grid``, a searched domain or a setting below ``search``, a
field anywhere else. ``key=a,b`` makes an axis, ``~key`` removes what is there (table in ``docs/architecture.md``).
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memsweep.config.core.merge import leaves
from memsweep.config.core.problems import show
from memsweep.config.load.bounded import too_many_parts
from memsweep.config.load.slips import FORM, put_together, why_not_read

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

GRID, SEARCH = "grid", "search"
FIELD, AXIS, SEARCHED = "field", "axis", "searched"
"""The meanings of a path."""
_MEANINGS = {GRID: AXIS, SEARCH: SEARCHED}
"""First key of a path -> what the rest of it means; of any other key the whole path is a field."""
MOST_VALUES = 100_000
"""Values of one axis: ``range(1, 1000000000)`` is a typing error."""

REMOVED: Final = object()
"""Stands for the value of a field that an override removes."""


@dataclass(frozen=True)
class Edit:
    """One change of a study's tree.

    Attributes:
        meaning: FIELD, AXIS or SEARCHED.
        path: dotted path of what is changed, without ``grid`` and ``search``; empty for the whole of these sections.
        value: of an axis the list of its values; REMOVED takes away what is there.
    """

    meaning: str
    path: str
    value: Any

    @property
    def removes(self) -> bool:
        """Whether it takes away what is there."""
        return self.value is REMOVED

    @property
    def place(self) -> str:
        """The path as a word writes it; of an axis that of its field, unless it is removed."""
        section = {AXIS: GRID if self.removes else "", SEARCHED: SEARCH}.get(self.meaning, "")
        return ".".join(filter(None, (section, self.path)))


@dataclass
class Overrides:
    """The changes that a command line makes to a study; not yet checked.

    Attributes:
        edits: in the order of the command line.
        groups: words for Hydra itself: they choose a file of a config group.
        problems: sentences.
    """

    edits: list[Edit] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, meaning: str) -> list[tuple[str, Any]]:
        """(path, value) of the edits of one meaning, removals among them."""
        return [(edit.path, edit.value) for edit in self.edits if edit.meaning == meaning]

    def removed(self, meaning: str) -> list[str]:
        """The paths that edits of one meaning remove."""
        return [path for path, value in self.of(meaning) if value is REMOVED]

    @property
    def values(self) -> list[tuple[str, Any]]:
        """(path, value) of the fields that are set."""
        return [edit for edit in self.of(FIELD) if edit[1] is not REMOVED]

    @property
    def axes(self) -> list[tuple[str, Any]]:
        """(path, values) of the axes that are made or replaced."""
        return [edit for edit in self.of(AXIS) if edit[1] is not REMOVED]


def parse(words: Sequence[str], *folders: Path) -> Overrides:
    """The edits of a command line.

    Args:
        words: as they were typed.
        folders: where the study file lies, and where it may include from; their subfolders are Hydra's config groups.
    """
    if not words:
        return Overrides()
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser, (words, apart) = OverridesParser.create(), put_together(words)
    result = Overrides(problems=apart)
    for word in words:
        try:
            problem = too_many_parts(word) or _add(parser.parse_override(word), word, folders, result)
        except Exception:  # Hydra's own errors, and Python's: too many digits, nested too deeply
            problem = why_not_read(word)
        if problem:
            result.problems.append(f"the override {show(word)} {problem}.")
    result.problems += _contradictions(result.edits)
    return result


def _contradictions(edits: Sequence[Edit]) -> Iterator[str]:
    """A sentence for each axis that gets a value later: the axis would count. One behind a value takes its place."""
    axes: dict[str, Any] = {}
    for edit in edits:
        if edit.meaning == AXIS and not edit.removes:
            axes[edit.path] = edit.value
        elif edit.meaning == AXIS:
            axes.pop(edit.path, None)
        elif edit.meaning == FIELD and edit.path in axes and not edit.removes:
            several, one = show(axes[edit.path]), show(edit.value)
            yield f"{edit.path} is given several values ({several}), and then one ({one}). Write one of both."


def _add(override: Override, word: str, folders: Sequence[Path], result: Overrides) -> str:
    """Adds one override to ``result``; returns the rest of a sentence where it cannot be used, else an empty text."""
    path = override.key_or_group
    if re.split(r"[./]", path)[0] == "hydra":
        return (
            "sets Hydra itself, which memsweep does not use. Results go to --results DIR, several values make a grid "
            "(model.width=2,4,8), the section search searches (memsweep describe search), and --address or memsweep "
            "submit runs on a cluster. Leave it out"
        )
    if not path:
        return f"cannot be read: it names nothing. {FORM}"
    if _chooses_file(override, folders):
        if "${" in word:
            return "chooses a file by an interpolation. Write the file's name itself"
        result.groups.append(word)
        return ""
    section, _, below = path.partition(".")
    meaning = _MEANINGS.get(section, FIELD)
    if meaning == SEARCHED and override.is_sweep_override():
        return (
            "lists values for a search, which has one of each setting. Write one value, search.trials=40 say, or a "
            "domain: 'search.training.learning_rate={log_uniform: [1e-4, 1e-1]}'"
        )
    at = path if meaning == FIELD else below
    if override.is_sweep_override():
        return _add_axis(override, at, result)
    return _add_edit(Edit(meaning, at, REMOVED if override.is_delete() else override.value()), result)


def _add_edit(edit: Edit, result: Overrides) -> str:
    if edit.meaning != AXIS or edit.removes:
        result.edits.append(edit)
    elif not edit.path and not (isinstance(edit.value, Mapping) and edit.value):
        return f"gives no axes. Write {GRID}.model.width=[2,4]"
    else:  # grid={model: {width: [2, 4]}} is the axis model.width
        result.edits += [Edit(AXIS, *axis) for axis in leaves(edit.value, edit.path)]
    return ""


def _chooses_file(override: Override, folders: Sequence[Path]) -> bool:
    """Whether a word chooses a file of a config group, which Hydra does."""
    path = override.key_or_group
    return "/" in path or override.package is not None or any(os.path.isdir(folder / path) for folder in folders)


def _add_axis(override: Override, path: str, result: Overrides) -> str:
    from hydra.core.override_parser.types import Transformer

    try:
        values = list(itertools.islice(override.sweep_iterator(Transformer.identity), MOST_VALUES + 1))
    except Exception:  # a sweep without a list of values, or with bounds that are no numbers
        return f"does not list its values. For a grid write {path}=1,2,3 or {path}=range(1,10)"
    if len(values) > MOST_VALUES:
        return f"lists more than {MOST_VALUES:,} values. Take values out"
    result.edits.append(Edit(AXIS, path, values))
    return ""
