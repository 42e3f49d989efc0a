"""Conditions of searched fields (``when``): their order, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core.problems import sentence, show
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.search import STUDY, Domain, Search, same
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.suggestion import plain_at
from memsweep.errors import did_you_mean

_MOST = 5

Space = Mapping[str, Domain]


def order(space: Space) -> list[str]:
    """The searched fields, each after those that its condition names; fields in a circle are left out."""
    waiting, placed = list(space), list[str]()
    while ready := [path for path in waiting if all(other not in waiting for other in space[path].when)]:
        placed += ready
        waiting = [path for path in waiting if path not in ready]
    return placed


def condition_problems(search: Search, cells: Sequence[TrialConfig]) -> Iterator[str]:
    """One sentence for everything that is wrong with the conditions.

    Args:
        search: as it was read.
        cells: the valid rows of the study's grid.
    """
    space = search.space
    if circle := [path for path in space if path not in order(space)]:
        rule = f"{', '.join(circle)} depend on one another in a circle. Take one condition out (when)"
        yield sentence("search", rule)
    for path, domain in space.items():
        for other, wanted in domain.when.items():
            at = f"search.{path}.when.{other}"
            if other in space:
                yield from _never_suggested(at, space[other], wanted)
            elif around := [known for known in space if _overlap(known, other)]:
                yield sentence(at, f"lies in the searched field {around[0]} or around it. Name {around[0]} itself")
            elif cells:
                yield from _never_there(at, other, wanted, cells, search.settings.scope)


def _overlap(one: str, other: str) -> bool:
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _never_suggested(at: str, domain: Domain, wanted: Sequence[Any]) -> Iterator[str]:
    never = [value for value in wanted if not any(same(v, value) for v in domain.values) and not domain.contains(value)]
    if never:
        words = [show(end) for end in domain.ends]
        allowed = f"from {words[0]} to {words[-1]}" if domain.is_numeric else f"one of {_listed(words)}"
        yield sentence(at, f"is never {_listed(map(show, never))}: it is searched, {allowed}")


def _never_there(at: str, path: str, wanted: Sequence[Any], cells: Sequence[TrialConfig], scope: str) -> Iterator[str]:
    found: dict[str, Any] = {}
    for cell in cells:
        try:
            value = plain_at(cell, path)
        except KeyError:
            continue
        found[show(value)] = value
    if not found:
        known = flatten(to_dict(cells[0]))
        yield sentence(at, f"names no field of any cell.{did_you_mean(path, known)} It is a path such as model.width")
    elif never := [value for value in wanted if not any(same(one, value) for one in found.values())]:
        yield sentence(at, f"is never {_listed(map(show, never))} in this study: it is {_listed(found)}")
    elif scope == STUDY and len(found) > 1:
        rule = "differs between the cells, and with scope: study a suggestion is the same in all of them"
        yield sentence(at, f"{rule}. Take scope: cell, or the condition out")


def _listed(words: Any) -> str:
    spelled = list(words)
    more = len(spelled) - _MOST
    return ", ".join([*spelled[:_MOST], *([f"and {more} more"] if more > 0 else [])])
