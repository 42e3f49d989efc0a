"""Measures the errors of lower precision by length, and finds tensors in half precision inside of a wider module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from memsweep.checks.finding import Curve, Finding, finding, show
from memsweep.checks.part import Check
from memsweep.checks.subject import HALF, HALF_16, NAMES, SINGLE, WIDE, Subject
from memsweep.config.load.foreign import in_one_line
from memsweep.models.module.factory import to_dtype

_TOO_MUCH = {SINGLE: 1e-4, HALF: 0.3, HALF_16: 0.3}
"""Relative errors from which a precision is worth a word."""
_UNAVOIDABLE = 100.0
"""Arithmetic may be so many times worse than the rounding of weights and inputs alone."""


@dataclass
class _Errors:
    """Relative errors against float64, by precision and regime.

    Attributes:
        lengths: of the runs, in steps.
        table: precision -> regime -> ``error`` and ``rounded_once``, by length.
        fails: precision in which the module does not run -> why.
    """

    lengths: list[int] = field(default_factory=list)
    table: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)

    def measure(self, subject: Subject, regime: str, inputs: Tensor) -> None:
        """Adds the errors for these inputs."""
        exact = subject(inputs)
        for dtype in (SINGLE, HALF, HALF_16):
            name = NAMES[dtype]
            if name in subject.not_had or name in self.fails:
                continue
            try:
                error = _error(subject(inputs, dtype), exact)
            except Exception as failure:  # foreign code may raise anything
                self.fails[name] = in_one_line(failure)[:150]
                self.table.pop(name, None)
                continue
            entry = self.table.setdefault(name, {}).setdefault(regime, {"error": [], "rounded_once": []})
            entry["error"].append(error)
            entry["rounded_once"].append(_error(_rounded(subject, inputs, dtype), exact))

    def curves(self) -> list[Curve]:
        return [
            Curve("precision", f"{name}, {regime}", tuple(self.lengths[-len(entry["error"]) :]), tuple(entry["error"]))
            for name, regimes in self.table.items()
            for regime, entry in regimes.items()
        ]

    def at_the_end(self) -> str:
        """``float32 1.2e-07, bfloat16 0.01``: the largest known error of each precision at the greatest length."""
        known = {
            name: [size for size in _last(regimes) if not math.isnan(size)] for name, regimes in self.table.items()
        }
        return ", ".join(f"{name} {show(max(sizes))}" for name, sizes in known.items() if sizes)

    def undefined(self) -> list[str]:
        """The regimes whose outputs in float64 are not finite at the greatest length."""
        found = [
            regime for regimes in self.table.values() for regime in regimes if math.isnan(regimes[regime]["error"][-1])
        ]
        return [*dict.fromkeys(found)]


def worst_error(regimes: Mapping[str, Mapping[str, Sequence[float]]]) -> float:
    """The largest error of a precision at the greatest length; nan where one of its regimes has none."""
    errors = _last(regimes)
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def _last(regimes: Mapping[str, Mapping[str, Sequence[float]]]) -> list[float]:
    return [entry["error"][-1] for entry in regimes.values()]


def precision(subject: Subject, seconds: float) -> Finding:
    """Relative errors of lower precisions against float64, beside those of rounded weights and inputs alone."""
    half = _half_inside(subject)
    faults, notes = [half] if half else [], list[str]()
    if subject.reference != WIDE:
        notes.append("It does not run in float64: nothing to compare with.")
        return finding("precision", "", {}, faults=faults, notes=notes)
    single, errors = subject.traced(WIDE).single, _Errors()
    for length in subject.affordable(subject.lengths(), seconds):
        errors.lengths.append(length)
        regimes = subject.regimes(length)
        for regime in ("noise", "hold"):
            if regime in regimes:
                errors.measure(subject, regime, regimes[regime])
    for dtype in (SINGLE, HALF, HALF_16):
        wrong, worth_a_word = _losses(errors, dtype)
        faults += wrong
        notes += worth_a_word
    notes += [f"It does not run in {name} ({why})." for name, why in errors.fails.items()]
    notes += subject.not_had.values()
    numbers = {"lengths": errors.lengths, "half_inside": bool(half), "float32_inside_float64": single is not None}
    numbers |= {**errors.table, "does_not_run": errors.fails, "not_measured": subject.not_had}
    undefined, known = errors.undefined(), errors.at_the_end()
    if undefined:
        notes.append(
            f"In float64 its outputs are not finite (inputs: {', '.join(undefined)}): nothing to compare with."
        )
    well = f"Relative error against float64 after {errors.lengths[-1]} steps: {known or 'unknown'}."
    if single is not None:
        well += f" In float64 it computes in float32 inside ({single})."
    notes = [well, *notes] if notes else []
    return finding("precision", well, numbers, faults=faults, notes=notes, curves=errors.curves())


def _losses(errors: _Errors, dtype: torch.dtype) -> tuple[list[str], list[str]]:
    """Faults and notes about a precision: the first regime whose error at the greatest length is too large."""
    for regime, entry in errors.table.get(NAMES[dtype], {}).items():
        error, rounded = entry["error"][-1], entry["rounded_once"][-1]
        if not _TOO_MUCH[dtype] < error < float("inf"):  # the check of finite values says the rest
            continue
        words = (
            f"In {NAMES[dtype]} the outputs are off by {show(error)} of their size after {errors.lengths[-1]} steps "
            f"(inputs: {regime}); rounding weights and inputs alone costs {show(rounded)}"
        )
        if dtype == SINGLE and error > _UNAVOIDABLE * rounded:
            return [f"{words}: the arithmetic inside loses precision."], []
        return [], [f"{words}."]
    return [], []


def _half_inside(subject: Subject) -> str:
    """A sentence about half precision inside of a module that runs in float64 or float32; empty: none."""
    for dtype in (subject.reference, SINGLE):
        place = subject.traced(dtype).narrow
        if place is not None:
            return f"In {NAMES[dtype]} it computes in half precision inside: {place}."
    return ""


def _rounded(subject: Subject, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """The outputs in float64, of weights and inputs that were rounded to a precision."""
    module = subject.fresh(dtype)
    to_dtype(module, WIDE)
    rounded = inputs if subject.tokens else inputs.to(dtype).to(WIDE)
    return subject(rounded, WIDE, module)


def _error(outputs: Tensor, exact: Tensor) -> float:
    """The norm of the difference over the norm of the outputs; inf where only one of them is finite."""
    if not torch.isfinite(exact).all():
        return float("nan")
    if not torch.isfinite(outputs).all():
        return float("inf")
    return float((outputs - exact).norm() / exact.norm().clamp(min=1e-300))


CHECK = Check("precision", precision, place=150, share=0.1)
