"""The keys of the documents that ``--json`` prints: a type for each verb, and what each key holds.

A ``float`` may be null (it does not exist) or the text ``inf`` or ``-inf``. Keys are only added.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

Identity = Annotated[str, "identity of a trial: a hash of its configuration and of the code that it runs"]
Fields = Annotated[dict[str, Any], "dotted path -> value, of the fields in which the study's trials differ"]


class ErrorItem(TypedDict):
    """Why a command could not be run; the text of it is on stderr as well."""

    kind: Annotated[str, "ConfigError (study or command line), StoreError, MemsweepError, interrupted, ..."]
    message: Annotated[str, "as on stderr"]
    source: Annotated[str, "of a ConfigError: where the problems are"]
    problems: Annotated[list[str], "one sentence each"]


class ListItem(TypedDict):
    """One thing that a study may name."""

    name: Annotated[str, "as a study writes it"]
    description: Annotated[str, "what it is, in a sentence"]


class ListDocument(TypedDict):
    """``memsweep list``."""

    what: Annotated[str, "tasks, models, parameterizations, units, rules or studies"]
    items: Annotated[list[ListItem], "in the order of their names"]


class FieldItem(TypedDict):
    """A field that can be set."""

    path: Annotated[str, "dotted path below the section or part"]
    type: Annotated[str, "bool, int, float, str, list of ..., mapping, fields, or the kind of a registered part"]
    required: Annotated[bool, "whether it has no default"]
    default: Annotated[Any, "value when a study says nothing; null where there is none, or where it depends"]
    depends_on: Annotated[str | None, "the field that decides about its default"]
    choices: Annotated[list[str] | None, "the allowed texts; null: any"]
    limits: Annotated[dict[str, float], "at_least, above, at_most, below -> number"]
    meaning: Annotated[str, "what it does"]


class TensorItem(TypedDict):
    """A tensor of a module of your own."""

    name: Annotated[str, "as the module calls it"]
    shape: Annotated[list[int], "its sizes"]
    role: Annotated[str, "recurrent, encoder, readout, bias, gain, ...: decides which balls move it"]
    reason: Annotated[str, "why it is taken to have this role"]
    guessed: Annotated[bool, "neither a pattern of the study nor a convention of torch says so"]


class DescribedItem(TypedDict):
    """One meaning of the name; a name may be that of a task and of a study."""

    kind: Annotated[str, "task, model, parameterization, unit, rule, section, study or module"]
    meaning: Annotated[str, "what it is"]
    file: Annotated[str | None, "of a study: its file"]
    fields: Annotated[list[FieldItem], "what can be set"]
    tensors: Annotated[list[TensorItem], "of a module: its parameters and buffers"]
    refusals: Annotated[list[str], "of a module: why a study would refuse it"]
    notes: Annotated[list[str], "of a module: what to know"]


class DescribeDocument(TypedDict):
    """``memsweep describe``."""

    name: Annotated[str, "as it was given"]
    described: Annotated[list[DescribedItem], "one for each thing of this name"]


class CurveItem(TypedDict):
    """A line of a picture of an audit."""

    panel: Annotated[str, "memory, gradient, hold, precision, seconds or bytes"]
    name: Annotated[str, "what the line is, among those of its panel"]
    x: Annotated[list[float], "lags or lengths, in steps"]
    y: Annotated[list[float], "values, in the unit of the panel"]


class FindingItem(TypedDict):
    """What a check of an audit measured."""

    check: Annotated[str, "its name"]
    status: Annotated[Literal["pass", "skip", "note", "fault"], "how it ended"]
    sentence: Annotated[str, "what was found, in words"]
    seconds: Annotated[float, "how long it took"]
    numbers: Annotated[dict[str, Any], "what was measured, by the names in docs/audit.md"]
    curves: Annotated[list[CurveItem], "what the page draws"]


class AuditDocument(TypedDict):
    """``memsweep audit``."""

    module: Annotated[str, "as it was given"]
    settings: Annotated[dict[str, Any], "sizes, seed, fields of the model"]
    status: Annotated[Literal["pass", "skip", "note", "fault"], "the worst of all"]
    findings: Annotated[list[FindingItem], "one for each check, in the order of the page"]


DOCUMENTS: dict[str, type] = {
    "audit": AuditDocument,
    "describe": DescribeDocument,
    "list": ListDocument,
}
"""Verb -> the type of its document."""
