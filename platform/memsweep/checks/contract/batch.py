"""Sequences of a batch do not mix."""

from __future__ import annotations

from memsweep.checks.apart import Marked
from memsweep.checks.finding import Finding, finding, show
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject
from memsweep.models import contracts


def batch(subject: Subject, seconds: float) -> Finding:
    """Whether the output of a sequence is the same beside others and alone."""
    inputs = subject.noise(4, subject.length(65))
    found = list(contracts.batch(Marked(subject), inputs, subject.noise(4, inputs.shape[1], 6, 3.0)))
    worst = max(found, key=lambda each: each.size)
    faults = [f"It {worst.words}."] if worst.size > subject.tolerance else []
    well = f"A sequence alone and beside others: outputs differ by at most {show(worst.size)} of their size."
    return finding("batch", well, {each.name: each.size for each in found}, faults=faults)


CHECK = Check("batch", batch, place=25, share=0.02)
