"""The contract of a module ``[B, T, I] -> [B, T, O]``: shapes, determinism, causality, one sequence at a time, weights.

Letters: B batch, T time (length), I inputs, O outputs.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from memsweep.checks.finding import Finding, Status, finding, not_measured, show
from memsweep.checks.subject import SINGLE, WIDE, Subject, affordable, first
from memsweep.config.load.foreign import in_one_line
from memsweep.errors import listed
from memsweep.models import contracts
from memsweep.models.base import Model
from memsweep.models.contracts import default_dtype
from memsweep.models.training_mode import in_training

_GRADIENT_LENGTH = 128
_NAMED = 3
"""Weights that a sentence names."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in \w+\n\s+(.+)')


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


def determinism(subject: Subject, seconds: float) -> Finding:
    """Whether the same input gives the same bits again, and leaves the module as it was."""
    inputs = subject.noise(2, subject.length(64))
    dtype = subject.reference
    module = subject.fresh(dtype)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    others = subject.noise(2, subject.length(64), 9)
    (again,) = contracts.determinism(lambda given: subject(given, dtype, module), inputs, others)
    changed = [name for name, value in module.state_dict().items() if not _same(value, before[name])]
    alike = _same(subject(inputs, dtype, subject.fresh(dtype)), subject(inputs, dtype, subject.fresh(dtype)))
    kept, in_training_words = _in_training(subject, inputs)
    numbers = {
        "difference": again.size,
        "changed_by_a_call": changed,
        "equal_when_built_again": alike,
        "training": kept,
    }
    faults = [f"It {again.words}."] if again.size else in_training_words
    if changed:
        faults.append(f"A call changes {listed(changed, _NAMED)}, in eval mode and without gradients.")
    if not faults and not alike:
        faults.append("Built again from the same seed it gives other outputs: its weights come from elsewhere, too.")
    well = "The same bits from call to call; a call changes no weight and no buffer."
    return finding("determinism", well, numbers, faults=faults)


def _in_training(subject: Subject, inputs: Tensor) -> tuple[float | None, list[str]]:
    """How far equal calls in training are apart, and what is wrong there; None where it does not run."""
    dtype = subject.reference
    module = subject.fresh(dtype)

    def run(given: Tensor) -> Tensor:
        if isinstance(module, Model) and module.training:
            module.start_step([0], 0)
        return subject(given, dtype, module)

    try:
        found = in_training(module, run, inputs)
    except Exception as error:  # foreign code may raise anything
        return None, [f"In training mode it fails: {in_one_line(error)[:250]}."]
    return found.kept, [f"It {found.breach}."] if found.breach else []


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def causality(subject: Subject, seconds: float) -> Finding:
    """Whether output t depends on inputs 0 ... t alone, and not on how many more there are."""
    lengths = [subject.horizon] if subject.fixed else [length for length in (9, 65, 200) if length <= subject.horizon]
    lengths = lengths or [subject.horizon]
    found: list[contracts.Difference] = []
    for length in affordable(lengths, seconds):
        inputs = subject.noise(1, length)
        found += contracts.causality(subject, inputs, subject.noise(1, length, 5, 3.0))
        found += [] if subject.fixed else contracts.prefixes(subject, inputs)
    numbers: dict[str, object] = {"leak": 0.0, "prefix_difference": 0.0}
    worst = {each.name: each for each in sorted(found, key=lambda each: each.size)}
    numbers |= {name: each.size for name, each in worst.items()} | {"lengths": lengths}
    faults = [f"It {each.words}." for _, each in sorted(worst.items()) if each.size > subject.tolerance]
    largest = max((each.size for each in found), default=0.0)
    well = f"Inputs of later steps change outputs by at most {show(largest)} of their size."
    return finding("causality", well, numbers, faults=faults)


def batch(subject: Subject, seconds: float) -> Finding:
    """Whether the output of a sequence is the same beside others and alone."""
    inputs = subject.noise(4, subject.length(65))
    found = list(contracts.batch(subject, inputs, subject.noise(4, inputs.shape[1], 6, 3.0)))
    worst = max(found, key=lambda each: each.size)
    faults = [f"It {worst.words}."] if worst.size > subject.tolerance else []
    well = f"A sequence alone and beside others: outputs differ by at most {show(worst.size)} of their size."
    return finding("batch", well, {each.name: each.size for each in found}, faults=faults)


def parameters(subject: Subject, seconds: float) -> Finding:
    """Weights that are zero, that no gradient reaches, or whose gradient is not finite."""
    everything = dict(subject.at(subject.reference).named_parameters())
    weights = {name: weight for name, weight in everything.items() if weight.requires_grad}
    if not weights:
        return not_measured("parameters", "the module has no trainable weights.", Status.SKIP)
    length = subject.length(_GRADIENT_LENGTH)
    reached, not_finite = _gradients(subject, weights, length)
    zero = [name for name, weight in weights.items() if weight.ndim > 1 and not bool(weight.any())]
    unreached = [name for name in weights if name not in reached and name not in not_finite]
    frozen = [name for name in everything if name not in weights]
    faults, notes = _of_zeros(zero, unreached)
    if not_finite:
        regime = next(iter(not_finite.values()))
        faults.append(
            f"The gradient of {listed(list(not_finite), _NAMED)} is not finite (inputs: {regime})"
            f"{_culprit(subject, regime, length)}."
        )
    if frozen:
        notes.append(f"Not trainable: {listed(frozen, _NAMED)}.")
    numbers = {
        "tensors": len(weights),
        "zero": zero,
        "without_gradient": unreached,
        "gradient_not_finite": sorted(not_finite),
        "frozen": frozen,
    }
    well = f"A finite gradient reaches each of the {len(weights)} weight tensors, and none of them is zero."
    return finding("parameters", well, numbers, faults=faults, notes=notes)


def _gradients(subject: Subject, weights: Mapping[str, Tensor], length: int) -> tuple[set[str], dict[str, str]]:
    """The weights that a finite gradient reaches; and of each whose gradient is not finite, the first such regime."""
    module = subject.at(subject.reference)
    reached: set[str] = set()
    not_finite: dict[str, str] = {}
    for regime, inputs in subject.regimes(length).items():
        module.zero_grad(set_to_none=True)
        _backward(subject, inputs)
        for name, weight in weights.items():
            if weight.grad is None:
                continue
            if not torch.isfinite(weight.grad).all():
                not_finite.setdefault(name, regime)
            elif bool(weight.grad.any()):
                reached.add(name)
    module.zero_grad(set_to_none=True)
    return reached, not_finite


def _backward(subject: Subject, inputs: Tensor) -> None:
    """Gradients of the outputs in a random direction; none where the outputs are not finite."""
    dtype = subject.reference
    with default_dtype(dtype), torch.enable_grad():
        answer = first(subject.at(dtype)(subject.cast(inputs, dtype)))
        if not torch.isfinite(answer).all() or not answer.requires_grad:
            return  # the check of finite values says so
        direction = torch.randn(answer.shape, generator=torch.Generator().manual_seed(0), dtype=WIDE)
        (answer * direction.to(answer)).sum().backward()


def _of_zeros(zero: Sequence[str], unreached: Sequence[str]) -> tuple[list[str], list[str]]:
    """Faults and notes about weights that are zero and weights without a gradient: zeros alone may be meant."""
    zeros = [f"All values of {listed(zero, _NAMED)} are zero."] if zero else []
    if not unreached:
        return [], zeros
    hint = " If zeros are meant (a readout or a residual branch that starts from zero), audit the trained module."
    why = f"outputs do not depend on them.{hint if zero else ''}"
    return [*zeros, f"No gradient reaches {listed(unreached, _NAMED)}: {why}"], []


def _culprit(subject: Subject, regime: str, length: int) -> str:
    """The operation whose derivative is not finite and its line, as torch's anomaly mode names them."""
    dtype = subject.reference
    module = subject.at(dtype)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with torch.autograd.set_detect_anomaly(True), default_dtype(dtype), torch.enable_grad():
                first(module(subject.cast(subject.regimes(length)[regime], dtype))).sum().backward()
        except RuntimeError as error:
            words = str(error).split("'")
            lines = [line for warning in heard for line in _FRAME.findall(str(warning.message))]
            where = f" ({Path(lines[-1][0]).name}:{lines[-1][1]}: {lines[-1][2]})" if lines else ""
            return f": the derivative of {words[1].removesuffix('Backward0')}{where}" if len(words) > 1 else ""
        finally:
            module.zero_grad(set_to_none=True)
    return ""
