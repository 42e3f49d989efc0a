"""Shapes: which batches and lengths a module runs, and what it gives.

Letters: B batch, T time (length), I inputs, O outputs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.checks.finding import Finding, finding
from memsweep.checks.part import Check
from memsweep.checks.subject import SINGLE, WIDE, Subject
from memsweep.config.load.foreign import in_one_line
from memsweep.models.contracts import default_dtype
from memsweep.models.module.factory import outputs_of


@dataclass(frozen=True)
class _Run:
    """The outcome for B sequences of T steps.

    Attributes:
        batch, length: B and T.
        outputs: O; 0 where no outputs came.
        problem: what is wrong with the outputs, in words; empty where nothing is.
        seconds: that it took.
    """

    batch: int
    length: int
    outputs: int
    problem: str
    seconds: float


def shapes(subject: Subject, seconds: float) -> Finding:
    """Whether it runs at all batch sizes and lengths, and gives one output for each step of each sequence."""
    horizon, notes = subject.horizon, _runs_at_horizon_only(subject)
    runs = [_run(subject, batch, length) for batch, length in _sizes(subject)]
    faults = _shape_faults(subject, runs)
    looked = not subject.fixed and not faults and runs[-1].seconds < seconds
    beyond = _run(subject, 1, horizon + 1).problem if looked else ""
    if beyond:
        notes.append(f"It does not run one step beyond the horizon ({horizon + 1} steps): {beyond}.")
    if not faults and subject.reference != WIDE:
        notes.append("It does not run in float64: float32 is the reference of all checks.")
    if not faults and (form := _of_audits_alone(subject)):
        notes.append(form)
    outputs = max(run.outputs for run in runs)
    numbers = {
        "outputs": outputs,
        "lengths": sorted({run.length for run in runs}),
        "batches": sorted({run.batch for run in runs}),
        "beyond_horizon": not beyond if looked else None,
        "parameters": sum(weight.numel() for weight in subject.at(WIDE).parameters()),
    }
    ids = "ids [B, T]" if subject.tokens else f"[B, T, {subject.inputs}]"
    well = f"{ids} to [B, T, {outputs}] for every batch and length tried, 1 to {horizon} steps."
    return finding("shapes", well, numbers, faults=faults[:3], notes=notes)


def _runs_at_horizon_only(subject: Subject) -> list[str]:
    """A note where the module runs at the horizon and not at half of it; the subject is ``fixed`` from then on."""
    horizon, half = subject.horizon, max(1, subject.horizon // 2)
    if not _run(subject, 1, half).problem or _run(subject, 1, horizon).problem:
        return []
    subject.fixed = True
    return [f"It runs at {horizon} steps only, not at {half}: all checks are made there."]


def _of_audits_alone(subject: Subject) -> str:
    """Says what the module gives, and how to wrap it, where other commands refuse this form; else empty."""
    dtype = subject.reference
    with torch.no_grad(), default_dtype(dtype):
        answer = subject.at(dtype)(subject.cast(subject.noise(1, subject.length(7)), dtype))
    outputs = outputs_of(answer)
    if isinstance(outputs, Tensor):
        given, wrapped = "outputs [B, T]" if outputs.ndim == 2 else "", "net(x).unsqueeze(-1)"
    elif isinstance(answer, dict):
        given, wrapped = f"a {type(answer).__name__}", f"net(x)[{next(iter(answer))!r}]"
    else:
        given, wrapped = f"a {type(answer).__name__} that begins with a {type(answer[0]).__name__}", "net(x)[0]"
    return given and (
        f"It gives {given}. Other commands take one tensor [B, T, outputs], or a tuple that begins with it: wrap the "
        f"module in one whose forward returns {wrapped}."
    )


def _sizes(subject: Subject) -> list[tuple[int, int]]:
    """Batch sizes and lengths to try, each pair once; one sequence of the horizon's length is the last."""
    horizon = subject.horizon
    if subject.fixed:
        return [(2, horizon), (1, horizon)]
    tried = [(2, 7), (1, 7), (3, 5), (2, 1), (1, 1), (1, min(65, horizon)), (1, horizon)]
    return [*dict.fromkeys((batch, min(length, horizon)) for batch, length in tried)]


def _run(subject: Subject, batch: int, length: int) -> _Run:
    inputs, start = subject.noise(batch, length), time.monotonic()
    outputs, problem = 0, ""
    for dtype in (SINGLE, WIDE):
        try:
            shape = tuple(subject(inputs, dtype).shape)
        except Exception as error:  # foreign code may raise anything
            problem = f"it fails: {in_one_line(error)[:250]}"
            continue
        fits = len(shape) == 3 and shape[:2] == (batch, length)
        outputs, problem = (shape[2], "") if fits else (0, f"it gives {shape}, not ({batch}, {length}, outputs)")
        break
    return _Run(batch, length, outputs, problem, time.monotonic() - start)


def _shape_faults(subject: Subject, runs: Sequence[_Run]) -> list[str]:
    faults = [
        f"With {run.batch} sequence{'s' * (run.batch > 1)} of {run.length} step{'s' * (run.length > 1)} {run.problem}."
        for run in runs
        if run.problem
    ]
    reads_ids = any(isinstance(part, torch.nn.Embedding) for part in subject.at(SINGLE).modules())
    if faults and reads_ids and not subject.tokens:
        faults.insert(0, "It has an embedding: if it reads ids [B, T], say --tokens.")
    sizes = sorted({run.outputs for run in runs if not run.problem})
    if len(sizes) > 1:
        faults.append(f"The number of outputs depends on the input: {sizes}.")
    return faults


CHECK = Check("shapes", shapes, place=10, share=0.05, needs=())
