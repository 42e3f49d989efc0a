"""What a model must do to be measured, found in seconds before it is trained: on the untrained module, in evaluation.

A refusal is what makes every number of a trial meaningless. A note is what a reader of the numbers should know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from memsweep.errors import listed
from memsweep.models.base import Signature
from memsweep.models.module.factory import checked_outputs, described, outputs_of, probe_inputs

SECONDS = 10.0
"""After which no further check begins."""
_CLOSE = 1e-8  # of the largest output, in float64: summation in another order, and no more


@dataclass(frozen=True)
class Findings:
    """What the checks of one module found, a sentence without a full stop each."""

    refusals: tuple[str, ...]
    notes: tuple[str, ...]


def check(target: str, module: nn.Module, sizes: Signature, *, tokens: bool, causal: bool) -> Findings:
    """Runs a module, float64 and in evaluation mode, over the horizon and a step beyond it.

    Args:
        target: its name.
        module: is changed in its gradients alone.
        sizes: ``inputs`` is the number of ids with ``tokens``.
        tokens: it reads ids.
        causal: the study does not say that it may read the future.

    Raises:
        ModuleError: it cannot run at the horizon.
    """
    start = time.monotonic()
    inputs = probe_inputs(sizes, tokens, dtype=torch.float64)
    outputs = checked_outputs(target, module, inputs, sizes.outputs)
    notes = list(_unreached(target, module, outputs))
    outputs = outputs.detach()
    refusals: list[str] = []
    for find in (_random, _of_the_batch, *([_not_causal] if causal else [])):
        # the others compare outputs, which says nothing where they are random
        if not refusals and time.monotonic() - start < SECONDS:
            with torch.no_grad():
                refusals += find(target, module, inputs, outputs)
    if time.monotonic() - start < SECONDS:
        notes += _ends_at_the_horizon(target, module, sizes, tokens)
    return Findings(tuple(refusals), tuple(notes))


Find = Callable[[str, nn.Module, Tensor, Tensor], Iterator[str]]


def _unreached(target: str, module: nn.Module, outputs: Tensor) -> Iterator[str]:
    named = dict(module.named_parameters())
    if not outputs.requires_grad:
        yield f"no gradient reaches any parameter of {target}: it detaches its outputs, and nothing would be learned"
        return
    gradients = torch.autograd.grad(outputs.square().sum(), list(named.values()), allow_unused=True)
    if idle := [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]:
        names = listed(idle, 5)
        yield f"no gradient reaches {names} of {target}: they stay as they are, and moving them changes nothing"


def _random(target: str, module: nn.Module, inputs: Tensor, outputs: Tensor) -> Iterator[str]:
    # torch computes some layers in another way where no gradient is wanted: equal bits are not asked for
    if _largest(outputs_of(module(inputs)), outputs) > _CLOSE:
        yield (
            f"{target} gives other outputs for the same inputs in evaluation: it draws random numbers, or keeps a "
            "state from call to call. Draw in training alone (self.training), and start each call from a state of zero"
        )


def _of_the_batch(target: str, module: nn.Module, inputs: Tensor, outputs: Tensor) -> Iterator[str]:
    if (difference := _largest(outputs_of(module(inputs[:1])), outputs[:1])) > _CLOSE:
        yield (
            f"{target} gives a sequence other outputs alone than in a batch of two (difference {difference:.1g}): it "
            "mixes the sequences. Is the batch the first dimension (batch_first=True)? Does a normalization in "
            "evaluation use statistics of the batch?"
        )


def _not_causal(target: str, module: nn.Module, inputs: Tensor, outputs: Tensor) -> Iterator[str]:
    at = inputs.shape[1] // 2
    later = inputs.flip(0)[:, at:]
    changed = torch.cat([inputs[:, :at], later], 1)
    if at and (difference := _largest(outputs_of(module(changed))[:, :at], outputs[:, :at])) > _CLOSE:
        yield (
            f"{target} is not causal: inputs from step {at} on change outputs before it (difference {difference:.1g}). "
            "Mask the future, or say that it is meant to be so with model.causal: false"
        )


def _ends_at_the_horizon(target: str, module: nn.Module, sizes: Signature, tokens: bool) -> Iterator[str]:
    longer = Signature(sizes.inputs, sizes.outputs, sizes.horizon + 1)
    try:
        with torch.no_grad():
            module(probe_inputs(longer, tokens, dtype=torch.float64))
    except Exception as error:  # any fault of foreign code
        yield (
            f"{target} cannot run a step beyond its horizon of {sizes.horizon} ({described(error)}): its memory is "
            "measured within the horizon"
        )


def _largest(first: Tensor, second: Tensor) -> float:
    """The largest difference, relative to the largest output."""
    return float((first - second).abs().max() / second.abs().max().clamp(min=1e-30))
