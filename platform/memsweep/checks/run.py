"""An audit: all checks of one module within a time limit, without training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memsweep.checks.finding import Finding, Status, not_measured
from memsweep.checks.part import Check, checks
from memsweep.checks.subject import Subject
from memsweep.config.load.foreign import in_one_line

_WORST_FIRST = (Status.FAULT, Status.NOT_ENOUGH, Status.NOTE, Status.PASS, Status.SKIP)
_BROKEN = {
    "shapes": "the module does not run as it must (shapes)",
    "determinism": "two calls with the same input give different outputs (determinism)",
    "batch": "sequences of a batch are not independent (batch)",
}
"""Check -> the meaning of its fault to those that need it."""


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
        return next(status for status in _WORST_FIRST if status in found)

    def __getitem__(self, check: str) -> Finding:
        return next(finding for finding in self.findings if finding.check == check)


def audit(subject: Subject, seconds: float = 60.0, told: Callable[[str], None] | None = None) -> Audit:
    """Makes all checks.

    Args:
        subject: the module.
        seconds: about how long at most; what a check leaves out for that reason, its finding says.
        told: is given each check's name before it starts.

    Raises:
        ModuleError: it gives outputs ``[B, T, O]`` for no input that was tried.
    """
    subject.run_once()
    findings: list[Finding] = []
    spent: dict[str, float] = {}
    for finding, took in _checked(subject, seconds, told or (lambda _name: None)):
        findings.append(finding)
        spent[finding.check] = took
    return Audit(tuple(findings), spent)


def _checked(subject: Subject, seconds: float, told: Callable[[str], None]) -> Iterator[tuple[Finding, float]]:
    broken: set[str] = set()
    end = time.monotonic() + seconds
    for number, check in enumerate(checks()):
        start = time.monotonic()
        why = [_BROKEN.get(name, name) for name in check.needs if name in broken]
        if why:
            found = not_measured(check.name, f"{why[0]}.", Status.SKIP)
        else:
            told(check.name)
            share = check.share / sum(each.share for each in checks()[number:])
            found = _made(check, subject, max(0.0, end - start) * share)
        yield found, time.monotonic() - start
        broken |= {check.name} if found.status is Status.FAULT else set()


def _made(check: Check, subject: Subject, seconds: float) -> Finding:
    """One finding; it says what the time did not allow."""
    subject.left_out.clear()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="ComplexHalf support")  # complex weights in float16
            found = check.look(subject, seconds)
    except Exception as error:  # foreign code may raise anything, and the other checks go on
        found = not_measured(check.name, f"{in_one_line(error)[:250]}.")
    return found.without(subject.left_out, seconds)
