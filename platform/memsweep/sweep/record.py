"""The JSON record of a result: what it must hold, and how non-finite numbers travel through JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memsweep.errors import StoreError

SCHEMA = 1
KEYS = ("identity", "study", "outcome", "config", "summary", "provenance")

_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(record: Mapping[str, Any]) -> bytes:
    """A record as JSON; infinities and NaN of its summary become the strings ``inf``, ``-inf``, ``nan``.

    Raises:
        StoreError: a key is missing, the schema is not this version's, or a value is no JSON.
    """
    identity = record.get("identity", "(no identity)")
    missing = [key for key in KEYS if key not in record]
    if missing:
        raise StoreError(f"the record of {identity} lacks {', '.join(missing)}; a record holds {', '.join(KEYS)}.")
    if record.get("schema", SCHEMA) != SCHEMA:
        raise StoreError(f"the record of {identity} has schema {record['schema']!r}; this version writes {SCHEMA}.")
    whole = {"schema": SCHEMA, **record, "summary": {key: _word(value) for key, value in record["summary"].items()}}
    return to_json(whole, f"the record of {identity}")


def decode(data: bytes, path: Path) -> dict[str, Any]:
    """A record from the bytes of a file; the strings of ``encode`` become numbers again.

    Raises:
        StoreError: no JSON object, keys missing, another schema, or the record of another identity; the message
            names the file and says what to do.
    """
    record = from_json(data, path)
    if record.get("schema") != SCHEMA:
        raise StoreError(
            f"{path} has schema {record.get('schema')!r}; this version of memsweep reads schema {SCHEMA}. "
            f"Read it with the version that wrote it, or move the study's folder away to compute it anew."
        )
    missing = [key for key in KEYS if key not in record]
    if missing or not isinstance(record.get("summary"), dict):
        raise StoreError(f"{path} is no complete record (missing: {', '.join(missing) or 'summary'}). {mend(path)}")
    if record["identity"] != path.stem:
        raise StoreError(f"{path} holds the record of {record['identity']!r}. {mend(path)}")
    record["summary"] = {key: _number(value) for key, value in record["summary"].items()}
    return record


def to_json(value: Mapping[str, Any], what: str) -> bytes:
    """Indented JSON; numpy scalars become plain ones.

    Raises:
        StoreError: a value that JSON cannot hold, an infinity among them.
    """
    try:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False, default=_plain)
        return (text + "\n").encode("utf-8", errors="surrogatepass")
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be written as JSON: {error}") from error


def from_json(data: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in the bytes of a file.

    Raises:
        StoreError: the bytes are damaged or hold no object.
    """
    try:
        value = json.loads(data.decode("utf-8", errors="surrogatepass"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise StoreError(f"{path} is damaged ({error}). {mend(path)}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} holds a {type(value).__name__}, not a JSON object. {mend(path)}")
    return value


def mend(path: Path) -> str:
    """What to do about a damaged file of a result or of a failure."""
    if path.parent.name == "failures":
        return "Delete this file; it only says why the trial has no result, and the next try writes it anew."
    return f"Delete records/{path.stem}.json of that study and run the sweep again: only this trial is computed anew."


def _plain(value: Any) -> Any:
    item = getattr(value, "item", None)  # numpy and torch scalars
    if item is None:
        raise TypeError(f"{type(value).__name__} {value!r} is no JSON value")
    return item()


def _word(value: Any) -> Any:
    value = _plain(value) if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _number(value: Any) -> Any:
    return _WORDS.get(value, value) if isinstance(value, str) else value
