"""Which fields of a trial a study may search: by their paths, and by their types."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Any

from memsweep.config.core.problems import sentence
from memsweep.config.core.reflect import hints, keys, registered_kind, shape
from memsweep.config.schema.axes import Axes, root
from memsweep.config.schema.chain import CHAIN
from memsweep.config.schema.search import Domain
from memsweep.config.schema.trial import TrialConfig

_HOME = "search"
_KEPT = {
    "training.until": "is set by the scheduler",
    "training.turns": "is set by the scheduler",
    "training.seeds": "counts the replicas, over which a suggestion is judged",
    "training.first_seed": "chooses the replicas, and a search over seeds would find the luckiest",
    "training.data_seed": "chooses the data, and a search over seeds would find the luckiest",
}

Space = Mapping[str, Domain]


def path_problems(space: Space, axes: Axes) -> Iterator[str]:
    """Searched fields that cannot be searched, or that an axis of the grid sets; one sentence each."""
    for path, domain in space.items():
        at = f"search.{path}"
        for leaf in dict.fromkeys(leaf for value in domain.values or (None,) for leaf in leaves(path, value)):
            if leaf == CHAIN or leaf.startswith(f"{CHAIN}."):
                yield sentence(at, "a chain is an order of trials and cannot be searched. Take it out of the search")
            elif leaf in _KEPT:
                yield sentence(at, f"{leaf} {_KEPT[leaf]}. Take it out of the search")
            elif _is_cosmetic(leaf):
                yield sentence(at, f"{leaf} cannot change a trial's numbers. Take it out of the search")
            for axis, values in axes.items():
                if any(meet(leaf, other) for value in values for other in leaves(root(axis), value)):
                    rule = f"is set by the axis {axis} of the grid, too. Take it out of one of them"
                    yield sentence(at, rule if leaf == path else f"{leaf} {rule}")


def wrong_kind(path: str, domain: Domain, data: Mapping[str, Any]) -> str | None:
    """Why a numeric domain does not fit the type of its field; None where it does, and where there is no such field."""
    if not domain.is_numeric or (kinds := _kinds(path, data)) is None:
        return None
    if (domain.is_whole and int in kinds) or (not domain.is_whole and float in kinds):
        return None
    log = "log_" if domain.kind.startswith("log") else ""
    if int in kinds:
        rule = f"{domain.kind} gives fractions, and the field takes whole numbers. Take {'log_int' if log else 'int'}"
    elif float in kinds:
        rule = f"{domain.kind} gives whole numbers alone, and the field takes fractions. Take {log}uniform"
    else:
        rule = f"{domain.kind} gives numbers, and the field takes none. Take {{choice: [...]}}"
    return sentence(f"{_HOME}.{path}", rule)


def _kinds(path: str, data: Any) -> tuple[Any, ...] | None:
    """The types that a field takes, by its path in plain data of a trial; None where there is no such field."""
    cls: type | None = TrialConfig
    *parents, last = path.split(".")
    for key in parents:
        field = keys(cls).get(key) if cls is not None else None
        data = data.get(key, {}) if isinstance(data, Mapping) else {}
        cls = shape(cls, field, data) if cls is not None and field is not None else None
    field = keys(cls).get(last) if cls is not None else None
    if cls is None or field is None:
        return None
    if registered_kind(field) is not None:
        return ()
    hint = hints(cls)[field.name]
    return (hint, *(() if typing.get_origin(hint) is tuple else typing.get_args(hint)))


def _is_cosmetic(path: str) -> bool:
    cls: type | None = TrialConfig
    for key in path.split("."):
        field = keys(cls).get(key) if cls is not None else None
        if field is None or cls is None:
            return False
        if field.metadata.get("cosmetic"):
            return True
        cls = shape(cls, field, {})
    return False


def leaves(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(f"{path}.{key}".lstrip("."), inner)
    else:
        yield f"{path}.name" if isinstance(value, str) and "." not in path else path


def meet(one: str, other: str) -> bool:
    """Whether one path lies in the other; the name of a whole section leaves its fields as they are."""
    one, other = (path.removesuffix(".name") if path.count(".") > 1 else path for path in (one, other))
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return long.startswith(f"{short}.") and "." in short
