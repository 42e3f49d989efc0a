"""The JSON Schema of the study file, for editors: made of the configuration dataclasses and what is registered.

It knows keys, types, limits, choices and meanings. Rules about several fields are those of ``memsweep plan`` alone.
It is the same on every machine: a default that is a path here, such as the data folder, is left to the meaning.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from memsweep import registry
from memsweep.config.claims.sections import COLUMNS, VERDICTS
from memsweep.config.core.arguments import Arguments
from memsweep.config.core.reflect import default, hints, keys, nested_config, registered_kind
from memsweep.config.grid.budget import BUDGET_KEY, BUDGET_MEANS, PARAMETERS
from memsweep.config.schema.axes import ROWS
from memsweep.config.schema.chain import CHAIN
from memsweep.config.schema.claims import DIRECTIONS
from memsweep.config.schema.protocols import PROTOCOLS
from memsweep.config.schema.search import CHOICE, INT, KINDS, LOG_INT
from memsweep.config.schema.study import KEEP
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import WHEN
from memsweep.config.search.sections import CONFIRM, SEARCH
from memsweep.documents.schema import DIALECT
from memsweep.reference.describe import paragraph, plain_default
from memsweep.reference.sections import MEANINGS, classes

Schema = dict[str, Any]

_LIMITS = {"at_least": "minimum", "above": "exclusiveMinimum", "at_most": "maximum", "below": "exclusiveMaximum"}
_SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string"}
_REFERENCE = {"$ref": "#/definitions/reference"}
_NULL: Schema = {"type": "null"}


def study_schema() -> Schema:
    """The JSON Schema (draft-07) of a study file, with the parts that are registered now."""
    return _Study().schema()


class _Study:
    """Makes the schema; ``definitions`` hold each section and part once, and the grid refers to their fields."""

    def __init__(self) -> None:
        self.definitions: Schema = {
            "reference": {"description": "the value of another field, ${path}, or ??? (to be given)", "type": "string",
                          "pattern": r"^(\?\?\?|.*\$\{.*\}.*)$"},
            "domain": _domain(),
        }  # fmt: skip

    def schema(self) -> Schema:
        sections = {key: self._class(key, config) for key, config in classes().items()}
        for kind in (registry.TASK, registry.MODEL):
            sections[kind] = self._part(kind)
        sections |= {key: {"anyOf": [sections[key], _NULL]} for key in (CHAIN, CONFIRM)}
        paths = self._paths()
        sections[SEARCH] = self._search(paths)
        trial = {key: sections[key] for key in keys(TrialConfig)}
        sections |= {
            "name": {"type": "string", "minLength": 1},
            "protocol": {"enum": list(PROTOCOLS)},
            "keep": {"enum": list(KEEP)},
            "claims": _claims(),
            "grid": _grid(paths, {key: each for key, each in trial.items() if key != CHAIN}),
            "defaults": {"type": "array", "description": "files of config groups that Hydra composes; _self_ last"},
        }
        described = {
            key: {"description": MEANINGS[key], "allOf": [each]} if key in MEANINGS else each
            for key, each in sections.items()
        }
        return {
            "$schema": DIALECT,
            "title": "a study of memsweep",
            "description": "Made by 'memsweep schema > study.schema.json', with the tasks and models of this folder.",
            "type": "object",
            "properties": described,
            "additionalProperties": False,
            "definitions": self.definitions,
        }

    def _class(self, name: str, config: type) -> Schema:
        """A dataclass as a definition of this name."""
        if name not in self.definitions:
            self.definitions[name] = {}
            properties = {key: self._field(config, field, name) for key, field in keys(config).items()}
            self.definitions[name] = {
                "type": "object",
                "description": paragraph(config),
                "properties": properties,
                "additionalProperties": False,
            }
        return {"$ref": f"#/definitions/{name}"}

    def _part(self, kind: str) -> Schema:
        """A registered part: its bare name, or a mapping whose fields follow from ``name``."""
        if kind not in self.definitions:
            names, cases, known = registry.names(kind), list[Schema](), dict[str, None]()
            self.definitions[kind] = {}
            for name in names:
                part = registry.get(kind, name)
                reference = self._class(f"{kind}.{name}", part.Config)
                definition = self.definitions[f"{kind}.{name}"]
                definition["description"] = paragraph(part)
                definition["properties"] = {"name": {"const": name}, **definition["properties"]}
                if kind == registry.MODEL and "width" in definition["properties"]:
                    definition["properties"][BUDGET_KEY] = {
                        "description": BUDGET_MEANS,
                        "type": "integer",
                        "minimum": 1,
                    }
                known |= dict.fromkeys(definition["properties"])
                cases.append({"if": _named({"const": name}), "then": reference})
            nameless = {"if": {"not": {"required": ["name"]}}, "then": {"propertyNames": {"enum": list(known)}}}
            body = {"type": "object", "properties": {"name": {"enum": names}}, "allOf": [*cases, nameless]}
            self.definitions[kind] = {
                "if": {"type": "object"},
                "then": body,
                "else": {"anyOf": [{"enum": names}, _REFERENCE]},
            }
        return {"$ref": f"#/definitions/{kind}"}

    def _field(self, config: type, field: dataclasses.Field[Any], owner: str) -> Schema:
        kind, hint, value = registered_kind(field), hints(config)[field.name], default(field)
        below = nested_config(config, field)
        inner = self._part(kind) if kind is not None else self._type(hint, field, f"{owner}.{field.name}")
        options = inner["anyOf"] if set(inner) == {"anyOf"} else [inner]
        free = inner == {"type": "string"} or kind is not None
        options = options if free else [*options, _REFERENCE]
        made: Schema = {"description": field.metadata.get("doc") or "", "anyOf": options}
        of_machine = isinstance(value, str) and field.default_factory is not dataclasses.MISSING
        if value is dataclasses.MISSING or of_machine:
            return made
        if (plain := plain_default(value, kind, below)) is not None:
            made["default"] = list(plain) if isinstance(plain, tuple) else plain
        return made

    def _type(self, hint: Any, field: dataclasses.Field[Any], name: str) -> Schema:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hint is types.NoneType:
            return _NULL
        if hint is Arguments:
            return {"type": "object"}
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return self._class(name, hint)
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self._type(arg, field, name) for arg in args]}
        if origin is not tuple:
            return _scalar(hint, field.metadata)
        if args[-1] is Ellipsis:
            kind = field.metadata.get("each_registered")
            return {"type": "array", "items": self._part(kind) if kind else self._type(args[0], field, name)}
        items = [self._type(arg, field, name) for arg in args]
        return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}

    def _paths(self) -> dict[str, Schema]:
        """Dotted path -> schema of the field, of everything that a grid or a search may set."""
        found: dict[str, list[Schema]] = {}
        for key, config in classes().items():
            if key in keys(TrialConfig) and key != CHAIN:
                self._walk(key, key, config, found)
        for kind in (registry.TASK, registry.MODEL):
            self._walk_parts(kind, kind, found)
        found[PARAMETERS] = [{"type": "integer", "minimum": 1}]
        merged = {path: each[0] if len(each) == 1 else {"anyOf": each} for path, each in found.items()}
        return {key: {"$ref": f"#/definitions/{key}"} for key in (registry.TASK, registry.MODEL)} | merged

    def _walk(self, prefix: str, definition: str, config: type, found: dict[str, list[Schema]]) -> None:
        for key, field in keys(config).items():
            path, schema = f"{prefix}.{key}", {"$ref": f"#/definitions/{definition}/properties/{key}"}
            known = found.setdefault(path, [])
            if all(_resolved(self.definitions, each) != _resolved(self.definitions, schema) for each in known):
                known.append(schema)
            if (below := nested_config(config, field)) is not None:
                self._walk(path, f"{definition}.{field.name}", below, found)
            if (kind := registered_kind(field)) is not None:
                self._walk_parts(path, kind, found)

    def _walk_parts(self, path: str, kind: str, found: dict[str, list[Schema]]) -> None:
        found[f"{path}.name"] = [{"enum": registry.names(kind)}]
        for name in registry.names(kind):
            self._walk(path, f"{kind}.{name}", registry.get(kind, name).Config, found)

    def _search(self, paths: Mapping[str, Schema]) -> Schema:
        settings = dict(self.definitions[SEARCH]["properties"])
        for key, item in (("objective", {"type": "string"}), ("mode", {"enum": ["min", "max"]})):
            settings[key] = {**settings[key], "anyOf": [item, *settings[key]["anyOf"]]}
        names = self.definitions[f"{SEARCH}.scheduler"]["properties"]["name"]["anyOf"]
        settings["scheduler"] = {**settings["scheduler"], "anyOf": [*names, *settings["scheduler"]["anyOf"]]}
        domain = {"$ref": "#/definitions/domain"}
        fields = {path: _group(path, paths, domain) for path in paths if "." in path}
        nested = {key: {"type": "object"} for key in keys(TrialConfig) if key != CHAIN}
        self.definitions[SEARCH]["properties"] = {**settings, **fields, **nested}
        return {"anyOf": [{"$ref": f"#/definitions/{SEARCH}"}, _NULL]}


def _scalar(hint: Any, metadata: Mapping[str, Any]) -> Schema:
    choices, kind = metadata.get("choices"), metadata.get("named")
    if hint is str and kind:
        choices = registry.names(kind)
    if hint is str and choices is not None:
        return {"enum": list(choices)}
    limits = {word: metadata[key] for key, word in _LIMITS.items() if metadata.get(key) is not None}
    return {"type": _SCALARS[hint], **(limits if hint in (int, float) else {})}


def _named(schema: Schema) -> Schema:
    return {"properties": {"name": schema}, "required": ["name"]}


def _resolved(definitions: Schema, schema: Schema) -> Any:
    """The schema to which a reference to a field of a definition leads."""
    _, _, name, _, key = schema["$ref"].split("/")
    return definitions[name]["properties"][key]


def _group(path: str, paths: Mapping[str, Schema], schema: Schema) -> Schema:
    """The schema of what stands at a path; where other paths lie below it, a mapping of these as well."""
    if any(other.startswith(f"{path}.") for other in paths):
        return {"anyOf": [schema, {"type": "object"}]}
    return schema


def _grid(paths: Mapping[str, Schema], sections: Mapping[str, Schema]) -> Schema:
    def axis(path: str, items: Schema) -> Schema:
        values = {"anyOf": [{"type": "array", "minItems": 1, "items": items}, _REFERENCE]}
        return _group(path, paths, values)

    axes = {path: axis(path, items) for path, items in paths.items()}
    axes |= {key: axis(key, each) for key, each in sections.items() if key not in axes}
    row = {"type": "object", "properties": dict(sections), "additionalProperties": False}
    axes[ROWS] = {"description": MEANINGS[ROWS], "type": "array", "minItems": 1, "items": row}
    return {"type": ["object", "null"], "properties": axes, "additionalProperties": False}


def _domain() -> Schema:
    def ends(kind: str) -> Schema:
        number = {"type": "integer" if kind in (INT, LOG_INT) else "number"}
        return {"type": "array", "items": number, "minItems": 2, "maxItems": 2}

    kinds = {kind: {"type": "array", "minItems": 1} if kind == CHOICE else ends(kind) for kind in KINDS}
    return {
        "description": "what a searched field may be: an interval or a choice; it may have a condition, when",
        "type": "object",
        "properties": {**kinds, WHEN: {"description": MEANINGS[WHEN], "type": "object", "minProperties": 1}},
        "oneOf": [{"required": [kind]} for kind in KINDS],
        "additionalProperties": False,
    }


def _claims() -> Schema:
    side = {"type": "object", "minProperties": 1}
    comparison = {
        "type": "object",
        "properties": {
            "metric": {"type": "string"},
            "direction": {"enum": list(DIRECTIONS)},
            **dict.fromkeys(("left", "right", "at"), side),
        },
        "required": ["metric", "direction", "left", "right"],
        "additionalProperties": False,
    }
    where = {"type": "object", "propertyNames": {"enum": list(COLUMNS)}}
    row = {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "where": where},
        "required": ["name"],
        "additionalProperties": {"enum": list(VERDICTS)},
    }
    compare = {"type": "array", "minItems": 1, "items": comparison}
    table = {"source": {"type": "string", "minLength": 1}, "rows": {"type": "array", "minItems": 1, "items": row}}
    whole = {"type": "object", "properties": {**table, "compare": compare}, "additionalProperties": False}
    return {"anyOf": [compare, whole, _NULL]}
