"""``memsweep describe`` and ``memsweep list``: what a study may name, as data and as text."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.core.arguments import Arguments
from memsweep.config.core.problems import lies_in, show
from memsweep.config.core.reflect import default, hints, keys, nested_config, parts, registered_kind
from memsweep.config.core.values import NAMES
from memsweep.config.load import study_files
from memsweep.documents.keys.parts import DescribedItem, FieldItem, ListItem
from memsweep.errors import ConfigError, did_you_mean, one_of
from memsweep.reference.sections import MEANINGS, classes

STUDY, SECTION, FIELD = "study", "section", "field"
LISTED = {
    "tasks": registry.TASK,
    "models": registry.MODEL,
    "parameterizations": registry.PARAMETERIZATION,
    "units": registry.UNIT,
    "rules": registry.RULE,
    "measures": registry.MEASURE,
    "studies": STUDY,
}
"""The plural on the command line -> the kind."""

_INDENT = " " * 6
_LIMITS = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}


def listing(kind: str, workspace: Path) -> list[ListItem]:
    """Each part or study of a kind: its name and what it is, in a sentence."""
    if kind == STUDY:
        files = study_files.files(workspace)
        texts = {n: study_files.description(file.read_text("utf-8", errors="replace")) for n, file in files.items()}
        rooms = {name: study_files.room(file) for name, file in files.items()}
    else:
        texts = {name: inspect.cleandoc(registry.get(kind, name).__doc__ or "") for name in registry.names(kind)}
        rooms = dict.fromkeys(texts)
    return [
        {"name": name, "room": rooms[name], "description": next(iter(text.splitlines()), "")}
        for name, text in texts.items()
    ]


def listing_text(items: Sequence[ListItem], columns: int | None) -> str:
    """One line for each item below its room, or in so many columns, the description broken between words."""
    width = max((len(item["name"]) for item in items), default=0)
    lines = []
    for room, inside in itertools.groupby(items, lambda item: item["room"]):
        lines += [f"{room}:"] if room else []
        for item in inside:
            line = f"{'  ' if room else ''}{item['name']:<{width}}  {_unmarked(item['description'])}".rstrip()
            further = " " * (width + (4 if room else 2))
            lines += [
                line
                if columns is None
                else textwrap.fill(line, columns, subsequent_indent=further, break_on_hyphens=False)
            ]
    return "\n".join(lines)


def describe(name: str, workspace: Path) -> list[DescribedItem]:
    """The meanings of a name, each with its fields, their types, defaults and limits.

    Args:
        name: a task, model, parameterization, unit, rule, study, or section of a study file.
        workspace: folder with search_spaces/.

    Raises:
        ConfigError: nothing has this name; the message lists what can be described.
    """
    kinds = [kind for kind, known in parts() if known == name]
    found = [_described_part(kind, registry.get(kind, name)) for kind in kinds if kind != registry.ANALYSIS]
    found += _described_section(name)
    # behind the section that it is an analysis of, which is what people write
    found += [_described_part(kind, registry.get(kind, name)) for kind in kinds if kind == registry.ANALYSIS]
    if name in study_files.names(workspace):
        found.append(_described_study(name, workspace))
    if found:
        return found
    groups = {plural: registry.names(kind) for plural, kind in LISTED.items() if kind != STUDY}
    groups |= {"studies": study_files.names(workspace), "sections": sorted({*MEANINGS, *classes()})}
    everything = [known for names in groups.values() for known in names]
    there = "; ".join(f"{group}: {one_of(names)}" for group, names in groups.items())
    near = study_files.of_file(name, workspace) or did_you_mean(name, everything)
    raise ConfigError([f"nothing is named {name!r}.{near or f' There are {there}.'}"], "the command line")


def description_text(name: str, described: Sequence[DescribedItem]) -> str:
    """The text of what ``describe`` found, for a terminal."""
    return "\n\n".join(_text(name, item) for item in described)


def _described_part(kind: str, part: Any) -> DescribedItem:
    item = _described(kind, part.Config, paragraph(part))
    # its own: those of a base class are of another map
    if kind == registry.PARAMETERIZATION and "closed_forms" in vars(part):
        forms = part.closed_forms()
        item["notes"] = [
            f"Gradient over weight |f'(w)| / f(w)^2 of the rate f: {forms[0]}. With the discretization discrete, where "
            f"1 - eigenvalue takes the place of f: {forms[1]}."
        ]
    return item


def _described_section(name: str) -> list[DescribedItem]:
    """A section, a word that messages name, or the field at a dotted path below a section."""
    section, _, path = name.partition(".")
    config = classes().get(section)
    if not path and (section in MEANINGS or config is not None):
        meaning = MEANINGS[section] if section in MEANINGS or config is None else paragraph(config)
        return [_described(SECTION, config, meaning)]
    if config is None:
        return []
    item = _described(FIELD, config, f"Of the section {section}.")
    item["fields"] = [each for each in item["fields"] if lies_in(each["path"], path)]
    return [item] if item["fields"] else []


def _described(kind: str, config: type | None, meaning: str, file: Path | None = None) -> DescribedItem:
    return {
        "kind": kind,
        "meaning": meaning,
        "file": None if file is None else str(file),
        "fields": [] if config is None else list(_fields(config, "")),
        "tensors": [],
        "refusals": [],
        "notes": [],
    }


def _text(name: str, item: DescribedItem) -> str:
    paragraphs = [*_unmarked(item["meaning"]).splitlines(), *item["notes"]]
    lines = [f"{item['kind']} {name}", *map(wrapped, paragraphs)]
    if item["kind"] == STUDY:
        return "\n".join([*lines, f"{item['file']}", f"Its trials: memsweep plan {name}"])
    rows = [(field["path"], field["type"], _default_text(field), _meaning_text(field)) for field in item["fields"]]
    if not rows:
        return "\n".join([*lines, *([] if item["kind"] == SECTION else ["", "It has no fields."])])
    lines.append("")
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for *cells, text in rows:
        head = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        lines += [
            wrapped(f"  {head}".rstrip(), _INDENT),
            wrapped(f"{_INDENT}{text}", _INDENT),
        ]
    return "\n".join(lines)


def _unmarked(text: str) -> str:
    """A docstring's text with quotes for its marks of code: a terminal shows marks as they are."""
    return text.replace("``", "'")


def _columns() -> int:
    return min(max(shutil.get_terminal_size().columns, 60), 110)


def wrapped(text: str, indent: str = "") -> str:
    """A text in the columns of the terminal, its later lines indented; a long path stays whole."""
    return textwrap.fill(text, _columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _fields(config: type, prefix: str) -> Iterator[FieldItem]:
    """The fields of a config, those of nested dataclasses after their parent."""
    for key, field in keys(config).items():
        path, hint, value = prefix + key, hints(config)[field.name], default(field)
        below, metadata = nested_config(config, field), field.metadata
        kind = registered_kind(field)
        each = metadata.get("each_registered")
        names = kind or each or metadata.get("named")
        choices = registry.names(names) if names else metadata.get("choices")
        yield {
            "path": path,
            "type": kind or (f"list of {each}s" if each else _type(hint)),
            "required": value is dataclasses.MISSING,
            "default": None if value is dataclasses.MISSING else plain_default(value, kind, below),
            "depends_on": metadata.get("depends_on") if value is None else None,
            "choices": None if choices is None else list(choices),
            "limits": {name: metadata[name] for name in _LIMITS if metadata.get(name) is not None},
            "meaning": metadata.get("doc") or "",
        }
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


def plain_default(value: Any, kind: str | None, below: type | None) -> Any:
    """A default as a study would write it; those of nested fields stand with these fields."""
    if kind is not None:
        return value.name
    if below is not None:
        return None
    return dict(value) if isinstance(value, Arguments) else value


def _default_text(field: FieldItem) -> str:
    value = field["default"]
    if field["required"]:
        return "required"
    if field["depends_on"]:
        return f"= as {field['depends_on']} says"
    if value is None and "fields" in field["type"]:
        return "= null" if "null" in field["type"] else ""
    return f"= {value if isinstance(value, str) else show(value)}"


def _meaning_text(field: FieldItem) -> str:
    limits = [f"{_LIMITS[name]} {limit}" for name, limit in field["limits"].items()]
    choices = field["choices"]
    allowed = ", ".join(limits) if choices is None else ", ".join(choices)
    return f"{field['meaning']} [{allowed}]" if allowed else field["meaning"]


def _described_study(name: str, workspace: Path) -> DescribedItem:
    path = study_files.find(name, workspace)
    return _described(STUDY, None, study_files.description(path.read_text("utf-8", errors="replace")), path)


def paragraph(documented: type) -> str:
    """The first paragraph of what a class says of itself, on one line."""
    return " ".join(inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0].split())
