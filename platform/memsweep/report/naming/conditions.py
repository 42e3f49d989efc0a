"""The conditions of a study: found by the fields that vary, and named for readers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.schema.canonical import to_dict
from memsweep.models.module.config import ModuleConfig
from memsweep.report.naming.numbers import MOST_NAMED, joined, show
from memsweep.report.read.fields import fields_of, short_names

KERNEL, PARAMETERIZATION = "task.kernel", "model.parameterization"
RATE = "training.learning_rate"
ALWAYS = ("task", KERNEL, "model", PARAMETERIZATION)
"""Columns that name a condition in every study whose configs have the field, whether they differ or not."""
SIZES = {"width": "model.width", "horizon": "task.horizon"}
"""The axes of a slope: they tell no conditions apart."""
SEARCHED = "searched"
"""The value of a column of ALWAYS whose field was searched: the winners of all sizes are one condition."""

_NEVER = (
    *SIZES.values(),
    "chain.earlier",  # follows from the width, or from another axis that the chain runs along
    "training.checkpoint_every",  # cannot change a number
)
_SEEDS = ("training.seeds", "training.first_seed")
_CHECKED = "perturbation.stronger_every"
"""The seeds whose search is checked by a stronger one: it moves no radius, and `decide` checks few of many seeds."""
OF_A_SEARCH = ("training.until", "training.turns", *_SEEDS, "training.data_seed")
"""Fields that tell no conditions of a search apart, besides the searched ones."""

_Fields = Mapping[str, Any]
"""Dotted path -> value, of one trial's config."""

_OF_A_MODULE = fields_of({"model": to_dict(ModuleConfig(factory=""))})
"""The defaults of a user's module. Most of its fields say how to call the factory: a reader needs the others."""


@dataclass(frozen=True)
class Grouping:
    """How the trials of a study fall into conditions.

    Attributes:
        conditions: identity -> {column: value}, None where a trial's config lacks the field.
        columns: the columns: dotted paths of config fields; a part's name stands at the part's own path.
        coupled: fields that change only together with width or horizon, whose effect is part of the slopes.
        fixed: the fields of task and model that have one value throughout; of a user's module, without the defaults.
    """

    conditions: Mapping[str, Mapping[str, Any]]
    columns: tuple[str, ...]
    coupled: tuple[str, ...]
    fixed: Mapping[str, Any]

    def throughout(self) -> dict[str, str]:
        """``fixed`` as a reader has it: name -> value."""
        names = short_names(self.fixed)
        return {names[path]: show(value) for path, value in self.fixed.items()}

    def members(self) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
        """Every condition with the identities of its trials, in the order of the trials."""
        together: dict[tuple[Any, ...], list[str]] = {}
        for identity, values in self.conditions.items():
            together.setdefault(tuple(values.values()), []).append(identity)
        for identities in together.values():
            yield self.conditions[identities[0]], identities


Cell = tuple[Any, ...]
"""What trials share whose seeds are pooled: condition, width and horizon."""


def cells_of(conditions: Mapping[str, Mapping[str, Any]], replicas: pd.DataFrame) -> dict[str, Cell]:
    """identity -> cell, of the trials in ``replicas``; ``conditions`` are those of a ``Grouping``."""
    return _cells(conditions, _sizes(replicas))


def find_grouping(
    records: Mapping[str, Mapping[str, Any]], replicas: pd.DataFrame, ignored: Collection[str] = ()
) -> Grouping:
    """Find the fields whose values tell the conditions of a study apart.

    A field becomes a column when it differs between trials of one width and horizon, or between conditions. A field
    that is tied to width or horizon (fewer steps for wide models) is no column, which would leave each condition a
    single width. Seeds are pooled, unless two trials of a condition and size have the same seed.

    Args:
        records: identity -> record; of each, its config.
        replicas: columns identity, width, horizon and seed, a row per trained seed.
        ignored: dotted paths of fields that tell nothing apart: the searched ones.
    """
    fields = {identity: fields_of(record["config"]) for identity, record in records.items()}
    sizes = _sizes(replicas)
    always = [name for name in ALWAYS if any(name in values for values in fields.values())]
    others = _others(fields.values(), always, ignored)
    told, coupled = _varied(others, always, fields, sizes)
    columns = [*always, *told]
    conditions = _conditions(columns, fields, ignored)
    for names in ((_CHECKED,), _SEEDS):  # the former alone, where that parts the seeds
        if not _share_seeds(replicas, conditions, sizes):
            break
        columns += [
            name for name in names if name not in ignored and len({each.get(name) for each in fields.values()}) > 1
        ]
        conditions = _conditions(columns, fields, ignored)
    of_parts = [name for name in others if _order(name)[0] < 2]
    return Grouping(conditions, tuple(columns), tuple(sorted(coupled)), _fixed([*always, *of_parts], fields.values()))


def _others(configs: Collection[_Fields], always: Collection[str], ignored: Iterable[str]) -> list[str]:
    """The fields besides ``always`` that may tell conditions apart: the task's, then the model's, then all others."""
    names = sorted({name for fields in configs for name in fields}.difference(always), key=_order)
    return [name for name in names if not _within(name, (*_NEVER, *_SEEDS, _CHECKED, *ignored))]


def _varied(
    names: Iterable[str], always: Iterable[str], fields: Mapping[str, _Fields], sizes: Mapping[str, tuple[Any, ...]]
) -> tuple[list[str], list[str]]:
    """The columns that the fields which differ make besides ``always``, and the fields that are tied to the size.

    Names of models are columns first, because a field is tied or not within the conditions of the columns so far.
    """
    differ = {name: values for name in names if len(values := _values(name, fields.values())) > 1}
    columns = [name for name, values in differ.items() if _names_a_model(name, values)]
    coupled: list[str] = []
    for name in [name for name in differ if name not in columns]:
        rows = {key: [values.get(column) for column in (*always, *columns)] for key, values in fields.items()}
        (coupled if _tied_to_size(name, rows, fields, sizes) else columns).append(name)
    return sorted(columns, key=_order), coupled


def _conditions(
    columns: Iterable[str], fields: Mapping[str, _Fields], ignored: Collection[str]
) -> dict[str, dict[str, Any]]:
    """identity -> {column: value}; a searched field has one value throughout."""
    return {
        identity: {name: SEARCHED if _within(name, ignored) else values.get(name) for name in columns}
        for identity, values in fields.items()
    }


def _fixed(names: Iterable[str], configs: Collection[_Fields]) -> dict[str, Any]:
    """Of these fields those that have one value throughout; of a user's module, without the defaults."""
    fixed = {name: value for name in names if (value := _common(name, configs)) is not None}
    if fixed.get("model") != "module":
        return fixed
    return {name: value for name, value in fixed.items() if name in ALWAYS or _OF_A_MODULE.get(name) != value}


def planned_replicas(configs: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The ``replicas`` that trials with these configs will have, as ``find_grouping`` needs them."""
    rows = []
    for identity, config in configs.items():
        fields, training = fields_of(config), config["training"]
        sizes = [fields.get(path) for path in SIZES.values()]
        rows += [(identity, *sizes, training["first_seed"] + seed) for seed in range(training["seeds"])]
    return pd.DataFrame(rows, columns=["identity", *SIZES, "seed"])


def group(table: pd.DataFrame, columns: Iterable[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The parts of a table with equal values in ``columns`` (nulls are equal), in order of first appearance."""
    names = [name for name in columns if name in table.columns]
    if table.empty:
        return
    for key, part in table.groupby(names, dropna=False, sort=False):
        yield {name: plain_value(value) for name, value in zip(names, key, strict=True)}, part


def plain_value(value: Any) -> Any:
    """A table's entry as a Python value: NumPy scalars unwrapped, every kind of null as None."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return value


def _order(name: str) -> tuple[int, str]:
    """The task's fields, then the model's, then all others."""
    return 0 if _within(name, ("task",)) else 1 if _within(name, ("model",)) else 2, name


def _names_a_model(name: str, values: Iterable[Any]) -> bool:
    """Whether a field of task or model has words as values, and so tells models apart whatever their sizes."""
    return _order(name)[0] < 2 and any(isinstance(value, str) for value in values)


def _within(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(path + ".") for path in paths)


def _values(name: str, configs: Iterable[_Fields]) -> set[Any]:
    """The values of a field in the configs that have it."""
    return {config[name] for config in configs if name in config}


def _common(name: str, configs: Collection[_Fields]) -> Any:
    """The value that all configs have; None where they differ."""
    values = {config.get(name) for config in configs}
    return values.pop() if len(values) == 1 else None


def _sizes(replicas: pd.DataFrame) -> dict[str, tuple[Any, ...]]:
    """identity -> (width, horizon)."""
    if replicas.empty:
        return {}
    first = replicas.drop_duplicates("identity")
    sides = [[plain_value(value) for value in first[name]] for name in SIZES]
    return dict(zip(first["identity"], zip(*sides, strict=True), strict=True))


def _tied_to_size(
    name: str,
    conditions: Mapping[str, Any],
    fields: Mapping[str, _Fields],
    sizes: Mapping[str, tuple[Any, ...]],
) -> bool:
    """Whether a field differs within a condition, but never between its trials of one width and horizon."""
    at_size: dict[Any, set[Any]] = {}
    in_condition: dict[Any, set[Any]] = {}
    for identity, values in fields.items():
        condition = tuple(conditions[identity])
        at_size.setdefault((condition, sizes.get(identity)), set()).add(values.get(name))
        in_condition.setdefault(condition, set()).add(values.get(name))
    crossed = any(len(values) > 1 for values in at_size.values())
    return not crossed and any(len(values) > 1 for values in in_condition.values())


def _cells(conditions: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, tuple[Any, ...]]) -> dict[str, Cell]:
    return {identity: (*conditions[identity].values(), *size) for identity, size in sizes.items()}


def _share_seeds(replicas: pd.DataFrame, conditions: Mapping[str, Any], sizes: Mapping[str, Any]) -> bool:
    """Whether two trials of one condition, width and horizon have a seed in common."""
    if replicas.empty:
        return False
    trials = _cells(conditions, sizes)
    keys = [(trials[identity], seed) for identity, seed in zip(replicas["identity"], replicas["seed"], strict=True)]
    return len(set(keys)) < len(keys)


BETWEEN = " · "

Condition = Mapping[str, Any]
_FAMILY = ("model", "model.activation")
_NAMES = (*_FAMILY, PARAMETERIZATION)
_BARE = (*_NAMES, "model.unit", "model.units")
"""Fields whose values need no field name beside them."""
# The fields by which people know such a model, then the rule that it learns by.
_FIRST = (
    "model.stair",
    "model.map",
    "model.initialization",
    "model.unit",
    "model.units",
    "model.layers",
    "training.rule",
)
_GROUPS, _DECAY = "training.groups", "training.weight_decay"
_PLAIN = {("model.stair", "none")}  # goes without saying: a model without gains


class Labels:
    """Names the memory (task side) and the machine (model side) of a condition, relative to one study.

    A machine is a family (the model and its activation) and a member of it (the parameterization and the rest).

    Args:
        conditions: of the whole study: column -> value, None where the part has no such field.

    Attributes:
        machine_fields: the fields besides model, activation and parameterization that names of machines say.
        following: the fields that follow from these names, which therefore do not say them.
    """

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._conditions = list({tuple(condition.values()): condition for condition in conditions}.values())
        names = [*next(iter(self._conditions), {})]
        self._task_fields = [name for name in names if name.startswith("task.") and name != KERNEL]
        fixed = [name for name in names if name.partition(".")[0] == "task" or name in _NAMES]
        others = [name for name in names if name not in fixed]
        # A field that only follows from the model, say, tells nothing apart: it is reported once, not in every label.
        self.machine_fields = self._needed(others, fixed)
        self.following = tuple(name for name in others if name not in self.machine_fields and self._has_several(name))
        self._varied = [name for name in _NAMES if self._varies(name)]
        self._names = short_names([RATE, _DECAY, *self._task_fields, *self.machine_fields, *self.following])
        self._memories: dict[tuple[Any, ...], str] = {}

    def _needed(self, fields: Sequence[str], fixed: Sequence[str]) -> list[str]:
        """The fewest fields that tell apart the conditions which agree in all others; names of a model first."""
        chosen: list[str] = []
        for name in sorted(fields, key=_readability):
            if self._varies_within(name, [*fixed, *chosen]):
                chosen.append(name)
        for name in reversed(list(chosen)):
            rest = [other for other in chosen if other != name]
            of_its_fields = any(other.startswith(f"{name}.") for other in rest)  # which say little without its name
            if not of_its_fields and not self._varies_within(name, [*fixed, *rest]):
                chosen = rest
        return sorted((name for name in fields if name in chosen), key=_rank)

    def memory(self, condition: Condition) -> str:
        """The kernel (the task where there is none), with the fields that differ between its conditions."""
        key = tuple(condition.get(name) for name in ("task", KERNEL, *self._task_fields))
        if key not in self._memories:
            self._memories[key] = self._memory(condition)
        return self._memories[key]

    def _memory(self, condition: Condition) -> str:
        kernel, task = condition.get(KERNEL), condition["task"]
        name = str(kernel or task)
        if self._varies("task", [c for c in self._conditions if c.get(KERNEL) == kernel]):
            name = ", ".join(dict.fromkeys([str(task), name]))
        shown = ", ".join(f"{self._names[f]} {show(condition[f])}" for f in self._memory_fields(condition))
        return f"{name} ({shown})" if shown else name

    def _memory_fields(self, condition: Condition) -> list[str]:
        """The fields of its task that tell a condition from others of the same task and kernel."""
        key = (condition["task"], condition.get(KERNEL))
        same = [c for c in self._conditions if (c["task"], c.get(KERNEL)) == key]
        return [name for name in self._task_fields if condition[name] is not None and self._varies(name, same)]

    def machine(self, condition: Condition) -> str:
        """The parameterization, and the other fields of model and training that the study varies."""
        parts = [self.family(condition), self._member(condition)]
        return BETWEEN.join(part for part in parts if part) or str(condition["model"])

    def _whole(self, condition: Condition) -> str:
        """``gru on parity``."""
        return f"{self.machine(condition)} on {self.memory(condition)}"

    def names(self, condition: Condition) -> tuple[str, str]:
        """``memory`` and ``machine``."""
        return self.memory(condition), self.machine(condition)

    def family(self, condition: Condition) -> str:
        """The model and its activation, as far as the study varies them; may be empty."""
        return self._parts(condition, [name for name in _FAMILY if name in self._varied])

    def member(self, condition: Condition) -> str:
        """The name of a machine within its family; never empty."""
        return self._member(condition) or self.family(condition) or str(condition["model"])

    def families(self, conditions: Iterable[Condition]) -> list[tuple[str, list[tuple[str, str]]]]:
        """The machines of these conditions by family, in order of appearance.

        Returns:
            For each family its heading, empty where it is one machine of the same name, and its machines: each as
            ``machine`` and as ``member`` names it.
        """
        members: dict[str, dict[str, str]] = {}
        for condition in conditions:
            members.setdefault(self.family(condition), {})[self.machine(condition)] = self.member(condition)
        return [("" if [*names] == [family] else family, [*names.items()]) for family, names in members.items()]

    def _member(self, condition: Condition) -> str:
        named = [PARAMETERIZATION] if PARAMETERIZATION in self._varied or not self._varied else []
        return self._parts(condition, [*named, *self.machine_fields])

    def _parts(self, condition: Condition, names: Iterable[str]) -> str:
        """``tanh · exp · stair n``: bare values of _BARE, other fields with their names."""
        said = [(name, condition[name]) for name in names if condition.get(name) is not None]
        return BETWEEN.join(
            show(value) if name in _BARE else f"{self._names[name]} {show(value)}"
            for name, value in said
            if (name, value) not in _PLAIN
        )

    def without(self, *columns: str) -> Labels:
        """Labels that do not speak of these columns: conditions that differ in them alone share a name."""
        return Labels([masked(condition, columns) for condition in self._conditions])

    def settings(self) -> dict[str, str]:
        """Memory label -> the fields of its task that its name does not say, as far as the study varies them."""
        settings = {}
        for condition in self._conditions:
            said = self._memory_fields(condition)
            others = [name for name in self._task_fields if condition[name] is not None and name not in said]
            settings[self.memory(condition)] = ", ".join(f"{self._names[f]} {show(condition[f])}" for f in others)
        return {label: fields for label, fields in settings.items() if fields}

    def also_differ(self) -> str:
        """``Conditions also differ in rule (bptt: gru; snap1: lru).``: the fields that follow from names; may be empty.

        The values are said where few names have them: of machines, of memories where these decide, or of both.
        """
        said = list[str]()
        for name in self.following:
            known = [condition for condition in self._conditions if condition[name] is not None]
            called = next((by for by in (self.machine, self.memory, self._whole) if _decides(by, name, known)), None)
            values = _by_value(name, known, called) if called is not None else {}
            parts = [f"{value}: {', '.join(names)}" for value, names in values.items()]
            few = 0 < sum(map(len, values.values())) <= MOST_NAMED
            told = f" ({'; '.join(parts)})" if few else ""
            said.append(f"{self._names[name]}{told}")
        return f"Conditions also differ in {joined(said)}." if said else ""

    def _varies(self, name: str, conditions: Sequence[Condition] | None = None) -> bool:
        rows = self._conditions if conditions is None else conditions
        return len({condition.get(name) for condition in rows}) > 1

    def _has_several(self, name: str) -> bool:
        """Whether a field differs between the conditions that have it; one of groups that is not set is a value."""
        lacking = set[Any]() if _within(name, (_GROUPS,)) else {None}
        return len({condition[name] for condition in self._conditions} - lacking) > 1

    def _varies_within(self, name: str, columns: Sequence[str]) -> bool:
        """Whether a field differs between conditions that agree in all of these columns."""
        values: dict[tuple[Any, ...], set[Any]] = {}
        for condition in self._conditions:
            values.setdefault(tuple(condition[column] for column in columns), set()).add(condition[name])
        return any(len(different) > 1 for different in values.values())


def _decides(name_of: Callable[[Condition], str], field: str, conditions: Sequence[Condition]) -> bool:
    """Whether conditions of one name have one value of a field."""
    values: dict[str, set[Any]] = {}
    for condition in conditions:
        values.setdefault(name_of(condition), set()).add(condition[field])
    return all(len(different) == 1 for different in values.values())


def _by_value(
    field: str, conditions: Sequence[Condition], name_of: Callable[[Condition], str]
) -> dict[str, dict[str, None]]:
    """Each value of a field -> the names that have it, in order."""
    found: dict[str, dict[str, None]] = {}
    for condition in conditions:
        found.setdefault(show(condition[field]), {})[name_of(condition)] = None
    return found


def masked(condition: Condition, columns: Collection[str]) -> dict[str, Any]:
    """A condition that says nothing in these columns."""
    return {name: None if name in columns else value for name, value in condition.items()}


def _readability(name: str) -> tuple[int, bool]:
    """Smaller for fields that say more to a reader."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), not name.startswith("model.")


def _rank(name: str) -> int:
    """The model, then the rule that it learns by, then the rest: each in the order of the columns."""
    return 0 if name.startswith("model.") else 1 if name == "training.rule" else 2
