"""Trials of one pack that differ in all that a pack may mix, with every measurement that they allow.

Nothing here names a measurement, a table or a model: what is registered or declared tomorrow comes along by itself.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from memsweep import registry
from memsweep.config.core.reflect import arguments_of, hints, keys, value_of
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.trial import PACKED_TRAINING, TrialResult, program, run_pack

FEW_BITS, PUSHED, SOME = (3, 9), (0.3,), 2
"""Values of optional numbers: tuples of bits, tuples of radii, and counts."""
WIDTHS = (3, 2, 5, 12)
"""Two buckets, in one of which models of several widths share a padded one."""


def measured_in_every_way(config: TrialConfig) -> TrialConfig:
    """The trial with every optional measurement of its weights and of its training that its parts do not refuse."""
    for section in ("perturbation", "training"):
        for name, wanted in _options(getattr(config, section)):
            config = _accepted(config, section, name, wanted)
    return config


def _options(part: Any) -> Iterator[tuple[str, Any]]:
    """Optional measurements of a section: what is None or an empty choice by default, with a value."""
    kinds = hints(type(part))
    for each in keys(type(part)).values():
        inner = [kind for kind in typing.get_args(kinds[each.name]) if kind is not type(None)]
        optional = type(None) in typing.get_args(kinds[each.name]) and each.metadata.get("added")
        if optional and dataclasses.is_dataclass(inner[0]):
            made = inner[0]()  # type: ignore[operator]
            yield each.name, dataclasses.replace(made, **dict(_options(made)))  # type: ignore[type-var]
        elif optional:
            number = typing.get_args(inner[0])[0] if typing.get_args(inner[0]) else None
            yield each.name, SOME if number is None else FEW_BITS if number is int else PUSHED
        elif each.metadata.get("choices") and typing.get_origin(kinds[each.name]) is tuple:
            yield each.name, each.metadata["choices"]


def _changed(part: Any, name: str, value: Any) -> Any:
    """A section with a field set, whichever measure's it is."""
    cls = type(part)
    values = {field.name: value_of(part, field) for field in keys(cls).values()} | {name: value}
    return cls(**arguments_of(cls, values))


def _accepted(config: TrialConfig, section: str, name: str, wanted: Any) -> TrialConfig:
    """With a setting, of a tuple with each choice that is not refused."""
    for value in [(one,) for one in wanted] if isinstance(wanted, tuple) else [wanted]:
        part = getattr(config, section)
        before = value_of(part, keys(type(part))[name])
        more = tuple(dict.fromkeys((*before, *value))) if isinstance(wanted, tuple) else value
        with_it = dataclasses.replace(config, **{section: _changed(part, name, more)})
        of_code = registry.get(registry.MODEL, config.model.name).problems_of_code(with_it)
        if not [*_problems(with_it), *of_code]:
            config = with_it
    return config


def _problems(config: TrialConfig) -> list[str]:
    try:
        trial_from_dict(to_dict(config))
    except ConfigError as refused:
        return [str(refused)]
    return []


def mixed_pack(config: TrialConfig, longest: int | None = None) -> list[TrialConfig]:
    """Trials that may run in one pack with a trial, and differ in every field in which they may.

    Args:
        config: of a model that packs.
        longest: number of trials; None: as many as show every value of every field.
    """
    ways: dict[tuple[str, str], Sequence[Any]] = {
        ("training", "seeds"): (2, 1, 3),
        ("training", "first_seed"): (0, 5),
        ("training", "learning_rate"): (0.01, 0.03),
    }
    assert {name for _, name in ways} == PACKED_TRAINING
    model, task = (registry.get(kind, part.name) for kind, part in _parts(config))
    ways |= {("model", name): _values(config.model, name) for name in sorted(model.traits(config.model).pack_fields)}
    if config.trains_in_closed_form:
        ways |= {("task", name): _values(config.task, name) for name in sorted(task.pack_fields)}
    count = longest or max(map(len, ways.values()))
    made = [_with(config, {way: values[place % len(values)] for way, values in ways.items()}) for place in range(count)]
    assert len({program(each) for each in made}) == 1
    for section, name in ways:
        values = {repr(getattr(getattr(each, section), name)) for each in made}
        assert len(values) > 1, f"{section}.{name} is the same in all trials of the pack"
    return made


def _parts(config: TrialConfig) -> tuple[tuple[str, Any], ...]:
    return (registry.MODEL, config.model), (registry.TASK, config.task)


def _values(part: Any, name: str) -> Sequence[Any]:
    """Values that a field of a part may have, its own first."""
    if name == "width":
        return WIDTHS
    own, about = getattr(part, name), type(part).__dataclass_fields__[name].metadata
    if kind := about["registered"]:
        others = [registry.get(kind, each).Config() for each in registry.names(kind)]
        return [own, *(each for each in others if each != own)]
    if about["choices"]:
        return [own, *(each for each in about["choices"] if each != own)]
    return [own, 1.5 if own is None else 0.8 * own]


def _with(config: TrialConfig, values: dict[tuple[str, str], Any]) -> TrialConfig:
    """The trial with these values; a number that its sibling does not have stays out."""
    for section, given in itertools.groupby(values.items(), key=lambda item: item[0][0]):
        part, wanted = getattr(config, section), {name: value for (_, name), value in given}
        about = type(part).__dataclass_fields__
        plain = {name: value for name, value in wanted.items() if not about[name].metadata["depends_on"]}
        dependent = dict.fromkeys(wanted.keys() - plain.keys())
        made = dataclasses.replace(part, **plain | dependent)
        for name in dependent:
            if (default := getattr(made, name)) is not None:
                made = dataclasses.replace(made, **{name: 0.7 * default})
        config = dataclasses.replace(config, **{section: made})
    return config


def differences(first: TrialResult, second: TrialResult) -> list[str]:
    """In which tables, numbers of the summary and weights two results of one trial differ by a bit."""
    assert first.tables.keys() == second.tables.keys()
    found = [name for name, table in first.tables.items() if not table.equals(second.tables[name])]
    numbers = pd.DataFrame([first.summary]), pd.DataFrame([second.summary])
    found += [] if numbers[0].equals(numbers[1]) else ["summary"]
    for seed, weights in first.weights.items():
        found += [f"weights: {name}" for name, value in weights.items() if not value.equal(second.weights[seed][name])]
    return found


def against_each_alone(
    configs: Sequence[TrialConfig], places: Iterable[int] | None = None
) -> tuple[list[TrialResult], dict[int, list[str]]]:
    """The results of a pack, and what of a trial is another when it runs alone, by the place of such a trial.

    Args:
        configs: trials of one program.
        places: of the trials that run alone; None: all of them.
    """
    together, found = run_pack(configs), {}
    for place in range(len(configs)) if places is None else places:
        if differing := differences(together[place], run_pack([configs[place]])[0]):
            found[place] = differing
    return together, found
