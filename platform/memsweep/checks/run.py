"""An audit: all checks of one module within a time budget, without training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memsweep.checks.contract import batch, causality, determinism, parameters, shapes
from memsweep.checks.cost import cost
from memsweep.checks.decay import decay
from memsweep.checks.finding import Finding, Status, not_measured
from memsweep.checks.finite import finite
from memsweep.checks.forms import forms
from memsweep.checks.memory import capacity, gradient, memory_function
from memsweep.checks.precision import precision
from memsweep.checks.subject import Subject
from memsweep.config.load.foreign import in_one_line

Check = Callable[[Subject, float], Finding]

CHECKS: tuple[tuple[str, Check, float], ...] = (
    ("shapes", shapes, 0.05),
    ("determinism", determinism, 0.0),
    ("causality", causality, 0.05),
    ("batch", batch, 0.0),
    ("parameters", parameters, 0.05),
    ("finite", finite, 0.15),
    ("memory", memory_function, 0.1),
    ("gradient", gradient, 0.1),
    ("capacity", capacity, 0.1),
    ("decay", decay, 0.1),
    ("forms", forms, 0.1),
    ("precision", precision, 0.1),
    ("cost", cost, 0.15),
)
"""Name, check, and its share of the time; the quick ones take what they need."""

_COMPARING = frozenset({"causality", "batch", "decay", "forms", "precision", "memory", "gradient", "capacity"})
"""Checks that compare two calls, which says nothing where two equal calls differ."""


@dataclass(frozen=True)
class Audit:
    """The findings of an audit.

    Attributes:
        findings: one for each check, in their order.
        seconds: how long each check took, by its name.
    """

    findings: tuple[Finding, ...]
    seconds: dict[str, float]

    @property
    def status(self) -> Status:
        """The worst of all findings."""
        found = {finding.status for finding in self.findings}
        return next(status for status in (Status.FAULT, Status.NOTE, Status.PASS, Status.SKIP) if status in found)

    def __getitem__(self, check: str) -> Finding:
        return next(finding for finding in self.findings if finding.check == check)


def audit(subject: Subject, seconds: float = 60.0, told: Callable[[str], None] | None = None) -> Audit:
    """Makes all checks.

    Args:
        subject: the module.
        seconds: about how long; checks look at shorter sequences where the horizon would take longer.
        told: is given each check's name before it starts.
    """
    findings: list[Finding] = []
    spent: dict[str, float] = {}
    for finding, took in _checked(subject, seconds, told or (lambda _name: None)):
        findings.append(finding)
        spent[finding.check] = took
    return Audit(tuple(findings), spent)


def _checked(subject: Subject, seconds: float, told: Callable[[str], None]) -> Iterator[tuple[Finding, float]]:
    broken = random = False
    for name, check, share in CHECKS:
        start = time.monotonic()
        if broken:
            found = not_measured(name, "the module does not run as it must (shapes).", Status.SKIP)
        elif random and name in _COMPARING:
            why = "two calls with the same input give different outputs (determinism)."
            found = not_measured(name, why, Status.SKIP)
        else:
            told(name)
            try:
                found = check(subject, share * seconds)
            except Exception as error:  # foreign code may raise anything, and the other checks go on
                found = not_measured(name, f"{in_one_line(error)[:250]}.")
        yield found, time.monotonic() - start
        broken = broken or (name == "shapes" and found.status is Status.FAULT)
        random = random or (name == "determinism" and found.status is Status.FAULT)
