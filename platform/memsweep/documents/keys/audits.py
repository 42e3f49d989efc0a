"""The keys of what ``memsweep audit`` prints."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict


class CurveItem(TypedDict):
    """A line of a picture of an audit."""

    panel: Annotated[str, "memory, gradient, derivative, capacity, hold, precision, seconds or bytes"]
    name: Annotated[str, "what the line is, among those of its panel"]
    x: Annotated[list[float], "lags or lengths, in steps"]
    y: Annotated[list[float], "values, in the unit of the panel"]


class FindingItem(TypedDict):
    """The finding of one check of an audit."""

    check: Annotated[str, "its name"]
    status: Annotated[Literal["pass", "skip", "note", "not enough", "fault"], "how it ended"]
    sentence: Annotated[str, "what was found, in words"]
    left_out: Annotated[list[str], "what --seconds did not allow to look at"]
    seconds: Annotated[float, "how long it took"]
    numbers: Annotated[dict[str, Any], "what was measured, by the names in docs/json_keys.md"]
    curves: Annotated[list[CurveItem], "what the page draws"]


class AuditDocument(TypedDict):
    """``memsweep audit``."""

    module: Annotated[str, "as it was given"]
    settings: Annotated[dict[str, Any], "sizes, seed, fields of the model"]
    status: Annotated[Literal["pass", "skip", "note", "not enough", "fault"], "the worst of all"]
    findings: Annotated[list[FindingItem], "one for each check, in the order of the page"]
