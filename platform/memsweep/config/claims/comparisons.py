"""The comparisons in a study's claims (``EXAMPLE``), read and checked against its cells before anything runs.

``left`` and ``right`` select cells by dotted paths of a trial, ``at`` holds on both sides. The cells of both sides
form pairs that agree on all other axes of the grid. Values equal the canonical ones; a part is meant by its name.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from memsweep import registry
from memsweep.config.core.problems import join, lies_in, phrase, sentence, show
from memsweep.config.schema.axes import ROWS
from memsweep.config.schema.canonical import MISSING, flatten, plain_at, to_dict
from memsweep.config.schema.claims import DIRECTIONS, Comparison, at_path
from memsweep.config.schema.search import BALL_OF, METRICS, TEST, Search, same
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import did_you_mean, one_of

EXAMPLE = (
    "{metric: radius, direction: greater, left: {model.parameterization: exp}, "
    "right: {model.parameterization: direct}, at: {model.width: 8}}"
)
_REQUIRED = ("metric", "direction", "left", "right")
_KEYS = (*_REQUIRED, "at")
_MOST_NAMED = 12
_PART = "To run a part of a study, leave its claims out with ~claims"


class Cells:
    """The cells of a study, and the values that their fields have.

    Args:
        trials: one for each cell; none where something else is wrong.
        axes: of the grid, dotted path -> values as written.
        search: what is searched in the cells.
    """

    def __init__(self, trials: Sequence[TrialConfig], axes: Mapping[str, Sequence[Any]], search: Search | None) -> None:
        self.trials, self.axes = trials, axes
        self.space = search.space if search is not None else {}

    def values(self, path: str) -> list[Any]:
        """The different values of a field over the cells, or over the choices where it is searched."""
        searched = self.searched_field(path)
        if searched:
            below = path.removeprefix(searched).removeprefix(".")
            every: Iterable[Any] = (at_path(value, below) for value in self.space[searched].values)
        else:
            every = (plain_at(trial, path) for trial in self.trials)
        return list({_key(value): value for value in every if value is not MISSING}.values())

    def searched_field(self, path: str) -> str:
        """The searched field that a path names or lies in; empty where none is."""
        return next((field for field in self.space if lies_in(path, field)), "")

    def fields(self, axis: str) -> list[str]:
        """The fields that an axis of the grid sets: its own path, or those in its values where they are mappings."""
        return list(
            dict.fromkeys(
                path for value in self.axes[axis] for path in flatten(value if axis == ROWS else {axis: value})
            )
        )

    def select(self, *conditions: Mapping[str, Any]) -> list[TrialConfig]:
        """The cells that meet these conditions, searched fields aside."""
        wanted = [(p, value) for side in conditions for p, value in side.items() if not self.searched_field(p)]
        return [trial for trial in self.trials if all(same(plain_at(trial, path), value) for path, value in wanted)]

    def reported_metrics(self, *sides: Mapping[str, Any]) -> list[str]:
        """The metrics that all tasks of these sides' cells report of each replica; of all cells where none is met."""
        trials = [trial for side in sides for trial in self.select(side)] or self.trials
        classes = {registry.get(registry.TASK, trial.task.name) for trial in trials}
        shared = frozenset.intersection(*(frozenset(getattr(each, "reports", ())) for each in classes))
        return sorted(shared)


def read_comparisons(data: Any, path: str, cells: Cells, problems: list[str]) -> tuple[Comparison, ...]:
    """The comparisons in a list of mappings at a path of the study file.

    Without any ``cells``, only the form of the mappings is checked, and nothing is returned.
    """
    if not isinstance(data, list | tuple) or not data:
        problems.append(sentence(path, f"must be a list of at least one comparison such as {EXAMPLE}", show(data)))
        return ()
    read: dict[str, Comparison] = {}
    for index, entry in enumerate(data):
        here = f"{path}[{index}]"
        wrong = list(_form_problems(entry, here))
        comparison = None if wrong or not cells.trials else _comparison(entry, here, cells, wrong)
        problems += wrong
        if comparison is None:
            continue
        if comparison.text in read:  # fields of different sections may have one short name
            comparison = dataclasses.replace(comparison, text=_text(comparison, whole=True))
        if any(dataclasses.replace(other, text=comparison.text) == comparison for other in read.values()):
            problems.append(sentence(here, "repeats an earlier claim. Take one of them out", comparison.text))
        read[comparison.text] = comparison
    return tuple(read.values())


def _form_problems(entry: Any, path: str) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        yield sentence(path, f"must be a comparison such as {EXAMPLE}", show(entry))
        return
    for key in entry:
        if key not in _KEYS:
            yield sentence(join(path, key), f"no such field.{did_you_mean(key, _KEYS)} Fields: {', '.join(_KEYS)}")
    for key in _REQUIRED:
        if key not in entry:
            yield sentence(join(path, key), f"is required: a comparison is written as {EXAMPLE}")
    if "direction" in entry and entry["direction"] not in list(DIRECTIONS):
        rule = f"must be one of {one_of(DIRECTIONS)}: how the left side is to the right"
        yield sentence(f"{path}.direction", rule, show(entry["direction"]))
    for side in ("left", "right", "at"):
        if side in entry and (not isinstance(entry[side], Mapping) or not entry[side]):
            rule = "must be a mapping of a trial's dotted paths to values, such as {model.parameterization: exp}"
            yield sentence(f"{path}.{side}", rule, show(entry[side]))


def _comparison(entry: Mapping[str, Any], path: str, cells: Cells, problems: list[str]) -> Comparison | None:
    """The comparison, or None with the reasons added to ``problems``."""
    sides = {side: flatten(entry.get(side, {})) for side in ("left", "right", "at")}
    reported = cells.reported_metrics(*({**sides["at"], **sides[side]} for side in ("left", "right")))
    problems += _metric_problems(entry["metric"], path, reported)
    for side, conditions in sides.items():
        for field, value in conditions.items():
            problems += _field_problems(field, value, f"{path}.{side}.{field}", cells)
    touched = [*sides["left"], *sides["right"]]
    for field in sides["at"].keys() & set(touched):
        problems.append(sentence(path, f"names {field} on a side and in 'at'. Keep one of them"))
    if problems:
        return None
    others = [fields for axis in cells.axes if not _overlap(fields := cells.fields(axis), touched)]
    agree = tuple(dict.fromkeys(field for fields in others for field in fields))
    made = Comparison("", entry["metric"], entry["direction"], **sides, same=agree)
    problems += _pair_problems(made, path, cells)
    return dataclasses.replace(made, text=_text(made))


def _metric_problems(name: Any, path: str, reported: Sequence[str]) -> Iterator[str]:
    if isinstance(name, str) and name.startswith(TEST):
        if name.removeprefix(TEST) not in reported:
            there = f"its tasks report {', '.join(reported)}" if reported else "its tasks report no metrics"
            yield sentence(f"{path}.metric", f"the study has no metric {name}: {there}")
    elif name not in list(METRICS):
        known = (*METRICS, *(f"{TEST}{metric}" for metric in reported))
        rule = f"there is no metric {show(name)}.{did_you_mean(name, known)} Metrics: {', '.join(known)}"
        yield sentence(f"{path}.metric", rule)


def _field_problems(field: str, value: Any, path: str, cells: Cells) -> Iterator[str]:
    searched = cells.searched_field(field)
    if searched and cells.space[searched].is_numeric:
        yield sentence(path, "is searched among numbers: no cell has one value of it. Compare by an axis of the grid")
        return
    values = cells.values(field)
    if not values:
        known = list(dict.fromkeys(path for trial in cells.trials for path in flatten(to_dict(trial))))
        ends = [one for one in known if one.endswith(f".{field}")]
        near = f" Did you mean {' or '.join(ends)}?" if ends else did_you_mean(field, known)
        yield sentence(path, f"the study has no such field.{near} Its axes: {_phrase(cells.axes)}")
    elif not any(same(one, value) for one in values):
        near = did_you_mean(value, [_word(one) for one in values])
        rule = f"no trial of the study has the value {show(value)}.{near} There are: {_phrase(values)}. {_PART}"
        yield sentence(path, rule)


def _pair_problems(made: Comparison, path: str, cells: Cells) -> Iterator[str]:
    """Why the cells of the two sides cannot form pairs."""
    if made.left == made.right:
        yield sentence(path, "compares a side with itself")
        return
    sides = {side: cells.select(getattr(made, side), made.at) for side in ("left", "right")}
    for side, trials in sides.items():
        if not trials:
            yield sentence(f"{path}.{side}", "the study has no cell with all of these values (and those of 'at')")
            return
    keys = {side: {_key([plain_at(trial, p) for p in made.same]) for trial in trials} for side, trials in sides.items()}
    for side, trials in sides.items():
        if len(keys[side]) < len(trials):
            varied = _varied_fields(made, cells, trials)
            rule = f"several cells of one side differ in {_phrase(varied)} alone: name it on both sides or in 'at'"
            yield sentence(path, rule)
            return
    if not keys["left"] & keys["right"]:
        yield sentence(path, "no cell of the one side agrees with one of the other in all other axes")
    ball = BALL_OF.get(made.metric)
    if ball and any(ball not in trial.perturbation.balls for trials in sides.values() for trial in trials):
        yield sentence(path, f"{made.metric} needs {ball} among perturbation.balls")


def _varied_fields(made: Comparison, cells: Cells, trials: Sequence[TrialConfig]) -> list[str]:
    """The fields in which trials differ and in which a comparison does not make its pairs agree."""
    open_axes = [axis for axis in cells.axes if not {*cells.fields(axis)} <= {*made.same}]
    paths = [path for axis in open_axes for path in (cells.fields(axis) if axis == ROWS else (axis,))]
    return [path for path in paths if len({_key(plain_at(trial, path)) for trial in trials}) > 1]


def _text(made: Comparison, *, whole: bool = False) -> str:
    """``radius(exp) > radius(direct) at width 8``; ``whole`` writes every path out, so that no two texts are equal."""

    def field(path: str) -> str:
        return path if whole else path.removesuffix(".name").rpartition(".")[2]

    def items(side: Mapping[str, Any]) -> str:
        return ", ".join(v if isinstance(v, str) and not whole else f"{field(p)}={_word(v)}" for p, v in side.items())

    sides = (f"{made.metric}({items(side)})" for side in (made.left, made.right))
    places = ", ".join(f"{field(path)} {_word(value)}" for path, value in made.at.items())
    return f" {DIRECTIONS[made.direction]} ".join(sides) + (f" at {places}" if places else "")


def _overlap(paths: Sequence[str], others: Sequence[str]) -> bool:
    """Whether any of these paths leads to a part of any of the others, or the other way round."""
    return any(lies_in(one, other) or lies_in(other, one) for one in paths for other in others)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name", value))
    return value if isinstance(value, str) else show(value)


def _phrase(values: Iterable[Any]) -> str:
    return phrase(map(_word, values), _MOST_NAMED) or "none"
