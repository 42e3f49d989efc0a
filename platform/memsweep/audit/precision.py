"""Measures the errors of lower precision by length, and finds tensors in half precision inside of a wider module."""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.audit.finding import Curve, Finding, finding, show
from memsweep.audit.subject import HALF, NAMES, SINGLE, WIDE, Subject, affordable
from memsweep.config.load.foreign import in_one_line
from memsweep.models.module.anatomy import to_dtype

_TOO_MUCH = {SINGLE: 1e-4, HALF: 0.3}
"""Relative errors from which a precision is worth a word."""
_UNAVOIDABLE = 100.0
"""Arithmetic may be so many times worse than the rounding of weights and inputs alone."""


def precision(subject: Subject, seconds: float) -> Finding:
    """Relative errors of float32 and bfloat16 against float64, beside those of rounded weights and inputs alone."""
    faults, notes = [], []
    half = _half_inside(subject)
    if half:
        faults.append(half)
    if subject.reference != WIDE:
        return finding(
            "precision", "", {}, faults=faults, notes=["It does not run in float64: nothing to compare with."]
        )
    single = subject.traced(WIDE).single
    table: dict[str, dict[str, dict[str, list[float]]]] = {}
    lengths: list[int] = []
    fails: dict[str, str] = {}
    for length in affordable(subject.lengths(), seconds):
        lengths.append(length)
        for regime in ("noise", "hold"):
            if regime not in (regimes := subject.regimes(length)):
                continue
            exact = subject(regimes[regime])
            for dtype in (SINGLE, HALF):
                if NAMES[dtype] in fails:
                    continue
                try:
                    error = _error(subject(regimes[regime], dtype), exact)
                except Exception as failure:  # foreign code may raise anything
                    fails[NAMES[dtype]] = in_one_line(failure)[:150]
                    continue
                rounded = _error(_rounded(subject, regimes[regime], dtype), exact)
                entry = table.setdefault(NAMES[dtype], {}).setdefault(regime, {"error": [], "rounded_once": []})
                entry["error"].append(error)
                entry["rounded_once"].append(rounded)
    for dtype in (SINGLE, HALF):
        for regime, entry in table.get(NAMES[dtype], {}).items():
            error, rounded = entry["error"][-1], entry["rounded_once"][-1]
            if not _TOO_MUCH[dtype] < error < float("inf"):  # the check of finite values says the rest
                continue
            words = (
                f"In {NAMES[dtype]} the outputs are off by {show(error)} of their size after {lengths[-1]} steps "
                f"(inputs: {regime}); rounding weights and inputs alone costs {show(rounded)}"
            )
            if dtype == SINGLE and error > _UNAVOIDABLE * rounded:
                faults.append(f"{words}: the arithmetic inside loses precision.")
            else:
                notes.append(f"{words}.")
            break
    notes += [f"It does not run in {name} ({why})." for name, why in fails.items()]
    numbers = {"lengths": lengths, "half_inside": bool(half), "float32_inside_float64": single is not None, **table}
    numbers["does_not_run"] = fails
    curves = [
        Curve("precision", f"{name}, {regime}", tuple(lengths[-len(entry["error"]) :]), tuple(entry["error"]))
        for name, regimes in table.items()
        for regime, entry in regimes.items()
    ]
    last = ", ".join(
        f"{name} {show(max(entry['error'][-1] for entry in regimes.values()))}" for name, regimes in table.items()
    )
    well = f"Relative error against float64 after {lengths[-1]} steps: {last}."
    if single is not None:
        well += f" In float64 it computes in float32 inside ({single})."
    return finding("precision", well, numbers, faults=faults, notes=[*([well] if notes else []), *notes], curves=curves)


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
