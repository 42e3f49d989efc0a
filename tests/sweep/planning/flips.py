"""Every field of every config with two allowed values, found by reflection: a new part or field needs no word here."""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
import typing
from collections.abc import Iterator
from typing import Any

from engine import NETS, usual_model, usual_unit
from memsweep import registry
from memsweep.config.core.arguments import Arguments
from memsweep.config.core.build import config_from
from memsweep.config.core.reflect import hints, keys, registered_kind, value_of
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.chain import predecessor
from memsweep.config.schema.training import (
    GroupConfig,
    GroupsConfig,
    ParameterGroupConfig,
    TrainingConfig,
    Turn,
)
from memsweep.config.schema.trial import (
    METRIC,
    ChainConfig,
    PerturbationConfig,
    TrialConfig,
)
from memsweep.errors import MemsweepError

BELOW_THEIR_NAMES = [name for name in registry.names("measure") if not registry.get("measure", name).is_flat]
"""Measures whose fields stand below their names; those of flat ones are fields of the section."""
HELD = GroupsConfig(
    recurrent=GroupConfig(factor=0.0, weight_decay=0.0), input=GroupConfig(factor=0.0, weight_decay=0.0)
)
JUDGED = "copying_bits"  # a task with a metric that has levels
METRICS = tuple(registry.get("task", JUDGED)(registry.get("task", JUDGED).Config()).metric_levels())
FACTORIES = (f"{NETS}/torch_rnn.py:gru", f"{NETS}/torch_rnn.py:lstm")
Path = tuple[str, ...]
Pair = tuple[TrialConfig, TrialConfig]


def part(kind: str, name: str, **fields: Any) -> Any:
    if kind == "model":
        return usual_model(name, **fields)
    if kind == "unit":
        return usual_unit(name, **fields)
    return registry.get(kind, name).Config(**fields)


def bases(data: str) -> list[TrialConfig]:
    """Trials that together name every registered part and hold every section.

    Args:
        data: a folder with the files of the tasks that read some.
    """
    training = TrainingConfig(
        seeds=2, steps=20, batch_size=16, validation_size=32, validate_every=10, checkpoint_every=3
    )
    perturbation = PerturbationConfig(starts=1, ascent_steps=2, test_size=32)
    rest = {"training": training, "perturbation": perturbation}
    task, model = part("task", "linear_functional", horizon=12), part("model", "diagonal_rnn", width=3)
    chain = ChainConfig(along="model.width", first=1.0, earlier=(2, 4))
    turn = Turn(until=5, learning_rate=0.1, weight_decay=0.1, clip=0.1, amplitude_penalty=0.1, margin_penalty=0.1)
    turned = dataclasses.replace(training, steps=50, validate_every=5, until=20, turns=(turn,))
    found = [
        TrialConfig(task=task, model=model, **rest | {"training": turned})
    ]  # the first: it alone has turns to flip
    found += [TrialConfig(task=task, model=model, **rest), TrialConfig(task=task, model=model, chain=chain, **rest)]
    measuring = dataclasses.replace(
        perturbation,
        asked_measures=tuple(part("measure", name) for name in BELOW_THEIR_NAMES),
    )
    found.append(TrialConfig(task=task, model=model, **rest | {"perturbation": measuring}))
    patterns = ParameterGroupConfig(parameters=("*", "**"), weight_decay=0.1, learning_rate=0.1)  # both fit every name
    grouped = dataclasses.replace(training, parameter_groups=(patterns,))
    found.append(TrialConfig(task=task, model=model, **rest | {"training": grouped}))
    judged = dataclasses.replace(perturbation, reference=METRIC, test_size=4096)  # more than any metric's levels need
    found.append(TrialConfig(task=part("task", JUDGED), model=model, **rest | {"perturbation": judged}))
    carrying = part("model", "exp_rnn", width=4)
    where = {"folder": data, "file": f"{data}/text.txt"}
    for name in registry.names("task"):
        source = registry.get("task", name)
        fields = {field: place for field, place in where.items() if field in source.Config.__dataclass_fields__}
        reader = carrying if source.carries_states else model
        found.append(TrialConfig(task=part("task", name, **fields), model=reader, **rest))
    for name in registry.names("model"):
        found.append(TrialConfig(task=task, model=part("model", name), **rest))
    for name in registry.names("parameterization"):
        given = part("model", "diagonal_rnn", parameterization=part("parameterization", name))
        found.append(TrialConfig(task=task, model=given, **rest))
    for name in registry.names("unit"):
        stack = part("model", "residual_stack", unit=part("unit", name))
        held = rest | {"training": dataclasses.replace(training, groups=HELD)}  # some units refuse to be trained
        tried = [TrialConfig(task=task, model=stack, **sections) for sections in (rest, held)]
        found.append(next(trial for trial in tried if not list(registry.get("unit", name).problems(trial))))
    return found


def classes(root: type = TrialConfig) -> set[type]:
    """Every config dataclass that a trial can hold: sections, registered Configs, and what their types name.

    The fields of a flat measure are fields of its section.
    """
    parts = (registry.get(kind, name) for kind in registry.KINDS for name in registry.names(kind))
    waiting = [root, *(each.Config for each in parts if not getattr(each, "is_flat", False))]
    found: set[type] = set()
    while waiting:
        cls = waiting.pop()
        if cls not in found:
            found.add(cls)
            waiting += [inner for hint in hints(cls).values() for inner in _dataclasses(hint)]
    return found


def fields_of(found: set[type]) -> set[tuple[type, str]]:
    """Every field of these dataclasses that has a value of its own."""
    return {(cls, field.name) for cls in found for field in keys(cls).values() if not is_section(cls, field)}


def _dataclasses(hint: Any) -> list[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [cls for inner in typing.get_args(hint) for cls in _dataclasses(inner)]


def places(config: Any, path: Path = ()) -> Iterator[tuple[Path, Any, dataclasses.Field[Any]]]:
    """(path, owner, field) of every field that has a value of its own, at every depth; a section has only fields."""
    for key, field in keys(type(config)).items():
        here = (*path, key)
        if not is_section(config, field):
            yield here, config, field
        yield from _below(value_of(config, field), here)


def is_section(owner: Any, field: dataclasses.Field[Any]) -> bool:
    """Whether a field always holds one and the same config dataclass."""
    hint = hints(owner if isinstance(owner, type) else type(owner))[field.name]
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _below(value: Any, path: Path) -> Iterator[tuple[Path, Any, dataclasses.Field[Any]]]:
    if dataclasses.is_dataclass(value):
        yield from places(value, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _below(item, (*path, str(index)))


def candidates(owner: Any, field: dataclasses.Field[Any], words: tuple[str, ...]) -> list[Any]:
    """Other values of a field as plain data, allowed or not."""
    value = value_of(owner, field)
    kind = registered_kind(field)
    if kind is not None:
        return [name for name in registry.names(kind) if name != value.name]
    if field.metadata.get("each_registered"):
        return [["lru", "gru"], ["gru"]]
    if field.metadata.get("named"):
        return [name for name in registry.names(field.metadata["named"]) if name != value]
    found = _of_hint(hints(type(owner))[field.name], value, field, words)
    return [other for other in found if other != value or type(other) is not type(value)]


def _of_hint(hint: Any, value: Any, field: dataclasses.Field[Any], words: tuple[str, ...]) -> list[Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is bool:
        return [not value]
    if hint is int:
        near = [value + 1, value - 1, value + 2, 2 * value, value // 2] if isinstance(value, int) else []
        return [*near, 1, 2, 3, 4]
    if hint is float:
        near = [value * 0.5, value + 0.25, value * 1.5] if isinstance(value, float) else []
        return [*near, 0.5, 0.05, 0.001, 1.5, 20.0]
    if hint is str:
        return list(field.metadata.get("choices") or words)
    if hint is Arguments:
        return [{"layers": 2}]
    if origin in (typing.Union, types.UnionType):
        return [
            None,
            *(
                other
                for option in inner
                if option is not types.NoneType
                for other in _of_hint(option, value, field, words)
            ),
        ]
    if origin is tuple:
        value = value or ()  # of a field that may be left out
        items = _of_hint(inner[0], value[0] if value else None, field, words)
        whole = [list(value[:-1]), list(value[::-1]), [*value, *items[:1]], *([other, *value[1:]] for other in items)]
        return [other for other in whole if tuple(other) != value]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return []  # of a section that may be there: its fields are flipped one by one
    raise AssertionError(
        f"no other value is known for a field of the type {hint}: teach tests/sweep/planning/flips.py one"
    )


def flipped(
    base: TrialConfig, path: Path, owner: Any, field: dataclasses.Field[Any], texts: tuple[str, ...], in_company: bool
) -> Pair | None:
    """Two allowed trials that differ in one field alone; where its other values need company, both keep it.

    With company there is much more to try: ask all bases without it first.

    Args:
        base: a trial that has the field.
        path, owner, field: as ``places`` gives them.
        texts: to try where any text is allowed, beside the dotted paths of the trial's fields.
        in_company: whether one other field gets another value, too.
    """
    words = (*texts, *FACTORIES, *METRICS, *flatten(to_dict(base)))
    others = candidates(owner, field, words)
    if not others:
        return None  # with any company
    for changes in _companies(base, path, words) if in_company else [[]]:
        found = [_allowed(to_dict(base), changes)]
        for other in others:
            found.append(_allowed(to_dict(base), [*changes, (path, other)]))
            for one in found[:-1]:
                if one is not None and found[-1] is not None and _differ_in(one, found[-1]) == {path}:
                    return one, found[-1]
    return None


def _companies(base: TrialConfig, path: Path, words: tuple[str, ...]) -> Iterator[list[tuple[Path, Any]]]:
    """One other field with another value, those beside the flipped one first."""
    for there, owner, field in sorted(places(base), key=lambda place: place[0][:-1] != path[:-1]):
        if there != path:
            yield from ([(there, other)] for other in candidates(owner, field, words))


def _allowed(data: dict[str, Any], changes: list[tuple[Path, Any]]) -> TrialConfig | None:
    """The trial of this plain data with other values in some places; None where the checker refuses it."""
    result = copy.deepcopy(data)
    try:
        for (*parents, last), value in changes:
            node: Any = functools.reduce(_item, parents, result)
            node[int(last) if isinstance(node, list) else last] = value
        found: TrialConfig = config_from(TrialConfig, result, "a flip")
        predecessor(found)  # a chain names a field, and its values before must be allowed there
    except (MemsweepError, TypeError):  # a name stands where fields were
        return None
    return found


def _item(node: Any, key: str) -> Any:
    return node[int(key) if isinstance(node, list) else key]


def _differ_in(one: TrialConfig, two: TrialConfig) -> set[Path]:
    """The paths of the fields that differ; of a registered part that is another, its own path alone."""
    first, second = (dict(_leaves(config)) for config in (one, two))
    paths = {path for path in first.keys() | second.keys() if first.get(path, ...) != second.get(path, ...)}
    return {path for path in paths if not any(path[:n] in paths for n in range(len(path)))}


def _leaves(config: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, field in keys(type(config)).items():
        here, value = (*path, key), value_of(config, field)
        if dataclasses.is_dataclass(value):
            if registered_kind(field) is not None:
                yield here, value.name
            yield from _leaves(value, here)
        elif isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
            yield here, len(value)
            for index, item in enumerate(value):
                yield from _leaves(item, (*here, str(index)))
        else:
            yield here, value
