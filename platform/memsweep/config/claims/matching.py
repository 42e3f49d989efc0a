"""What the sentences of a study's claims speak of: their names looked up among its axes and cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.claims.cells import Cells, key
from memsweep.config.claims.comparisons import Comparison, fits, metric_problems
from memsweep.config.claims.sections import Claims, read_claims
from memsweep.config.claims.sentences import Item, Sentence
from memsweep.config.core.problems import sentence, show
from memsweep.config.schema.aliases import by_own_names
from memsweep.config.schema.axes import ROWS
from memsweep.config.schema.search import BALL_OF, Search
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import did_you_mean

_MOST_NAMED = 12
_PART = "To run a part of a study, leave its claims out with ~claims"


def study_claims(
    data: Any,
    rows: Sequence[TrialConfig],
    axes: Mapping[str, Sequence[Any]],
    search: Search | None,
    problems: list[str],
) -> Claims | None:
    """The ``claims`` section of a study, with the names in its sentences looked up.

    Args:
        data: plain data, None where the study has no claims.
        rows: the cells; none where something else is wrong: then the sentences are checked for their grammar alone.
        axes: of the grid, dotted path -> values as written.
        search: what is searched in the cells.
        problems: gets one sentence for everything that is wrong.
    """
    cells = Cells(rows, axes, search)
    return read_claims(data, problems, (lambda said, path: _resolve(said, path, cells, problems)) if rows else None)


def _resolve(said: Sentence, path: str, cells: Cells, problems: list[str]) -> Comparison | None:
    before = len(problems)
    problems += metric_problems(said, path, cells.reported())
    left, right, at = (_side(items, path, cells, problems) for items in (said.left, said.right, said.at))
    twice = at.keys() & (left.keys() | right.keys())
    problems += [sentence(path, f"names {field} on a side and behind 'at'. Keep one of them") for field in twice]
    touched = (*left, *right)
    others = [fields for fields in map(cells.fields, cells.grid) if not _overlap(fields, touched)]
    same = tuple(dict.fromkeys(field for fields in others for field in fields))
    meant = Comparison(said.text, said.metric, left, said.op, right, at, same)
    if len(problems) == before:
        problems += _pair_problems(meant, path, cells)
    return meant if len(problems) == before else None


def _side(items: Sequence[Item], path: str, cells: Cells, problems: list[str]) -> dict[str, Any]:
    side: dict[str, Any] = {}
    for written in items:
        item = _by_own_name(written, cells)
        found, fault = _field(item, cells) if item.field else _axis(item.value, cells)
        if fault:
            problems.append(sentence(path, fault))
        elif found in side:
            problems.append(sentence(path, f"names {found} twice on one side"))
        side[found] = item.value
    return side


def _by_own_name(item: Item, cells: Cells) -> Item:
    """The item with a part's own name in the place of an alias, where a field that it may mean holds such names."""
    meant = [path for path in (*cells.axes, *cells.paths) if not item.field or _ends(path, item.field)]
    renamed = (by_own_names(item.value, path) for path in meant)
    return next((Item(item.field, value) for value in renamed if value != item.value), item)


def _field(item: Item, cells: Cells) -> tuple[str, str]:
    """The path that a field's name stands for, or what is wrong with it."""
    name = item.field
    found = [axis for axis in cells.axes if _ends(axis, name)] or [path for path in cells.paths if _ends(path, name)]
    if name in found:
        found = [name]
    highest = min((path.count(".") for path in found), default=0)
    found = [path for path in found if path.count(".") == highest]  # a section's own field before one of its parts
    if len(found) > 1:
        return name, f"{name!r} may be {_listed(found)}: write more of its path"
    if not found:
        ends = dict.fromkeys(path.rpartition(".")[2] for path in (*cells.axes, *cells.paths))
        return name, f"the study has no field {name!r}.{did_you_mean(name, ends)} Its axes: {_listed(cells.axes)}"
    path = found[0]
    if path in cells.searched and path not in cells.axes:
        return path, f"{path} is searched among numbers: no cell has one value of it. Compare by an axis of the grid"
    values = cells.values(path)
    if not any(fits(value, item.value) for value in values):
        return path, f"no trial of the study has {path} = {show(item.value)}. There are: {_listed(values)}. {_PART}"
    return path, ""


def _axis(value: Any, cells: Cells) -> tuple[str, str]:
    """The axis that has a value, or what is wrong with it."""
    found = [axis for axis, values in cells.axes.items() if any(fits(each, value) for each in values)]
    if len(found) == 1:
        return found[0], ""
    if found:
        fields = " or ".join(f"{axis.rpartition('.')[2]}={value}" for axis in found)
        return str(value), f"{show(value)} is a value of several axes: write {fields}"
    known = dict.fromkeys(_word(each) for values in cells.axes.values() for each in values)
    near = did_you_mean(value, known)
    spelled = "; ".join(f"{axis}: {_listed(values)}" for axis, values in cells.axes.items()) or "the study has no axes"
    return str(value), f"no axis of the study has the value {show(value)}.{near} Axes: {spelled}. {_PART}"


def _pair_problems(meant: Comparison, path: str, cells: Cells) -> Iterator[str]:
    """Why the two sides' cells cannot be put into pairs."""
    left, right = (cells.chosen(side, meant.at) for side in (meant.left, meant.right))
    for rows in (left, right):
        if not rows:
            yield sentence(path, f"the study has no cell of {'one' if left or right else 'either'} side: {meant.text}")
            return
    if meant.left == meant.right:
        yield sentence(path, "compares a side with itself")
        return
    keyed = [{_key_of(row, meant.same, cells) for row in rows} for rows in (left, right)]
    for rows, keys in zip((left, right), keyed, strict=True):
        if len(keys) < len(rows):
            open_axes = [axis for axis in cells.grid if not {*cells.fields(axis)} <= {*meant.same}]
            paths = [path for axis in open_axes for path in (cells.fields(axis) if axis == ROWS else (axis,))]
            varied = [path for path in paths if len({key(cells.value(row, path)) for row in rows}) > 1]
            rule = f"several cells of one side differ in {_listed(varied)} alone: name it on both sides or behind 'at'"
            yield sentence(path, rule)
            return
    if not keyed[0] & keyed[1]:
        yield sentence(path, "no cell of the one side agrees with one of the other in all other axes")
    ball = BALL_OF.get(meant.metric)
    if ball and any(ball not in row.perturbation.balls for row in (*left, *right)):
        yield sentence(path, f"{meant.metric} needs {ball} among perturbation.balls")


def _key_of(row: TrialConfig, paths: Sequence[str], cells: Cells) -> tuple[str, ...]:
    return tuple(key(cells.value(row, path)) for path in paths)


def _ends(path: str, name: str) -> bool:
    return path == name or path.endswith(f".{name}")


def _overlap(paths: Sequence[str], others: Sequence[str]) -> bool:
    """Whether any of these paths leads to a part of any of those, or the other way round."""
    return any(
        f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.") for one in paths for other in others
    )


def _word(value: Any) -> str:
    return str(value.get("name", value)) if isinstance(value, Mapping) else str(value)


def _listed(values: Iterator[Any] | Sequence[Any] | Mapping[str, Any]) -> str:
    words = [_word(value) for value in values]
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more or "none"
