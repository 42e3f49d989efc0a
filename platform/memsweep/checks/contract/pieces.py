"""Reading a sequence in pieces of several steps, with the state of one handed to the next, against reading it whole."""

from __future__ import annotations

import time

import torch

from memsweep.checks.apart import difference, size_of
from memsweep.checks.carry import StepForm, step_form
from memsweep.checks.finding import Finding, Status, finding, not_measured, show
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject, explained
from memsweep.models.contracts import default_dtype

_LENGTH = 192
"""Steps, times the effort: three chunks of 64."""
_SIZES = ((1, 7), (2, 3), (64,), (5, 1, 1), (63, 2), (100, 1))
"""Of pieces, in steps; they begin again where they end."""
_STEPPED = 64


def pieces(subject: Subject, seconds: float) -> Finding:
    """Whether the outputs are the same however a sequence is cut into pieces."""
    form = None if subject.fixed else step_form(subject, subject.reference)
    if form is None or not form.any_length:
        return not_measured("pieces", "forward takes and gives no state: there are no pieces to read.", Status.SKIP)
    length = min(_LENGTH * subject.effort, subject.horizon)
    chosen = [sizes for sizes in _SIZES if sizes[0] < length]
    worst, where, start, looked = 0.0, "", time.monotonic(), list[str]()
    allowed = _allowed(subject, form, length)
    for regime, inputs in subject.regimes(length).items():
        for sizes in chosen:
            words = f"of {', '.join(map(str, sizes))} steps (inputs: {regime})"
            if looked and time.monotonic() - start > seconds:
                subject.left_out.append(f"pieces {words}")
                continue
            apart = _apart(subject, form, inputs, sizes)
            looked.append(words)
            if apart > worst:
                worst, where = apart, words
    if not looked:
        return not_measured("pieces", "the horizon is too short for pieces.", Status.SKIP)
    if worst <= allowed:
        where = ""
    faults = [f"Read in pieces {where} it gives other outputs than in one: {size_of(worst)}."]
    numbers = {
        "form": form.name,
        "difference": worst,
        "allowed": allowed,
        "length": length,
        "sizes": [list(sizes) for sizes in chosen],
    }
    well = f"{form.name}: in pieces of 1 to {max(map(max, chosen))} steps, outputs differ by at most {show(worst)}."
    return finding("pieces", well, numbers, faults=faults if where else [])


def _allowed(subject: Subject, form: StepForm, length: int) -> float:
    """The difference that rounding explains: a hundred times that of single steps, where these are right themselves.

    A module that has float32 inside is often far more exact than float32 must be.
    """
    stepped = max(_apart(subject, form, inputs, (1,)) for inputs in subject.regimes(min(length, _STEPPED)).values())
    return min(subject.tolerance, explained(stepped, subject.inside))


def _apart(subject: Subject, form: StepForm, inputs: torch.Tensor, sizes: tuple[int, ...]) -> float:
    dtype = subject.reference
    with torch.no_grad(), default_dtype(dtype):
        read = form.in_pieces(subject.cast(inputs, dtype), sizes).to("cpu", torch.float64)
    read = read.unsqueeze(-1) if read.ndim == 2 else read
    return difference(read, subject(inputs))


CHECK = Check("pieces", pieces, place=130, share=0.06)
