"""The JSON record of a result: what it must hold, and how non-finite numbers travel through JSON."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, TypedDict, cast

from memsweep.errors import StoreError, one_of
from memsweep.outcome import Outcome
from memsweep.sweep.store.form import LARGEST, Form, require

SCHEMA = 4
"""Version of a record that is written."""
OUTCOMES = frozenset({Outcome.DONE, Outcome.DIVERGED, Outcome.STOPPED_EARLY})
"""How a trial ends that has a result."""

MEND = "memsweep resume STUDY recomputes what is damaged, and nothing else."


class FileOf(TypedDict):
    """Size in bytes and SHA-256 of a file of a result, and the version of its form."""

    bytes: int
    sha256: str
    version: int


def file_of(content: bytes, version: int = 1) -> FileOf:
    """The entry of a record for a file with this content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "version": version}


class IdentityOf(TypedDict):
    """The parts of a trial's identity besides its config, see ``memsweep.sweep.planning.identity``."""

    code: str
    data: str
    versions: dict[str, str]
    device: str
    shards: int
    kernels: str


class Provenance(TypedDict, total=False):
    """Parts of a record's provenance that a program reads, see ``memsweep.sweep.worker.provenance``."""

    versions: dict[str, str]
    identity_of: IdentityOf
    processor: dict[str, str]
    finished: str
    seconds: float
    pack: str
    members: int
    guessed_roles: dict[str, str]


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
        files: table -> size, SHA-256 and version of its file; a table without rows has none.
    """

    schema: int
    identity: str
    study: str
    outcome: str
    config: dict[str, Any]
    summary: dict[str, float | bool | str | None]
    provenance: dict[str, Any]
    files: dict[str, FileOf]


class _Failed(TypedDict):
    outcome: str
    error: str
    traceback: str


class Failure(_Failed, total=False):
    """Why a trial has no result.

    Attributes:
        outcome: ``failed`` or ``out_of_memory``.
        error: type and text of the exception.
        traceback: of the exception; may be empty.
        cause: ``time_limit`` or ``node_lost``.
        peak_memory: bytes that the worker held at most, where memory ran out.
        asked_memory: bytes of the refused allocation, where they are known.
    """

    cause: str
    peak_memory: int
    asked_memory: int


class StoredFailure(Failure, total=False):
    """The JSON object in ``failures/<identity>.json``: a failure with its trial, its study and its time."""

    identity: str
    study: str
    time: str


def _with_versions(record: dict[str, Any]) -> dict[str, Any]:
    """A record of schema 3, in which files had no versions: all of them were the first."""
    return {**record, "files": {name: {**file, "version": 1} for name, file in record["files"].items()}}


_RECORD = Form[dict[str, Any]](SCHEMA, {3: _with_versions})
_FAILURE = Form[dict[str, Any]](1)

_SEAL = "sha256"
_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(record: Mapping[str, Any]) -> bytes:
    """A record as JSON; infinities and NaN of its summary become the strings ``inf``, ``-inf``, ``nan``.

    Raises:
        StoreError: a key is missing, or a value is no JSON.
    """
    identity = record.get("identity", "(no identity)")
    if missing := sorted(Record.__required_keys__ - {"schema"} - record.keys()):
        raise StoreError(f"the record of {identity} lacks {', '.join(missing)}.")
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
        StoreError: no JSON object, keys missing, an unknown schema, or the record of another identity; the message
            names the file and says what to do.
    """
    record = of_form(_RECORD, from_json(data, where), where)
    require(record, Record, where, MEND)
    require(record["provenance"], Provenance, where, MEND)
    require_config(record["config"], where)
    if not _is_time(record["provenance"].get("finished")):
        raise StoreError(f"{where} is malformed: provenance.finished must be a time in ISO 8601. {MEND}")
    if record["outcome"] not in OUTCOMES:
        raise StoreError(f"{where} is malformed: outcome must be one of {one_of(OUTCOMES)}. {MEND}")
    if record["identity"] != identity:
        raise StoreError(f"{where} holds the record of {str(record['identity'])[:60]!r}. {MEND}")
    record["summary"] = {key: _number(value) for key, value in record["summary"].items()}
    return cast(Record, record)


def _is_time(text: str | None) -> bool:
    try:
        return text is None or datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def require_config(config: Any, where: str, advice: str = MEND) -> None:
    """Refuse plain data without the sections of a trial's config; whether its values are valid is not looked at.

    Raises:
        StoreError: it has others.
    """
    require(config, _Config, where, advice)


class _Part(TypedDict):
    name: str


class _Training(TypedDict):
    steps: int
    seeds: int


class _Config(TypedDict):
    task: _Part
    model: _Part
    training: _Training
    perturbation: dict[str, Any]


def of_form(form: Form[dict[str, Any]], content: dict[str, Any], where: str) -> dict[str, Any]:
    """The content that ``sealed`` was given, in the form of today.

    Raises:
        OtherSchemaError: it has a schema that this version of memsweep does not know.
        StoreError: it is not what was sealed, or has no seal.
    """
    got = content.get("schema")
    if type(got) is int:
        form.require_known(got, where)
    content = unsealed(content, where)
    if type(got) is not int:
        raise StoreError(f"{where} is malformed: schema must be int, got {type(got).__name__}. {MEND}")
    return {**form.migrated(content, got, where), "schema": form.version}


def read_failure(data: bytes, where: str) -> StoredFailure:
    """A stored failure from the bytes of a file.

    Raises:
        StoreError: it is damaged or malformed, or of a schema that this version of memsweep does not know.
    """
    failure = from_json(data, where)
    version = failure.pop("schema", 1)  # the first version named none
    if type(version) is not int:
        raise StoreError(f"{where} is malformed: schema must be int, got {type(version).__name__}. {MEND}")
    failure = _FAILURE.migrated(failure, version, where)
    require(failure, StoredFailure, where, MEND)
    if failure["outcome"] not in {str(outcome) for outcome in Outcome} - OUTCOMES:
        raise StoreError(f"{where} is malformed: outcome must be of a trial without a result. {MEND}")
    if not _is_time(failure.get("time")):
        raise StoreError(f"{where} is malformed: time must be a time in ISO 8601. {MEND}")
    return cast(StoredFailure, failure)


def failure_json(failure: Mapping[str, Any]) -> bytes:
    """A failure, with its identity, as the bytes that ``read_failure`` takes."""
    return to_json({"schema": _FAILURE.version, **failure}, f"the failure of {failure['identity']}")


def now() -> str:
    """The time as records hold it: UTC, ISO 8601, whole seconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with the hash of all of it: what is changed later, by chance or by hand, shows."""
    return {**{key: value for key, value in content.items() if key != _SEAL}, _SEAL: _hash(content)}


def unsealed(content: dict[str, Any], where: str) -> dict[str, Any]:
    """The content that ``sealed`` was given.

    Raises:
        StoreError: the content is not what was sealed, or has no seal.
    """
    if content.pop(_SEAL, None) != _hash(content):
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
        value = json.loads(data.decode("utf-8", errors="surrogatepass"), **_NUMBERS)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise StoreError(f"{where} is damaged ({error}). {MEND}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{where} holds a {type(value).__name__}, not a JSON object. {MEND}")
    return value


def _whole(digits: str) -> int:
    value = int(digits)
    if abs(value) >= LARGEST:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value


_NUMBERS: dict[str, Any] = {"parse_int": _whole, "parse_float": _finite, "parse_constant": _finite}


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
