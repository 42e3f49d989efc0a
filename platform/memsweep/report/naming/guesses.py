"""Sentences about guessed roles: a ball moves weights by their roles, so verdicts rest on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from memsweep.errors import listed

_MOST = 4
"""Names of weights that are written out for each role."""


def guessed_roles(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sentences about the roles that were guessed, one for each module; none where all roles are known."""
    found: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        for weight, role in (record["provenance"].get("guessed_roles") or {}).items():
            found[_module_of(record["config"]["model"])][role].setdefault(weight)
    return [_sentence(module, roles) for module, roles in found.items()]


def _sentence(module: str, roles: Mapping[str, Mapping[str, None]]) -> str:
    guesses = "; ".join(f"{role}: {listed([*weights], _MOST)}" for role, weights in sorted(roles.items()))
    return (
        f"The roles of some weights of {module} are guessed, and balls move weights by their roles ({guesses}). "
        "Where one is wrong, set its role: roles below model or unit, as in model.roles.encoder=[NAME]."
    )


def _module_of(model: Mapping[str, Any]) -> str:
    """The factories of a model's config: its own, and those of its units."""
    units = [model.get("unit"), *(model.get("units") or ())]
    factories = [model.get("factory"), *(unit.get("factory") for unit in units if isinstance(unit, Mapping))]
    return ", ".join(dict.fromkeys(str(factory) for factory in factories if factory)) or str(model["name"])
