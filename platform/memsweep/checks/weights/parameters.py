"""Weights: those that are zero, that share memory, that no gradient reaches, or whose gradient is not finite."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from memsweep.checks.finding import Finding, Status, finding, not_measured
from memsweep.checks.part import Check
from memsweep.checks.subject import WIDE, Subject, first
from memsweep.errors import listed
from memsweep.models.contracts import default_dtype

_GRADIENT_LENGTH = 128
_NAMED = 3
"""Weights that a sentence names."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in \w+\n\s+(.+)')


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
    tied, overlapping = _shared(subject.build())
    if overlapping:
        faults.append(
            f"Two weights lie over the same memory ({listed(overlapping, _NAMED)}): a step of an optimizer moves it "
            "twice. Make them one nn.Parameter, or copy."
        )
    if tied:
        notes.append(f"One weight under two names: {listed(tied, _NAMED)}.")
    if frozen:
        notes.append(f"Not trainable: {listed(frozen, _NAMED)}.")
    numbers = {
        "tensors": len(weights),
        "zero": zero,
        "without_gradient": unreached,
        "gradient_not_finite": sorted(not_finite),
        "frozen": frozen,
        "tied": tied,
        "same_memory": overlapping,
    }
    well = f"A finite gradient reaches each of the {len(weights)} weight tensors, and none of them is zero."
    return finding("parameters", well, numbers, faults=faults, notes=notes)


def _shared(module: nn.Module) -> tuple[list[str], list[str]]:
    """Names of weights that are one tensor, and of weights that are two over the same memory: ``a = b``."""
    tied: list[str] = []
    overlapping: list[str] = []
    seen: dict[int, tuple[str, Tensor]] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        if not weight.numel():
            continue
        before, other = seen.setdefault(weight.data_ptr(), (name, weight))
        if before != name:
            (tied if other is weight else overlapping).append(f"{before} = {name}")
    return tied, overlapping


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


CHECK = Check("parameters", parameters, place=50, share=0.05, needs=("shapes",))
