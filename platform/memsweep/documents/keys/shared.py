"""Keys that several documents share."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

Identity = Annotated[str, "identity of a trial: a hash of its configuration and of the code that it runs"]
Fields = Annotated[dict[str, Any], "dotted path -> value, of the fields in which the study's trials differ"]

Condition = Annotated[dict[str, Any], "column -> value, of the columns that tell conditions apart"]
Low = Annotated[float, "low end of the 95 % interval"]
High = Annotated[float, "high end of the 95 % interval"]


class ErrorItem(TypedDict):
    """Why a command could not be run; the text of it is on stderr as well."""

    kind: Annotated[str, "ConfigError (study or command line), StoreError, MemsweepError, interrupted, ..."]
    message: Annotated[str, "as on stderr"]
    source: Annotated[str, "of a ConfigError: where the problems are"]
    problems: Annotated[list[str], "one sentence each"]


class CauseItem(TypedDict):
    """Trials that failed by one cause."""

    outcome: Annotated[str, "failed, out_of_memory or preempted"]
    error: Annotated[str, "type of the exception"]
    text: Annotated[str, "what it says, of the first of the trials"]
    file: Annotated[str | None, "of the user's own code; null: no line of it is known"]
    line: Annotated[int | None, "in that file"]
    settings: Annotated[dict[str, list[Any]], "dotted path -> values that tell these trials from others of the study"]
    trials: Annotated[list[Identity], "that failed by it"]


class FailuresItem(TypedDict):
    """Why trials of a study have no result."""

    words: Annotated[list[str], "in sentences; empty where none failed"]
    causes: Annotated[list[CauseItem], "the most frequent first"]
