"""``setting``: a dataclass field that carries its meaning and its limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

MISSING = dataclasses.MISSING
AFTER, DURING = "after", "during"
"""When something is measured: after training, or in it."""


def setting(
    default: Any = MISSING,
    doc: str = "",
    *,
    factory: Any = MISSING,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] | None = None,
    registered: str | None = None,
    each_registered: str | None = None,
    named: str | None = None,
    cosmetic: bool = False,
    added: bool = False,
    depends_on: str | None = None,
    opens: str | None = None,
    when: str = AFTER,
) -> Any:
    """A field of a configuration dataclass.

    Args:
        default: the value when the study file says nothing (left out: the field is required).
        doc: unit, meaning, and when to change it, in one sentence; ``memsweep describe`` prints it.
        factory: makes the default, for values that are dataclasses themselves.
        at_least, above, at_most, below: limits of a number (of each number of a tuple).
        choices: allowed strings (of each string of a tuple).
        registered: the kind of registered part that this field names (``parameterization``); its value is
            that part's Config, and a study may write a bare name or ``{name: ..., <field>: ...}``.
        each_registered: the kind of registered part of which the value is a tuple of Configs, in a list of the study.
        named: the kind of registered part whose name alone this field, a text, holds (``rule``).
        cosmetic: the field cannot change a trial's numbers and stays out of its identity.
        added: None stays out of a trial's identity: trials that do without the field have those from before it.
        depends_on: name of the sibling field that decides whether this field exists and what its default is
            (``rate`` depends on ``kernel``). When a grid axis or an override changes the sibling, a value
            given for the old choice is dropped and the new choice's own default fills in.
        opens: the kind of registered part of which each is a field here: the value is a tuple of their Configs, and a
            study writes the name of a part and its fields (``worst_inputs: {...}``), or null.
        when: of these parts, those that measure then.
    """
    metadata = {name: value for name, value in locals().items() if name not in ("default", "factory")}
    metadata["choices"] = None if choices is None else tuple(choices)
    if factory is not MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
