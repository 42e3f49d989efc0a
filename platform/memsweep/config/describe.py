"""The text of ``memsweep describe`` and ``memsweep list``."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.core.arguments import Arguments
from memsweep.config.core.problems import show
from memsweep.config.core.reflect import default, hints, key_of, keys, nested_config, parts, registered_kind
from memsweep.config.core.values import NAMES
from memsweep.config.load import study_files
from memsweep.config.schema.search import ConfirmConfig, SearchConfig
from memsweep.config.schema.study import ResourcesConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import FORM
from memsweep.config.search.sections import CONFIRM, SEARCH
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

_SEARCH_NOTE = (
    "How settings are searched. Keys that begin with a section of a trial are searched fields, each with a domain: "
    f"{FORM}; a domain may have a condition, when: {{path: value or [values]}}. All other keys:"
)
_INDENT = " " * 6
_LIMITS = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}


def listing(kind: str, workspace: Path) -> str:
    """One line for each part or study of a kind: its name and what it is, in a sentence."""
    if kind == STUDY:
        files = {name: study_files.find(name, workspace) for name in study_files.names(workspace)}
        texts = {n: study_files.description(file.read_text("utf-8", errors="replace")) for n, file in files.items()}
    else:
        texts = {name: _paragraph(registry.get(kind, name)) for name in registry.names(kind)}
    width = max(map(len, texts), default=0)
    return "\n".join(f"{name:<{width}}  {next(iter(text.splitlines()), '')}".rstrip() for name, text in texts.items())


def describe(name: str, workspace: Path) -> str:
    """The meaning of a name, and its fields with types, defaults and limits.

    Args:
        name: a task, model, parameterization, unit, rule, study, or section of a study file.
        workspace: folder with search_spaces/.

    Raises:
        ConfigError: nothing has this name; the message lists what can be described.
    """
    sections = _sections()
    texts = [_describe_part(kind, known) for kind, known in parts() if known == name]
    if name in sections:
        note = textwrap.fill(_SEARCH_NOTE if name == SEARCH else "", _columns())
        texts.append(_describe_config(f"section {name}", sections[name], note))
    if name in study_files.names(workspace):
        texts.append(_describe_study(name, workspace))
    if texts:
        return "\n\n".join(texts)
    groups = {plural: registry.names(kind) for plural, kind in LISTED.items() if kind != STUDY}
    groups |= {"studies": study_files.names(workspace), "sections": list(sections)}
    everything = [known for names in groups.values() for known in names]
    there = "; ".join(f"{group}: {one_of(names)}" for group, names in groups.items())
    raise ConfigError(
        [f"nothing is named {name!r}.{did_you_mean(name, everything)} There are {there}."], "the command line"
    )


def _sections() -> dict[str, type]:
    of_trial = {key: nested_config(hints(TrialConfig)[field.name]) for key, field in keys(TrialConfig).items()}
    of_study = {"resources": ResourcesConfig, SEARCH: SearchConfig, CONFIRM: ConfirmConfig}
    return {key: config for key, config in of_trial.items() if config is not None} | of_study


def _describe_part(kind: str, name: str) -> str:
    part = registry.get(kind, name)
    return _describe_config(f"{kind} {name}", part.Config, _paragraph(part))


def _describe_config(title: str, config: type, meaning: str = "", notes: Sequence[str] = ()) -> str:
    lines = [title, meaning or _paragraph(config), *notes, ""]
    rows = list(_fields(config, ""))
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


def _fields(config: type, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """(path, type, default, meaning with limits) of each field, those of nested dataclasses after their parent."""
    for field in dataclasses.fields(config):
        path, hint = prefix + key_of(field), hints(config)[field.name]
        below = nested_config(hint)
        kind = registered_kind(field)
        allowed = _limits_text(field, kind or field.metadata.get("named"))
        meaning = field.metadata.get("doc") or ""
        yield path, kind or _type(hint), _default(field, below), f"{meaning} [{allowed}]" if allowed else meaning
        if below is not None:
            yield from _fields(below, f"{path}.")


def _type(hint: Any) -> str:
    if hint in NAMES:
        return str(hint.__name__)
    if hint is Arguments:
        return "mapping"
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
    return f"= {value if isinstance(value, str) else show(dict(value) if isinstance(value, Arguments) else value)}"


def _limits_text(field: dataclasses.Field[Any], kind: str | None) -> str:
    if kind is not None:
        return one_of(registry.names(kind))
    choices = field.metadata.get("choices")
    limits = [
        f"{sign} {field.metadata[name]}" for name, sign in _LIMITS.items() if field.metadata.get(name) is not None
    ]
    return ", ".join(choices) if choices is not None else ", ".join(limits)


def _describe_study(name: str, workspace: Path) -> str:
    path = study_files.find(name, workspace)
    text = study_files.description(path.read_text("utf-8", errors="replace"))
    return "\n".join(filter(None, [f"{STUDY} {name}", text, f"{path}", f"Its trials: memsweep plan {name}"]))


def _paragraph(documented: type) -> str:
    return inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0]
