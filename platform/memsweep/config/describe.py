"""The text of ``memsweep describe`` and ``memsweep list``."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.core.problems import show
from memsweep.config.core.reflect import default, hints, key_of, nested_config, parts, registered_kind
from memsweep.config.core.values import NAMES
from memsweep.config.load import study_files
from memsweep.config.schema.axes import ROWS
from memsweep.config.schema.search import (
    ASHA,
    CELL,
    HYPERBAND,
    MEDIAN,
    PBT,
    ConfirmConfig,
    Domain,
    SchedulerConfig,
    Search,
    SearchConfig,
)
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import FORM
from memsweep.config.search.sections import CONFIRM, SEARCH, modes
from memsweep.errors import ConfigError, did_you_mean, one_of

STUDY = "study"
LISTED = {
    "tasks": registry.TASK,
    "models": registry.MODEL,
    "parameterizations": registry.PARAMETERIZATION,
    "units": registry.UNIT,
    "rules": registry.RULE,
    "studies": STUDY,
}
"""The plural on the command line -> the kind."""

_NOTES = {
    SEARCH: (
        "How settings are searched. Keys that begin with a section of a trial are searched fields, each with a domain: "
        f"{FORM}; a domain may have a condition, when: {{path: value or [values]}}. The key first lists suggestions to "
        "try first. All other keys:"
    )
}
"""Section -> text in place of the docstring of its class."""
_INDENT = " " * 6
_LIMITS = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}


def listing(kind: str, workspace: Path) -> str:
    """One line for each part or study of a kind: its name and what it is, in a sentence."""
    if kind == STUDY:
        rows = [(name, _study_headline(workspace, name)) for name in study_files.names(workspace)]
    else:
        rows = [(name, _headline(registry.get(kind, name))) for name in registry.names(kind)]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}  {headline}".rstrip() for name, headline in rows)


def describe(name: str, workspace: Path) -> str:
    """The meaning of a name, and its fields with types, defaults and limits.

    Args:
        name: a task, model, parameterization, unit, rule, study, or section of a study file.
        workspace: folder with search_spaces/.

    Raises:
        ConfigError: nothing has this name; the message lists what can be described.
    """
    texts = [_describe_part(kind, known) for kind, known in parts() if known == _own_name(kind, name)]
    texts += [
        _describe_config(f"section {name}", config, textwrap.fill(_NOTES.get(name, ""), _columns()))
        for known, config in _sections().items()
        if known == name
    ]
    if name in study_files.names(workspace):
        try:
            texts.append(_describe_study(name, workspace))
        except ConfigError as error:
            if not texts:
                raise
            # a study that lacks its data must not hide the task of the same name, which says where they go
            texts.append(f"{STUDY} {name}\nIt cannot run as it is: {' '.join(error.problems)}")
    if texts:
        return "\n\n".join(texts)
    groups = {plural: registry.names(kind) for plural, kind in LISTED.items() if kind != STUDY}
    groups |= {"studies": study_files.names(workspace), "sections": list(_sections())}
    everything = [known for names in groups.values() for known in names]
    there = "; ".join(f"{group}: {one_of(names)}" for group, names in groups.items())
    raise ConfigError(
        [f"nothing is named {name!r}.{did_you_mean(name, everything)} There are {there}."], "the command line"
    )


def _own_name(kind: str, name: str) -> str:
    return registry.rule_name(name) if kind == registry.RULE else name


def _sections() -> dict[str, type]:
    found = {key_of(field): nested_config(hints(TrialConfig)[field.name]) for field in dataclasses.fields(TrialConfig)}
    whole = {"resources": ResourcesConfig, SEARCH: SearchConfig, CONFIRM: ConfirmConfig}
    return {key: config for key, config in found.items() if config is not None} | whole


def _describe_part(kind: str, name: str) -> str:
    part = registry.get(kind, name)
    notes = part.notes() if hasattr(part, "notes") else []
    lines = [line for note in notes for line in textwrap.wrap(note, _columns())]
    return _describe_config(f"{kind} {name}", part.Config, _paragraph(part), lines)


def _describe_config(title: str, config: type, meaning: str = "", notes: Sequence[str] = ()) -> str:
    lines = [title, meaning or _paragraph(config), *notes, ""]
    rows = list(_rows(config, ""))
    if not rows:
        return "\n".join([*lines, "It has no fields."])
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for *cells, text in rows:
        head = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        lines += [
            f"  {head}".rstrip(),
            *textwrap.wrap(text, _columns(), initial_indent=_INDENT, subsequent_indent=_INDENT),
        ]
    return "\n".join(lines)


def _columns() -> int:
    return min(max(shutil.get_terminal_size().columns, 60), 110)


def _rows(config: type, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """(path, type, default, meaning with limits) of each field, those of nested dataclasses after their parent."""
    for field in dataclasses.fields(config):
        path, hint = prefix + key_of(field), hints(config)[field.name]
        below = nested_config(hint)
        kind = registered_kind(field)
        allowed = _allowed(field, kind or field.metadata.get("named"))
        meaning = field.metadata.get("doc") or ""
        yield path, kind or _type(hint), _default(field, below), f"{meaning} [{allowed}]" if allowed else meaning
        if below is not None:
            yield from _rows(below, f"{path}.")


def _type(hint: Any) -> str:
    if hint in NAMES:
        return str(hint.__name__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return f"list of {_type(args[0])}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if option is types.NoneType else _type(option) for option in args)
    return "fields"


def _default(field: dataclasses.Field[Any], below: type | None) -> str:
    value = default(field)
    if value is dataclasses.MISSING:
        return "required"
    if below is not None and value is not None:
        return ""
    if registered_kind(field) is not None:
        return f"= {value.name}"
    if value is None and field.metadata.get("depends_on"):
        return f"= as {field.metadata['depends_on']} says"
    return f"= {show(value)}" if not isinstance(value, str) else f"= {value}"


def _allowed(field: dataclasses.Field[Any], kind: str | None) -> str:
    if kind is not None:
        return one_of(registry.names(kind))
    choices = field.metadata.get("choices")
    limits = [
        f"{sign} {field.metadata[name]}" for name, sign in _LIMITS.items() if field.metadata.get(name) is not None
    ]
    return ", ".join(choices) if choices is not None else ", ".join(limits)


def _describe_study(name: str, workspace: Path) -> str:
    from memsweep.config.load.study import load_study

    path = study_files.find(name, workspace)
    sweep: SweepConfig = load_study(name, (), workspace)
    rows = count_of(len(sweep.rows), "row" if sweep.search is None else "cell")
    axes = [line for axis, values in sweep.grid.items() for line in _axis_lines(axis, values)]
    searched = _search_lines(sweep.search, sweep.confirm) if sweep.search is not None else []
    return "\n".join(
        [f"{STUDY} {name}", *([sweep.description] if sweep.description else []), f"{path}", "", rows, *axes, *searched]
    )


def _search_lines(search: Search, confirm: ConfirmConfig | None) -> list[str]:
    """The searched fields, the search and the confirmation, one line each."""
    settings = search.settings
    goals = [f"{mode} {name}" for name, mode in zip(settings.objective, modes(search), strict=True)]
    where = "in each cell" if settings.scope == CELL else "for all cells together"
    suggestions = count_of(settings.trials, "suggestion")
    lines = [f"search by {settings.algorithm}, seed {settings.seed}: {suggestions} {where}, {settings.batch} at once"]
    lines += [f"  {path:<28}  {_spelled(domain)}" for path, domain in search.space.items()]
    lines += [f"  {'objective':<28}  {', '.join(goals)}"]
    lines += [f"  {'scheduler':<28}  {_scheduled(settings.scheduler)}"]
    if search.first:
        lines.append(f"  {'first':<28}  {count_of(len(search.first), 'suggestion')} of the study's own")
    lines += [f"  {'warm start':<28}  from the study {settings.warm_start}"] if settings.warm_start else []
    if confirm is not None:
        best = "best" if confirm.top == 1 else f"{confirm.top} best"
        lines.append(f"confirm the {best} of each cell on {count_of(confirm.seeds, 'fresh seed')} and fresh data")
    return lines


def _spelled(domain: Domain) -> str:
    values = f"{domain.kind} [{', '.join(map(_word, domain.ends))}]"
    when = [f"{path} is {' or '.join(map(_word, wanted))}" for path, wanted in domain.when.items()]
    return f"{values}, when {' and '.join(when)}" if when else values


def _scheduled(scheduler: SchedulerConfig) -> str:
    """The scheduler with the fields that it uses; its unit is the optimizer step."""
    used = {
        ASHA: f"grace {scheduler.grace} steps, reduction {scheduler.reduction:g}",
        HYPERBAND: f"grace {scheduler.grace} steps, reduction {scheduler.reduction:g}",
        MEDIAN: f"grace {scheduler.grace} steps, interval {scheduler.interval} steps",
        PBT: f"interval {scheduler.interval} steps, quantile {scheduler.quantile:g}, resample {scheduler.resample:g}",
    }
    return f"{scheduler.name}: {used[scheduler.name]}" if scheduler.name in used else scheduler.name


def count_of(count: int, word: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count:,} {word}{'s' if count != 1 else ''}"


def _axis_lines(axis: str, values: Sequence[Any]) -> list[str]:
    if axis != ROWS:
        return [f"  {axis:<28}  {', '.join(_word(value) for value in values)}"]
    return [f"  {axis}", *(f"    {', '.join(_settings(row))}" for row in values)]


def _settings(row: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """``model.name=rnn``, ``training.alpha=0.9``: a whole row, spelled out."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{path}{key}.")
        else:
            yield f"{path}{key}={_word(value)}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else show(value)


def _study_headline(workspace: Path, name: str) -> str:
    text = study_files.find(name, workspace).read_text("utf-8", errors="replace")
    return study_files.description(text).partition("\n")[0]


def _headline(part: type) -> str:
    return _paragraph(part).partition("\n")[0]


def _paragraph(documented: type) -> str:
    return inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0]
