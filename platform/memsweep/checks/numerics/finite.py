"""Outputs and gradients that are not finite: at which length, for which inputs, and in which tensor first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from memsweep.checks.finding import Finding, finding
from memsweep.checks.part import Check
from memsweep.checks.subject import HALF, HALF_16, NAMES, SINGLE, WIDE, Subject, first
from memsweep.checks.trace import Place, Trace
from memsweep.models.contracts import default_dtype


def finite(subject: Subject, seconds: float) -> Finding:
    """Whether outputs are finite for noise, zeros, large and held inputs, by precision and length.

    Of float16 it is a note: its largest number is 65504, which a sum over a long sequence may well pass.
    """
    tried, lengths, ran = 0, [], dict[torch.dtype, None]()
    problems: list[dict[str, Any]] = []
    failed: set[tuple[torch.dtype, str]] = set()
    for length in subject.affordable(subject.lengths(), seconds):
        lengths.append(length)
        for regime, inputs in subject.regimes(length).items():
            for dtype in (WIDE, SINGLE, HALF, HALF_16):
                if NAMES[dtype] in subject.not_had or (dtype, regime) in failed:
                    continue
                try:
                    outputs = subject(inputs, dtype)
                except Exception:  # the checks of shapes and of precision say so
                    continue
                tried, ran[dtype] = tried + 1, None
                if not torch.isfinite(outputs).all():
                    failed.add((dtype, regime))
                    problems.append(_located(subject, inputs, outputs, dtype, regime))
    narrow = [each for each in problems if each["dtype"] == NAMES[HALF_16]]
    faults = [_sentence(some) for some in _by_place([each for each in problems if each not in narrow])]
    notes = [] if faults else [_sentence(some) for some in _by_place(narrow)]
    precisions = [NAMES[dtype] for dtype in ran]
    well = f"All outputs are finite, for noise, zeros, large and held inputs, in {', '.join(precisions)}, up to "
    well = " ".join([f"{well}{lengths[-1]} steps.", *subject.not_had.values()])
    numbers = {"runs": tried, "lengths": lengths, "precisions": precisions, "not_measured": subject.not_had}
    numbers |= {"not_finite": problems}
    return finding("finite", well, numbers, faults=faults[:3], notes=notes[:3])


def _by_place(problems: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Problems that one tensor causes belong together."""
    places: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for problem in problems:
        places.setdefault((problem["operation"], problem["line"]), []).append(problem)
    return list(places.values())


def _sentence(problems: Sequence[dict[str, Any]]) -> str:
    first_one = problems[0]
    others = sorted({problem["regime"] for problem in problems} - {first_one["regime"]})
    also = f", also {', '.join(others)}" if others else ""
    where = f"; the first tensor is the result of {first_one['place']}" if first_one["place"] else ""
    return (
        f"Outputs are not finite from step {first_one['step']} of {first_one['length']} on ({first_one['dtype']}, "
        f"inputs: {first_one['regime']}{also}){where}."
    )


def _located(subject: Subject, inputs: Tensor, outputs: Tensor, dtype: torch.dtype, regime: str) -> dict[str, Any]:
    """Where the first value came from that is not finite."""
    length = inputs.shape[1]
    step = int((~torch.isfinite(outputs)).any(2).any(0).nonzero()[0])
    row = int((~torch.isfinite(outputs))[:, step].any(1).nonzero()[0])
    place: Place | None = None
    for until in dict.fromkeys((length if subject.fixed else step + 1, length)):
        trace = Trace(subject.at(dtype), until, values=True)
        with torch.no_grad(), default_dtype(dtype), trace.watching():
            first(subject.at(dtype)(subject.cast(inputs[row : row + 1, :until], dtype)))
        place = trace.infinite or trace.undefined
        if place is not None:
            break
    return {
        "dtype": NAMES[dtype],
        "regime": regime,
        "length": length,
        "step": step,
        "operation": place.operation if place else "",
        "module": place.module if place else "",
        "line": place.line if place else "",
        "place": str(place) if place else "",
    }


CHECK = Check("finite", finite, place=70, share=0.1, needs=("shapes",))
