"""The searched fields of a study: read from plain data to domains, checked against the grid, and written back.

A section ``search`` mixes two kinds of keys. Those that begin with a section of a trial are searched fields, written
dotted or nested; all others set up the search itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core.merge import by_path, leaves
from memsweep.config.core.problems import join, lies_in, phrase, sentence, show
from memsweep.config.core.reflect import keys
from memsweep.config.schema.axes import Axes, duplicates, root
from memsweep.config.schema.canonical import MISSING, flatten, plain_at, to_dict
from memsweep.config.schema.chain import CHAIN
from memsweep.config.schema.search import (
    CHOICE,
    INT,
    KINDS,
    LOG_INT,
    LOG_UNIFORM,
    Domain,
    Search,
    is_finite,
    same,
)
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import did_you_mean

SECTIONS = tuple(keys(TrialConfig))
WHEN = "when"
FORM = (
    "{uniform: [low, high]}, {log_uniform: [low, high]}, {int: [low, high]}, {log_int: [low, high]} or {choice: [...]}"
)
_WORDS = (*KINDS, WHEN)
_KEPT = {
    "training.until": "is set by the scheduler",
    "training.turns": "is set by the scheduler",
    "training.checkpoint_every": "cannot change a trial's numbers",
    "training.seeds": "counts the seeds, over which a suggestion is judged",
    "training.first_seed": "chooses the seeds, and a search over seeds would find the luckiest",
    "training.data_seed": "chooses the data, and a search over seeds would find the luckiest",
}

Space = Mapping[str, Domain]


def split_fields(section: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of a section ``search`` that are searched fields, and the others; both as they were written."""
    fields: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in section.items():
        side = fields if isinstance(key, str) and key.split(".")[0] in SECTIONS else settings
        side[key] = value
    return fields, settings


def flatten_fields(fields: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Searched fields with nested mappings turned into dotted paths; domains are left as written."""
    return by_path(_domains(fields, ""), "search", problems)


def _domains(fields: Mapping[Any, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        here = join(path, key)
        inner = list(value.values()) if isinstance(value, Mapping) else []
        if any(isinstance(one, Mapping) for one in inner) and not any(word in value for word in _WORDS):
            yield from _domains(value, here)
        else:
            yield here, value


def read_domain(path: str, data: Any, problems: list[str]) -> Domain | None:
    """The domain of a searched field from plain data, ``{log_uniform: [1e-4, 1e-1], when: {task.kernel: exp}}``.

    Returns:
        None where it is wrong, with the reasons added to ``problems``.
    """
    at = f"search.{path}"
    if not _is_form(data, at, problems):
        return None
    before = len(problems)
    problems += _strange_words(data, at)
    when = _when(data.get(WHEN), f"{at}.{WHEN}", problems)
    kinds = [key for key in data if key in KINDS]
    if len(kinds) != 1:
        problems.append(sentence(at, f"must be one of {FORM}", " and ".join(kinds) or f"{WHEN} alone"))
        return None
    (kind,) = kinds
    values = data[kind]
    problems += (_choice_problems if kind == CHOICE else _interval_problems)(f"{at}.{kind}", kind, values)
    if len(problems) > before:
        return None
    if kind == CHOICE:
        return Domain(CHOICE, values=tuple(values), when=when)
    return Domain(kind, float(values[0]), float(values[1]), when=when)


def _is_form(data: Any, at: str, problems: list[str]) -> bool:
    """Whether plain data has the form of a domain at all; if not, the reason is added to ``problems``."""
    if isinstance(data, Mapping) and any(word in data for word in _WORDS):
        return True
    near = did_you_mean(next(iter(data)), KINDS) if isinstance(data, Mapping) and data else ""
    got = f"{show(data)} ({near.strip().replace('Did', 'did')})" if near else show(data)
    problems.append(sentence(at, f"must be one of {FORM}", got))
    return False


def _strange_words(data: Mapping[Any, Any], at: str) -> Iterator[str]:
    for key in data:
        if key not in _WORDS:
            rule = f"no such word.{did_you_mean(key, _WORDS)} A domain is {FORM}, and may have a condition, {WHEN}"
            yield sentence(join(at, key), rule)


def domain_to_plain(domain: Domain) -> dict[str, Any]:
    """A domain in the form of a study file; ``read_domain`` reads it back, exactly."""
    plain: dict[str, Any] = {domain.kind: list(domain.ends)}
    if domain.when:
        plain[WHEN] = {path: list(values) for path, values in domain.when.items()}
    return plain


def _choice_problems(at: str, kind: str, values: Any) -> Iterator[str]:
    if not isinstance(values, list | tuple):
        yield sentence(at, "must be a list of the values to choose from: [...]", show(values))
    elif not values:
        yield sentence(at, "is empty. Give it at least one value, or leave the field out of the search")
    else:
        if twice := duplicates(values):
            yield sentence(at, f"names a value twice: {', '.join(twice)}. Name each once")
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                yield sentence(at, "must be finite where it is a number", show(value))


def _interval_problems(at: str, kind: str, values: Any) -> Iterator[str]:
    whole = kind in (INT, LOG_INT)
    pair = isinstance(values, list | tuple) and len(values) == 2 and all(map(is_finite, values))
    if not pair or (whole and not all(type(value) is int for value in values)):
        yield sentence(at, f"must be two {'whole' if whole else 'finite'} numbers, [low, high]", show(values))
        return
    low, high = values
    if whole and max(abs(low), abs(high)) > 2**53:
        yield sentence(at, "must lie between -2**53 and 2**53", show(values))
    elif low >= high:
        yield sentence(at, "must have its low end below its high end: [low, high]", show(values))
    elif not math.isfinite(float(high) - float(low)):
        yield sentence(at, "is wider than the largest number. Make it narrower", show(values))
    elif kind in (LOG_UNIFORM, LOG_INT) and low <= 0:
        rule = f"must begin above 0, because logarithms do. Or take {kind.removeprefix('log_')}"
        yield sentence(at, rule, show(values))


def _when(data: Any, at: str, problems: list[str]) -> dict[str, tuple[Any, ...]]:
    if data is None:
        return {}
    if not isinstance(data, Mapping) or not data:
        rule = "must say where the field is searched: {path: value} or {path: [values]}"
        problems.append(sentence(at, rule, show(data)))
        return {}
    when = {str(path): tuple(value) if isinstance(value, list | tuple) else (value,) for path, value in data.items()}
    for path in [path for path, values in when.items() if not values]:
        rule = "is an empty list, which nothing fits. Give it a value, or leave it out"
        problems.append(sentence(join(at, path), rule))
    return when


def order(space: Space) -> list[str]:
    """The searched fields, each after those that its condition names; fields in a circle are left out."""
    waiting, placed = list(space), list[str]()
    while ready := [path for path in waiting if all(other not in waiting for other in space[path].when)]:
        placed += ready
        waiting = [path for path in waiting if path not in ready]
    return placed


def domain_problems(search: Search, axes: Axes, cells: Sequence[TrialConfig]) -> Iterator[str]:
    """Searched fields and conditions that the grid and its valid cells exclude; one sentence each."""
    space = search.space
    for path, domain in space.items():
        for leaf in set_paths({path: domain}):
            yield from _field_problems(f"search.{path}", leaf, axes, named="" if leaf == path else f"{leaf} ")
    if circle := [path for path in space if path not in order(space)]:
        yield sentence(
            "search", f"{', '.join(circle)} depend on one another in a circle. Take one condition out (when)"
        )
    for path, domain in space.items():
        for other, wanted in domain.when.items():
            at = f"search.{path}.when.{other}"
            around = [known for known in space if lies_in(known, other) or lies_in(other, known)]
            if other in space:
                yield from _never_suggested(at, space[other], wanted)
            elif around:
                yield sentence(at, f"lies in the searched field {around[0]} or around it. Name {around[0]} itself")
            elif cells:
                yield from _never_there(at, other, wanted, cells)


def set_paths(space: Space) -> list[str]:
    """Paths of the fields that suggestions set, those inside of groups spelled out."""
    values = ((path, value) for path, domain in space.items() for value in domain.values or (None,))
    return list(dict.fromkeys(leaf for path, value in values for leaf in fields_of(path, value)))


def fields_of(path: str, value: Any) -> list[str]:
    """The paths of the fields that a value at a path sets; ``path.name`` for the bare name of a section's part."""
    return [
        f"{leaf}.name" if isinstance(inner, str) and "." not in leaf else leaf for leaf, inner in leaves(value, path)
    ]


def overlap(one: str, other: str) -> bool:
    """Whether one path lies in the other; the name of a whole section leaves its fields as they are."""
    one, other = (path.removesuffix(".name") if path.count(".") > 1 else path for path in (one, other))
    short, long = sorted((one, other), key=len)
    return one == other or (long.startswith(f"{short}.") and "." in short)


def _field_problems(at: str, leaf: str, axes: Axes, named: str) -> Iterator[str]:
    if lies_in(leaf, CHAIN):
        yield sentence(at, "a chain is an order of trials and cannot be searched. Take it out of the search")
    elif leaf in _KEPT:
        yield sentence(at, f"{leaf} {_KEPT[leaf]}. Take it out of the search")
    for axis, values in axes.items():
        if any(overlap(leaf, other) for value in values for other in fields_of(root(axis), value)):
            yield sentence(at, f"{named}is set by the axis {axis} of the grid, too. Take it out of one of them")


def _never_suggested(at: str, domain: Domain, wanted: Sequence[Any]) -> Iterator[str]:
    ends = domain.values  # a condition may name a part with fields by its bare name
    if never := [one for one in wanted if not domain.contains(one) and not any(same(end, one) for end in ends)]:
        yield sentence(at, f"is never {phrase(map(show, never))}: it is searched, {allowed_values(domain)}")


def allowed_values(domain: Domain) -> str:
    """The values of a domain in words: ``from 1 to 8``, ``one of "tanh", "relu"``."""
    words = [show(end) for end in domain.ends]
    return f"from {words[0]} to {words[-1]}" if domain.is_numeric else f"one of {phrase(words)}"


def _never_there(at: str, path: str, wanted: Sequence[Any], cells: Sequence[TrialConfig]) -> Iterator[str]:
    values = {show(value): value for cell in cells if (value := plain_at(cell, path)) is not MISSING}
    if not values:
        known = flatten(to_dict(cells[0]))
        yield sentence(at, f"names no field of any cell.{did_you_mean(path, known)} It is a path such as model.width")
    elif never := [value for value in wanted if not any(same(one, value) for one in values.values())]:
        yield sentence(at, f"is never {phrase(map(show, never))} in this study: it is {phrase(values)}")
