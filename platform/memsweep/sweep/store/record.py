"""The JSON record of a result: what it must hold, and how non-finite numbers travel through JSON."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast

from memsweep.errors import StoreError
from memsweep.outcome import Outcome

SCHEMA = 3
"""1: without ``files``. 2: with the size and the hash of each table's file.

3: tables hold measurements, with the width and horizon of their trial; settings are in the record alone."""
READ = (1, 2, 3)
OUTCOMES = frozenset({Outcome.DONE, Outcome.DIVERGED, Outcome.STOPPED_EARLY})
"""How a trial ends that has a result."""
KEYS = ("identity", "study", "outcome", "config", "summary", "provenance")

MEND = "memsweep resume STUDY computes what is damaged anew, and nothing else."


class Record(TypedDict):
    """The record of a result, the JSON object in ``records/<identity>.json``.

    Attributes:
        schema: version of this form.
        identity: of the trial.
        study: the study that computed it.
        outcome: one of ``OUTCOMES``.
        config: the trial's canonical config.
        summary: name -> number of the whole trial; infinities and NaN are allowed here alone.
        provenance: the code, versions, host and times, see ``memsweep.sweep.worker.provenance``.
        files: table -> size in bytes and SHA-256 of its file; records of schema 1 lack it.
    """

    schema: int
    identity: str
    study: str
    outcome: str
    config: dict[str, Any]
    summary: dict[str, Any]
    provenance: dict[str, Any]
    files: NotRequired[dict[str, Any]]


class Failure(TypedDict):
    """Why a trial has no result.

    Attributes:
        outcome: ``failed`` or ``out_of_memory``.
        error: type and text of the exception.
        traceback: of the exception; may be empty.
        cause: ``time_limit`` or ``node_lost``.
        peak_memory: bytes that the worker held at most, where memory ran out.
        asked_memory: bytes of the refused allocation, where they are known.
    """

    outcome: str
    error: str
    traceback: str
    cause: NotRequired[str]
    peak_memory: NotRequired[int]
    asked_memory: NotRequired[int]


class StoredFailure(Failure):
    """The JSON object in ``failures/<identity>.json``: a failure with its trial, its study and its time."""

    identity: str
    study: NotRequired[str]
    time: NotRequired[str]


class OtherSchemaError(StoreError):
    """A record of a version that this one does not know: nothing is wrong with it, and nothing can be said of it."""


_SEAL = "sha256"
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
    what = f"the record of {identity}"
    return to_json(sealed(json.loads(to_json(whole, what))), what)


def decode(data: bytes, identity: str, where: str) -> Record:
    """A record from the bytes of a file; the strings of ``encode`` become numbers again.

    Args:
        data: the file.
        identity: whose record it must be.
        where: the file's name, for messages.

    Raises:
        StoreError: no JSON object, keys missing, another schema, or the record of another identity; the message
            names the file and says what to do.
    """
    record = from_json(data, where)
    schema = record.get("schema")
    if type(schema) is not int or schema not in READ:
        refusal = OtherSchemaError if type(schema) is int else StoreError
        raise refusal(
            f"{where} has schema {schema!r}; this version of memsweep reads {READ[0]} to {READ[-1]}. "
            "Read it with the version that wrote it, or give --no-reuse to compute it anew."
        )
    unsealed(record, where)
    wrong = [key for key in KEYS if key not in record]
    wrong += ["outcome"] if record.get("outcome") not in OUTCOMES else []
    wrong += [key for key in ("config", "summary", "provenance") if not isinstance(record.get(key, {}), dict)]
    if schema >= 2 and not _are_files(record.get("files")):
        wrong.append("files")
    if wrong:
        raise StoreError(f"{where} is no complete record (missing or malformed: {', '.join(wrong)}). {MEND}")
    if record["identity"] != identity:
        raise StoreError(f"{where} holds the record of {str(record['identity'])[:60]!r}. {MEND}")
    record["summary"] = {key: _number(value) for key, value in record["summary"].items()}
    return cast(Record, record)


def _are_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(file, dict) and isinstance(file.get("bytes"), int) and isinstance(file.get("sha256"), str)
        for file in value.values()
    )


def now() -> str:
    """The time as records hold it: UTC, ISO 8601, whole seconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with the hash of all of it: what is changed later, by chance or by hand, shows."""
    return {**{key: value for key, value in content.items() if key != _SEAL}, _SEAL: _hash(content)}


def unsealed(content: dict[str, Any], where: str) -> dict[str, Any]:
    """What ``sealed`` was given; files of older versions have no seal.

    Raises:
        StoreError: the content is not what was sealed.
    """
    if _SEAL in content and content.pop(_SEAL) != _hash(content):
        raise StoreError(f"{where} is damaged: it is not what was written. {MEND}")
    return content


def _hash(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != _SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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


def from_json(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in the bytes of a file.

    Raises:
        StoreError: the bytes are damaged or hold no object.
    """
    try:
        value = json.loads(data.decode("utf-8", errors="surrogatepass"))
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise StoreError(f"{where} is damaged ({error}). {MEND}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{where} holds a {type(value).__name__}, not a JSON object. {MEND}")
    return value


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
