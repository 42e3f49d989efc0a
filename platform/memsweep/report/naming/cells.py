"""The cells of a search in words: what a study varies around what it searches, and how pictures tell cells apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from memsweep.config.schema.canonical import flatten
from memsweep.report.naming.numbers import is_number, show

ALONE = "the study"
"""Name of the only cell of a study without a grid."""
_SIZES = ("model.width", "task.horizon")
_COSMETIC = "training.checkpoint_every"


@dataclass(frozen=True)
class Cells:
    """What tells the cells of a search apart.

    Attributes:
        axes: the dotted paths in which they differ, without those that follow from the ones before.
        values: of each cell: axis -> value.
    """

    axes: tuple[str, ...]
    values: tuple[Mapping[str, Any], ...]

    @staticmethod
    def of(configs: Sequence[Mapping[str, Any]], searched: Collection[str]) -> Cells:
        """The cells of these canonical configs; what is searched tells none apart."""
        flat = [_named(flatten(config)) for config in configs]
        axes: list[str] = []
        for path in dict.fromkeys(path for fields in flat for path in fields):
            counts = path != _COSMETIC and path not in searched
            if counts and _told_apart(flat, [*axes, path]) > _told_apart(flat, axes):
                axes.append(path)
        for size in _SIZES:  # one that follows from the others, as the widths of a budget of parameters, says nothing
            rest = [axis for axis in axes if axis != size]
            if size in axes and _told_apart(flat, rest) == len(flat):
                axes = rest
        return Cells(tuple(axes), tuple({axis: fields.get(axis) for axis in axes} for fields in flat))

    def name(self, cell: int) -> str:
        """``exp, width 8``; ``the study`` where there is one cell only."""
        return _words(self.values[cell]) or ALONE

    @property
    def hue(self) -> str:
        """The axis whose values have a line each: width or horizon, else one of numbers, else the last; may be empty.

        The other axes' values have a picture each.
        """
        sizes = [axis for axis in _SIZES if axis in self.axes]
        numeric = [axis for axis in self.axes if all(map(is_number, self._along(axis)))]
        return (*sizes, *numeric, *reversed(self.axes), "")[0]

    def picture(self, cell: int) -> str:
        """Name of the picture that a cell belongs in: its values of all axes but ``hue``."""
        rest = {axis: value for axis, value in self.values[cell].items() if axis != self.hue}
        return _words(rest) or (f"by {last(self.hue)}" if self.hue else ALONE)

    def shade(self, cell: int) -> Any:
        """The cell's value of ``hue``; None where nothing varies."""
        return self.values[cell].get(self.hue)

    def shade_name(self, cell: int) -> str:
        """``width 8``."""
        return _words({self.hue: self.shade(cell)}) if self.hue else ALONE

    def pictures(self) -> dict[str, tuple[int, ...]]:
        """Name of each picture -> its cells, in their order."""
        found: dict[str, list[int]] = {}
        for cell in range(len(self.values)):
            found.setdefault(self.picture(cell), []).append(cell)
        return {name: tuple(cells) for name, cells in found.items()}

    def _along(self, axis: str) -> list[Any]:
        return [values[axis] for values in self.values]


def _told_apart(configs: Sequence[Mapping[str, Any]], axes: Sequence[str]) -> int:
    """How many kinds of these flat configs their values on the axes tell apart."""
    return len({tuple(repr(fields.get(axis)) for axis in axes) for fields in configs})


def last(path: str) -> str:
    """``learning_rate`` of ``training.learning_rate``, as words."""
    return path.rpartition(".")[2].replace("_", " ")


def settings_text(values: Mapping[str, Any], turns: Sequence[Mapping[str, Any]] = ()) -> str:
    """``learning rate 0.0123, activation tanh``; with turns ``learning rate 0.02 until step 200, then 0.01``.

    Args:
        values: dotted path -> value, of the last stage.
        turns: the settings of the stages before it, as a trial's config holds them.
    """
    said = [f"{last(path)} {_stages(path.removeprefix('training.'), value, turns)}" for path, value in values.items()]
    return ("; " if turns else ", ").join(said)


def _stages(field: str, value: Any, turns: Sequence[Mapping[str, Any]]) -> str:
    ends = [(_brief(turn[field]), turn["until"]) for turn in turns if field in turn]
    changes = [one for one, after in pairwise([*ends, (_brief(value), 0)]) if one[0] != after[0]]
    return ", then ".join([*(f"{text} until step {until}" for text, until in changes), _brief(value)])


def _brief(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else show(value)


def _named(flat: Mapping[str, Any]) -> dict[str, Any]:
    """With a part's name at the part's own path, whether it has fields or not."""
    return {path.removesuffix(".name"): value for path, value in flat.items()}


def _words(values: Mapping[str, Any]) -> str:
    plain = {axis: value for axis, value in values.items() if value is not None}
    return ", ".join(
        str(value) if isinstance(value, str) else f"{last(axis)} {show(value)}" for axis, value in plain.items()
    )
