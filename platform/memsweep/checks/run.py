"""An audit: all checks of one module within a time limit, without training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from memsweep.checks.finding import Finding, Status, not_measured
from memsweep.checks.part import Check, checks
from memsweep.checks.subject import Subject
from memsweep.config.load.foreign import in_one_line
from memsweep.errors import ModuleError

_WORST_FIRST = (Status.FAULT, Status.NOT_ENOUGH, Status.NOTE, Status.PASS, Status.SKIP)
_BROKEN = {
    "shapes": "the module does not run as it must (shapes)",
    "determinism": "calls give other outputs for the same input, or leave traces (determinism)",
    "batch": "sequences of a batch are not independent (batch)",
    "causality": "outputs depend on later inputs (causality)",
}
"""Check -> the meaning of its fault to those that need it."""
_BLIND = "no output is finite, so there is nothing to compare"
_OF_ALL = ("shapes", "finite", "cost")
"""Checks that say something of outputs of which none is finite."""
_MORE = 1.5
"""A check looks again where it gets so many times the time that it had."""


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
        ModuleError: it gives outputs ``[B, T, O]`` for no input that was tried, or ends the process (``sys.exit``).
    """
    try:
        return _audit(subject, seconds, told or (lambda _name: None))
    except SystemExit as error:
        raise ModuleError(f"The module ends the process: {in_one_line(error)}. Correct its code.") from error


def _audit(subject: Subject, seconds: float, told: Callable[[str], None]) -> Audit:
    sees = subject.run_once()
    end = time.monotonic() + seconds
    looks: dict[str, _Look] = {}
    for number, check in enumerate(checks()):
        broken = {name for name, look in looks.items() if look.found.status is Status.FAULT}
        why = [_BROKEN.get(name, name) for name in check.needs if name in broken]
        why += [_BLIND] if not sees and check.name not in _OF_ALL else []
        if why:
            looks[check.name] = _Look(not_measured(check.name, f"{why[0]}.", Status.SKIP))
        else:
            share = check.share / sum(each.share for each in checks()[number:])
            looks[check.name] = _look(check, subject, max(0.0, end - time.monotonic()) * share, told)
    _again(looks, subject, end, told)
    return Audit(tuple(look.found for look in looks.values()), {name: look.spent for name, look in looks.items()})


@dataclass(frozen=True)
class _Look:
    """A finding, and the seconds that its check might and did take."""

    found: Finding
    allowed: float = 0.0
    spent: float = 0.0


def _look(check: Check, subject: Subject, seconds: float, told: Callable[[str], None]) -> _Look:
    told(check.name)
    start = time.monotonic()
    found = _made(check, subject, seconds)
    return _Look(found, seconds, time.monotonic() - start)


def _again(looks: dict[str, _Look], subject: Subject, end: float, told: Callable[[str], None]) -> None:
    """Gives the time that is left in the end to the checks that had too little: they look again with more of it."""
    short = [check for check in checks() if looks[check.name].found.status is Status.NOT_ENOUGH]
    for number, check in enumerate(short):
        share = check.share / sum(each.share for each in short[number:])
        before, seconds = looks[check.name], max(0.0, end - time.monotonic()) * share
        if seconds > _MORE * before.allowed:
            looks[check.name] = replace(again := _look(check, subject, seconds, told), spent=before.spent + again.spent)


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
