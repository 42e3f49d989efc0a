"""The contract of a module ``[B, T, I] -> [B, T, O]``: shapes, determinism, causality, one sequence at a time, weights.

Letters: B batch, T time (length), I inputs, O outputs.
"""

from __future__ import annotations

import re
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor

from memsweep.audit.finding import Finding, Status, finding, not_measured, show
from memsweep.audit.subject import SINGLE, WIDE, Subject, affordable, first
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


def shapes(subject: Subject, seconds: float) -> Finding:
    """Whether it runs at all batch sizes and lengths, and gives one output for each step of each sequence."""
    faults, notes = [], []
    sizes: set[int] = set()
    horizon, half = subject.horizon, max(1, subject.horizon // 2)
    if _problem(subject, 1, half, set()) is not None and _problem(subject, 1, horizon, set()) is None:
        subject.fixed = True
        notes.append(f"It runs at {horizon} steps only, not at {half}: all checks are made there.")
    tried = [(2, horizon)] if subject.fixed else [(2, 7), (1, 7), (3, 5), (2, 1), (1, 1), (1, min(65, horizon))]
    tried = [*dict.fromkeys((batch, min(length, horizon)) for batch, length in tried), (1, horizon)]
    start = time.monotonic()
    for batch, length in dict.fromkeys(tried):
        start = time.monotonic()
        if problem := _problem(subject, batch, length, sizes):
            faults.append(f"With {batch} sequence{'s' * (batch > 1)} of {length} step{'s' * (length > 1)} {problem}.")
    reads_ids = any(isinstance(part, torch.nn.Embedding) for part in subject.at(SINGLE).modules())
    if faults and reads_ids and not subject.tokens:
        faults.insert(0, "It has an embedding: if it reads ids [B, T], say --tokens.")
    if len(sizes) > 1:
        faults.append(f"The number of outputs depends on the input: {sorted(sizes)}.")
    looked = not subject.fixed and not faults and time.monotonic() - start < seconds
    beyond = _problem(subject, 1, horizon + 1, set()) if looked else None
    if beyond:
        notes.append(f"It does not run one step beyond the horizon ({horizon + 1} steps): {beyond}.")
    if not faults and subject.reference != WIDE:
        notes.append("It does not run in float64: float32 is the reference of all checks.")
    outputs = max(sizes, default=0)
    numbers = {
        "outputs": outputs,
        "lengths": sorted({length for _, length in tried}),
        "batches": sorted({batch for batch, _ in tried}),
        "beyond_horizon": beyond is None if looked else None,
        "parameters": sum(weight.numel() for weight in subject.at(WIDE).parameters()),
    }
    ids = "ids [B, T]" if subject.tokens else f"[B, T, {subject.inputs}]"
    well = f"{ids} to [B, T, {outputs}] for every batch and length tried, 1 to {horizon} steps."
    return finding("shapes", well, numbers, faults=faults[:3], notes=notes)


def _problem(subject: Subject, batch: int, length: int, sizes: set[int]) -> str | None:
    inputs = subject.noise(batch, length)
    answer: Tensor
    for dtype in (SINGLE, WIDE):
        try:
            answer = subject(inputs, dtype)
            break
        except Exception as error:  # foreign code may raise anything
            why = f"it fails: {in_one_line(error)[:250]}"
    else:
        return why
    if answer.ndim != 3 or tuple(answer.shape[:2]) != (batch, length):
        return f"it gives {tuple(answer.shape)}, not ({batch}, {length}, outputs)"
    sizes.add(answer.shape[2])
    return None


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
    dtype = subject.reference
    module = subject.at(dtype)
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    frozen = [name for name, weight in module.named_parameters() if not weight.requires_grad]
    if not weights:
        return not_measured("parameters", "the module has no trainable weights.", Status.SKIP)
    reached: set[str] = set()
    not_finite: dict[str, str] = {}
    length = subject.length(_GRADIENT_LENGTH)
    for regime, inputs in subject.regimes(length).items():
        module.zero_grad(set_to_none=True)
        with default_dtype(dtype), torch.enable_grad():
            answer = first(module(subject.cast(inputs, dtype)))
            if not torch.isfinite(answer).all() or not answer.requires_grad:
                continue  # the check of finite values says so
            direction = torch.randn(answer.shape, generator=torch.Generator().manual_seed(0), dtype=WIDE)
            (answer * direction.to(answer)).sum().backward()
        for name, weight in weights.items():
            if weight.grad is None:
                continue
            if not torch.isfinite(weight.grad).all():
                not_finite.setdefault(name, regime)
            elif bool(weight.grad.any()):
                reached.add(name)
    module.zero_grad(set_to_none=True)
    zero = [name for name, weight in weights.items() if weight.ndim > 1 and not bool(weight.any())]
    unreached = [name for name in weights if name not in reached and name not in not_finite]
    faults: list[str] = []
    notes: list[str] = []
    if zero:
        (faults if unreached else notes).append(f"All values of {listed(zero, _NAMED)} are zero.")
    if unreached:
        hint = " If zeros are meant (a readout or a residual branch that starts from zero), audit the trained module."
        faults.append(
            f"No gradient reaches {listed(unreached, _NAMED)}: outputs do not depend on them.{hint if zero else ''}"
        )
    if not_finite:
        name, regime = next(iter(not_finite.items()))
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
