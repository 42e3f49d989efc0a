"""The JSON Schema of a verb's document, made of its type in ``memsweep.documents.keys``."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from memsweep.documents import FORMAT
from memsweep.documents.keys import type_of
from memsweep.documents.keys.shared import ErrorItem

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The dialect that editors know best."""

_SCALARS: Mapping[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
    float: {"$ref": "#/definitions/number"},
    types.NoneType: {"type": "null"},
    Any: {},
}
_NUMBER = {
    "description": "a number; null where it does not exist; the texts inf and -inf for infinite ones",
    "anyOf": [{"type": "number"}, {"enum": ["inf", "-inf"]}, {"type": "null"}],
}


def document_schema(verb: str) -> dict[str, Any]:
    """The JSON Schema of what ``memsweep VERB --json`` prints: the verb's own keys, or an error in their place."""
    definitions: dict[str, Any] = {"number": _NUMBER}
    common = {
        "format": {"const": FORMAT, "description": "grows when a key changes its name or meaning"},
        "memsweep": {"type": "string", "description": "version"},
        "verb": {"const": verb},
        "exit_code": {"type": "integer", "description": "of the command"},
    }
    keys = {**common, **_keys(type_of(verb), definitions)}
    failed = {**common, "error": _of(ErrorItem, definitions)}
    return {
        "$schema": DIALECT,
        "title": f"memsweep {verb} --json",
        "anyOf": [_closed(keys), _closed(failed)],
        "definitions": definitions,
    }


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _keys(document: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(document, include_extras=True)
    return {key: _of(hint, definitions) for key, hint in hints.items()}


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; those of documents' parts go to ``definitions``."""
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        inner = _of(args[0], definitions)
        # draft-07 passes over what stands beside a $ref
        inner = {"allOf": [inner]} if "$ref" in inner else inner
        return {**inner, "description": args[1]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(arg, definitions) for arg in args]}
    if origin is list:
        return {"type": "array", "items": _of(args[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(args[1], definitions)}
    if not typing.is_typeddict(hint):
        raise TypeError(f"a document's key has the type {hint}, which JSON does not have")
    if hint.__name__ not in definitions:
        definitions[hint.__name__] = {}  # a part that holds itself refers to it
        meaning = inspect.cleandoc(hint.__doc__ or "")
        definitions[hint.__name__] = {"description": meaning, **_closed(_keys(hint, definitions))}
    return {"$ref": f"#/definitions/{hint.__name__}"}
