"""How long a module remembers: its memory function.

That is Definition 3.1 of arXiv 2305.19190: the response to a step of the input, differenced over time.

Letters: T time (length).
"""

from __future__ import annotations

import numpy as np
import torch

from memsweep.checks.apart import effect_of
from memsweep.checks.finding import Finding, curve, finding, not_measured, show
from memsweep.checks.memory.scale import CUT_OFF, finite_rows, time_scale
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject

STEP_SCALES = (0.01, 0.1, 1.0, 10.0)
_DIRECTIONS = 8
_PAIRS = 16
_NO_INPUT = "Outputs do not depend on the inputs: noise, zeros and constant inputs give the same outputs to the bit."


def memory_function(subject: Subject, seconds: float) -> Finding:
    """The response to a step of the input, differenced: the largest over directions and sizes, and the typical one."""
    responses = np.empty((0, 0))
    for length in subject.affordable(subject.lengths(), seconds):
        responses = _steps(subject, length)
    responses, notes = finite_rows(responses, "steps of the input, whose outputs")
    if not len(responses) or not responses.any():
        if len(responses) and _constant(subject, responses.shape[1] + 1):
            return finding("memory", "", {"length": responses.shape[1] + 1}, faults=[_NO_INPUT])
        return not_measured("memory", "no finite response to a step of the input, or none beyond rounding.")
    length = responses.shape[1]
    worst, typical = responses.max(0), np.median(responses, 0)
    scales = [scale for scale in map(time_scale, responses) if np.isfinite(scale)]
    still = len(responses) - len(scales)
    but = f" ({still} of them move no output beyond rounding)" if still else ""
    long = time_scale(worst)
    numbers = {
        "length": length,
        "time_scale": long,
        "time_scale_typical": float(np.median(scales)),
        "time_scale_longest": max(scales),
        "horizon_limited": long > CUT_OFF * length,
        "steps_tried": len(responses),
    }
    more = " or more" if numbers["horizon_limited"] else ""
    well = (
        f"63 % of the memory function lies within {show(long)} steps{more} (measured over {length}); of "
        f"{len(responses)} steps of the input{but}: "
        f"typical {show(numbers['time_scale_typical'])}, longest {show(numbers['time_scale_longest'])}."
    )
    curves = [curve("memory", "largest", worst), curve("memory", "typical", typical)]
    return finding("memory", well, numbers, notes=[well, *notes] if notes else [], curves=curves)


def _constant(subject: Subject, length: int) -> bool:
    """Whether all inputs give the same outputs, to the bit."""
    rest = subject(subject.zeros(1, length))
    regimes = subject.regimes(length, batch=1).values()
    return all(torch.equal(subject(inputs[:1]), rest) for inputs in regimes)


def _steps(subject: Subject, length: int) -> np.ndarray:
    """|difference over time| of the responses to steps, at rest before: ``[steps, T - 1]``.

    Zeros where rounding explains all of a response: that of a long memory rises by less than rounding at each step.
    """
    if subject.tokens:
        ids = torch.arange(min(subject.inputs, 5))
        pairs = [(int(one), int(other)) for one in ids for other in ids if one != other][:_PAIRS]
        before = torch.tensor([one for one, _ in pairs])
        inputs = torch.tensor([other for _, other in pairs]).unsqueeze(1).repeat(1, length)
        rest = before.unsqueeze(1).repeat(1, length)
        inputs[:, 0] = before
        sizes = torch.ones(len(pairs))
    else:
        directions = torch.eye(subject.inputs, dtype=torch.float64)[:_DIRECTIONS]
        directions = torch.cat([directions, torch.ones(1, subject.inputs, dtype=torch.float64)])
        directions = torch.cat([directions, -directions])
        sizes = torch.tensor(STEP_SCALES, dtype=torch.float64).repeat_interleave(len(directions))
        inputs = (sizes.unsqueeze(1) * directions.repeat(len(STEP_SCALES), 1)).unsqueeze(1).repeat(1, length, 1)
        inputs[:, 0] = 0
        rest = torch.zeros_like(inputs[:1])
    moved, still = subject(inputs), subject(rest)
    response, largest = moved - still, torch.maximum(moved.norm(dim=-1).amax(1), still.norm(dim=-1).amax(1))
    seen = effect_of(response.norm(dim=-1), largest, subject.inside).rows.any(1)
    slopes = response.diff(dim=1).norm(dim=-1) / sizes.unsqueeze(1)
    return torch.where(seen.unsqueeze(1), slopes, 0.0).numpy()


CHECK = Check("memory", memory_function, place=80, share=0.08, needs=("shapes", "determinism", "causality"))
