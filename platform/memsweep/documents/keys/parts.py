"""The keys of what ``memsweep list`` and ``describe`` print."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict


class ListItem(TypedDict):
    """One thing that a study may name."""

    name: Annotated[str, "as a study writes it"]
    room: Annotated[str | None, "of a study: the folder of search_spaces/ that holds it; null where it is in none"]
    description: Annotated[str, "what it is, in a sentence"]


class ListDocument(TypedDict):
    """``memsweep list``."""

    what: Annotated[str, "tasks, models, parameterizations, units, rules, measures or studies"]
    items: Annotated[list[ListItem], "in the order of their names; studies room by room"]


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
    frozen: Annotated[bool, "its requires_grad is off: training leaves it as it is, and a ball moves it by its role"]
    growth: Annotated[float | None, "its effect at long lags over that at lag 0 or 1, in units of what acts once"]


class DescribedItem(TypedDict):
    """One meaning of the name; a name may be that of a task and of a study."""

    kind: Annotated[str, "task, model, parameterization, unit, rule, section, field, study or module"]
    meaning: Annotated[str, "what it is"]
    file: Annotated[str | None, "of a study: its file"]
    fields: Annotated[list[FieldItem], "what can be set"]
    tensors: Annotated[list[TensorItem], "of a module: its parameters and buffers"]
    refusals: Annotated[list[str], "of a module: why a study would refuse it"]
    notes: Annotated[list[str], "of a module or a parameterization: what to know"]


class DescribeDocument(TypedDict):
    """``memsweep describe``."""

    name: Annotated[str, "as it was given"]
    described: Annotated[list[DescribedItem], "one for each thing of this name"]
