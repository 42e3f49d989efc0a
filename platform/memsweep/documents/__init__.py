"""The answer of a command: one plain structure, which is printed as text or, with ``--json``, as one JSON document.

``memsweep.documents.keys`` says which keys the document of each verb has, ``memsweep.documents.schema`` makes a JSON
Schema of them. Imports nothing heavy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memsweep import __version__
from memsweep.errors import ConfigError, MemsweepError

FORMAT = 1
"""Of all documents: grows when a key changes its name or its meaning, not when one is added."""


@dataclass(frozen=True)
class Answer:
    """The end of a command, in data and in words.

    Attributes:
        document: the data, by the keys of ``memsweep.documents.keys``.
        code: the exit code.
        text: the same for a person; empty where the command has printed it already.
    """

    document: Mapping[str, Any]
    code: int = 0
    text: str = ""


def to_json(verb: str, code: int, document: Mapping[str, Any]) -> str:
    """The JSON text of a verb's document, on many lines, the keys of all documents first."""
    whole = {"format": FORMAT, "memsweep": __version__, "verb": verb, "exit_code": code, **document}
    # ASCII alone: what others wrote cannot move a terminal's cursor, and half a surrogate pair can be printed
    return json.dumps(plain(whole), indent=1, ensure_ascii=True, allow_nan=False)


def error_document(error: BaseException) -> dict[str, Any]:
    """The document of a command that ended with an error, in place of its other keys."""
    kind = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    message = str(error) if isinstance(error, MemsweepError) else kind
    problems, source = (error.problems, error.source) if isinstance(error, ConfigError) else ((message,), "")
    return {"error": {"kind": kind, "message": message, "source": source, "problems": list(problems)}}


def plain(value: Any) -> Any:
    """A value as JSON can hold it: nan becomes null, infinities the texts ``inf`` and ``-inf``."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    item = getattr(value, "item", None)  # a number of numpy
    return plain(item()) if callable(item) else str(value)
