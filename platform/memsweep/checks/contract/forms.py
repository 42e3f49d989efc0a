"""The step form of a module against its form over whole sequences, step by step, in every regime of its gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from memsweep.checks.apart import size_of
from memsweep.checks.carry import step_form
from memsweep.checks.finding import Finding, Status, finding, not_measured, show
from memsweep.checks.part import Check
from memsweep.checks.subject import NAMES, SINGLE, Subject
from memsweep.models.contracts import default_dtype

_WORSE = 100.0
"""The form over sequences may be so many times further from float64 than the step form is, in float32."""
_VISIBLE = 1e-3


def forms(subject: Subject, seconds: float) -> Finding:
    """Whether both forms give the same outputs: in float64, and in float32 as exactly as one another."""
    dtype = subject.reference
    found = step_form(subject, dtype)
    if found is None:
        why = "the module has one form: no step(x, state), and forward takes and gives no state."
        return not_measured("forms", why, Status.SKIP)
    single = step_form(subject, SINGLE) if subject.reference != SINGLE else None
    worst, where, rounding, lossy, lengths = 0.0, "", {}, "", []
    ordered = sorted({*subject.lengths(), *(length for length in (2, 65) if length <= subject.horizon)})
    for length in subject.affordable([subject.horizon] if subject.fixed else ordered, seconds):
        lengths.append(length)
        for regime, inputs in subject.regimes(length).items():
            exact = _call(subject, found.run, inputs, dtype)
            apart, at = _apart(subject(inputs), exact, subject.tolerance)
            if apart > worst:
                worst, where = apart, f"from step {at} of {length} on, inputs: {regime}"
            if single is None or length != ordered[-1] or dtype == SINGLE:
                continue
            whole, _ = _apart(subject(inputs, SINGLE), exact, 1.0)
            stepped, _ = _apart(_call(subject, single.run, inputs, SINGLE), exact, 1.0)
            rounding[regime] = {"whole": whole, "step": stepped}
            if whole > max(_VISIBLE, _WORSE * stepped):
                lossy = f"inputs: {regime}: {size_of(whole)}, and the step form {size_of(stepped)}"
    faults = []
    if worst > subject.tolerance:
        faults.append(f"The outputs of the two forms differ by {size_of(worst)} in {NAMES[dtype]} ({where}).")
    elif lossy:
        faults.append(
            f"In float32 the form over whole sequences loses precision where the step form does not ({lossy})."
        )
    numbers = {"step_form": found.name, "difference": worst, "lengths": lengths, "float32_errors": rounding}
    well = (
        f"{found.name} and the form over whole sequences differ by at most {show(worst)} of the outputs' size, up to "
    )
    return finding("forms", f"{well}{lengths[-1]} steps.", numbers, faults=faults)


def _call(subject: Subject, step: Callable[[Tensor], Tensor], inputs: Tensor, dtype: torch.dtype) -> Tensor:
    with torch.no_grad(), default_dtype(dtype):
        answer = step(subject.cast(inputs, dtype)).to("cpu", torch.float64)
    return answer.unsqueeze(-1) if answer.ndim == 2 else answer


def _apart(one: Tensor, other: Tensor, tolerance: float) -> tuple[float, int]:
    """The largest difference over the size of the outputs, and the first step at which it passes a tolerance.

    It is inf where a value is finite in one alone; one that is finite in neither is no difference.
    """
    finite, known = torch.isfinite(one), torch.isfinite(other)
    scale = float(other[known].square().mean().sqrt()) if known.any() else 1.0
    apart = torch.where(finite & known, (one - other).abs() / max(scale, 1e-300), 0.0)
    differences = torch.where(finite == known, apart, torch.inf).amax((0, 2))
    beyond = (differences > tolerance).nonzero()
    return float(differences.max()), int(beyond[0]) if len(beyond) else 0


CHECK = Check("forms", forms, place=120, share=0.08)
