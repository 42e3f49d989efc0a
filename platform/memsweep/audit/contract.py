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
from memsweep.audit.subject import SINGLE, WIDE, Subject, affordable, default_dtype, first
from memsweep.errors import listed
from memsweep.models.module.factory import described

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
            why = f"it fails: {described(error)[:250]}"
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
    once = subject(inputs, dtype, module)
    subject(subject.noise(2, subject.length(64), 9), dtype, module)
    again = subject(inputs, dtype, module)
    changed = [name for name, value in module.state_dict().items() if not _same(value, before[name])]
    fresh = subject(inputs, dtype, subject.fresh(dtype))
    difference = _difference(again, once)
    numbers = {"difference": difference, "changed_by_a_call": changed, "equal_when_built_again": _same(fresh, once)}
    faults = []
    if difference:
        faults.append(
            f"The same input gives other outputs at the next call (relative difference {show(difference)}), in eval "
            "mode: it draws random numbers (dropout without self.training?) or keeps a state from the call before."
        )
    if changed:
        faults.append(f"A call changes {listed(changed, _NAMED)}, in eval mode and without gradients.")
    if not faults and not _same(fresh, once):
        faults.append("Built again from the same seed it gives other outputs: its weights come from elsewhere, too.")
    well = "The same bits from call to call; a call changes no weight and no buffer."
    return finding("determinism", well, numbers, faults=faults)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, over the largest value; steps that are not finite in both are left out."""
    known = torch.isfinite(one) & torch.isfinite(other)
    if not known.any():
        return 0.0
    scale = float(other[known].abs().max())
    return float((one - other)[known].abs().max()) / max(scale, 1e-300)


def causality(subject: Subject, seconds: float) -> Finding:
    """Whether output t depends on inputs 0 ... t alone, and not on how many more there are."""
    worst, at, shorter, cut_at = 0.0, (0, 0), 0.0, (0, 0)
    lengths = [subject.horizon] if subject.fixed else [length for length in (9, 65, 200) if length <= subject.horizon]
    lengths = lengths or [subject.horizon]
    for length in affordable(lengths, seconds):
        inputs = subject.noise(1, length)
        whole = subject(inputs)
        for cut in sorted({1, length // 3, length // 2, length - 1} - {0, length}):
            changed = inputs.clone()
            changed[:, cut:] = subject.noise(1, length, 5, 3.0)[:, cut:]
            leak = _difference(subject(changed)[:, :cut], whole[:, :cut])
            if leak > worst:
                worst, at = leak, (length, cut)
            if not subject.fixed:
                parted = _difference(subject(inputs[:, :cut]), whole[:, :cut])
                if parted > shorter:
                    shorter, cut_at = parted, (length, cut)
    faults = []
    if worst > subject.tolerance:
        faults.append(
            f"It sees the future: with other inputs from step {at[1]} on (of {at[0]}), outputs before that step "
            f"change by {show(worst)} of their size."
        )
    if shorter > subject.tolerance:
        faults.append(
            f"Outputs depend on the length: the first {cut_at[1]} steps alone give outputs that differ by "
            f"{show(shorter)} from those of the same steps in {cut_at[0]}."
        )
    numbers = {"leak": worst, "prefix_difference": shorter, "lengths": lengths}
    well = f"Inputs of later steps change outputs by at most {show(max(worst, shorter))} of their size."
    return finding("causality", well, numbers, faults=faults)


def batch(subject: Subject, seconds: float) -> Finding:
    """Whether the output of a sequence is the same beside others and alone."""
    inputs = subject.noise(4, subject.length(65))
    together = subject(inputs)
    changed = inputs.clone()
    changed[1:] = subject.noise(3, inputs.shape[1], 6, 3.0)
    beside = _difference(subject(changed)[:1], together[:1])
    alone = _difference(subject(inputs[:1]), together[:1])
    numbers = {"beside_others": beside, "alone": alone}
    faults = []
    if max(beside, alone) > subject.tolerance:
        which = "beside other sequences" if beside > subject.tolerance else "alone"
        faults.append(
            f"The output of a sequence depends on the rest of its batch: {which} it differs by "
            f"{show(max(beside, alone))} of its size."
        )
    well = f"A sequence alone and beside others: outputs differ by at most {show(max(beside, alone))} of their size."
    return finding("batch", well, numbers, faults=faults)


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
