"""The contract of a model ``[B, T, I] -> [B, T, O]``: equal calls, sequences that do not mix, no look at the future.

A study refuses a breach before it trains, an audit reports it. Both compare outputs in evaluation, without training.

Letters: B batch, T time, I inputs, O outputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SECONDS = 10.0
"""Of the processor, after which no further check begins."""
TOLERANCES: Mapping[torch.dtype, float] = {
    torch.float64: 1e-7,
    torch.float32: 2e-3,
    torch.bfloat16: 0.1,
    torch.float16: 0.1,
}
"""The relative difference of two computations of one number that rounding alone explains, by their precision."""

Run = Callable[[Tensor], Tensor]
"""Outputs ``[B, T, O]`` for inputs ``[B, T, I]``, or ids ``[B, T]``, in evaluation."""


@dataclass(frozen=True)
class Difference:
    """How far two outputs that must be equal are apart.

    Attributes:
        name: of what was compared.
        size: the largest difference, over the largest output.
        words: what it means where it is no rounding, behind the model's name and without a full stop.
    """

    name: str
    size: float
    words: str


OVERWRITTEN = "overwritten"
"""The name of the difference between the inputs before a call and behind it."""


def overwriting(run: Run, inputs: Tensor, others: Tensor) -> Iterator[Difference]:
    """The inputs before a call and behind it; the ones that are given here stay as they are."""
    given = inputs.clone()
    run(given)
    size = _changed(given, inputs)
    by = f" (by {size:.1g} times their size)" if math.isfinite(size) else ""
    yield Difference(
        OVERWRITTEN,
        size,
        f"changes its inputs in place{by}: whoever reads them behind the call gets others. Compute new ones, as by "
        "x = x + y in the place of x += y",
    )


def _changed(behind: Tensor, before: Tensor) -> float:
    """How far inputs were changed, over their size; infinite where the shape is, or what is finite of them."""
    if behind.shape != before.shape or not torch.equal(behind.isfinite(), before.isfinite()):
        return math.inf
    return difference(behind, before)


def determinism(run: Run, inputs: Tensor, others: Tensor) -> Iterator[Difference]:
    """Two calls with the same inputs, another one between them. ``others`` have the shape of ``inputs``.

    Each call gets a copy: a module that changes its inputs in place is told so, and no more.
    """
    once = run(inputs.clone())
    run(others.clone())
    size = difference(run(inputs.clone()), once)
    yield Difference(
        "difference",
        size,
        f"gives other outputs for the same inputs in evaluation (relative difference {size:.1g}): it draws random "
        "numbers, or keeps a state from call to call. Draw in training alone (self.training), and start each call from "
        "a state of zero",
    )


def batch(run: Run, inputs: Tensor, others: Tensor) -> Iterator[Difference]:
    """A sequence beside others, and alone.

    It is the last one of the batch: a recurrence that takes the batch for the time carries its state from sequence to
    sequence, and its first sequence begins from zero whatever the others are.
    """
    last = run(inputs)[-1:]
    beside = torch.cat([others[:-1], inputs[-1:]])
    for name, where, given in (("beside_others", "beside other sequences", beside), ("alone", "alone", inputs[-1:])):
        size = difference(run(given)[-1:], last)
        yield Difference(
            name,
            size,
            f"gives a sequence other outputs {where} (relative difference {size:.1g}): its outputs depend on the rest "
            "of the batch. Make the batch the first dimension (batch_first=True), and let no normalization use "
            "statistics of the batch in evaluation",
        )


def causality(run: Run, inputs: Tensor, others: Tensor) -> Iterator[Difference]:
    """Outputs before a step from which the inputs are others, for several such steps."""
    steps = inputs.shape[1]
    whole = run(inputs)
    for cut in cuts(steps):
        size = difference(run(torch.cat([inputs[:, :cut], others[:, cut:]], 1))[:, :cut], whole[:, :cut])
        yield Difference(
            "leak",
            size,
            f"is not causal: other inputs from step {cut} on (of {steps}) change outputs before it (relative "
            f"difference {size:.1g}). Mask the future",
        )


def prefixes(run: Run, inputs: Tensor) -> Iterator[Difference]:
    """The first steps alone, for several numbers of steps; for models that run at any length."""
    steps = inputs.shape[1]
    whole = run(inputs)
    for cut in cuts(steps):
        size = difference(run(inputs[:, :cut]), whole[:, :cut])
        yield Difference(
            "prefix_difference",
            size,
            f"gives outputs that depend on the length: those of the first {cut} steps alone differ from those of the "
            f"same steps in {steps} (relative difference {size:.1g})",
        )


CHECKS = (overwriting, determinism, batch, causality)
"""In this order: where inputs are overwritten or outputs random, the others say nothing."""


def breaches(run: Run, inputs: Tensor) -> Iterator[Difference]:
    """The breaches that a study finds before it trains; after a breach no further check begins, nor after ``SECONDS``.

    Args:
        run: in float64 where the model knows no other precision of its own.
        inputs: two sequences or more.
    """
    with torch.no_grad(), default_dtype(torch.float64):
        tolerance = TOLERANCES[lowest_precision(run, inputs.clone())]
        start = time.process_time()  # on a busy machine, too, a fault is found
        for check in CHECKS:
            if time.process_time() - start > SECONDS:
                return
            found = [each for each in check(run, inputs, inputs.flip(0)) if each.size > tolerance]
            if found:
                yield max(found, key=lambda each: each.size)
                return


def unreached(named: Mapping[str, Tensor], outputs: Tensor) -> list[str]:
    """The weights of which the outputs are no function, as autograd sees it; all where outputs are detached."""
    if not outputs.requires_grad:
        return list(named)
    gradients = torch.autograd.grad(outputs.square().sum(), list(named.values()), allow_unused=True)
    return [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, over the largest value; steps that are not finite in both are left out."""
    known = torch.isfinite(one) & torch.isfinite(other)
    if not known.any():
        return 0.0
    scale = float(other[known].abs().max())
    return float((one - other)[known].abs().max()) / max(scale, 1e-300)


def cuts(steps: int) -> list[int]:
    """Steps at which a sequence is cut in two: near both ends and between."""
    return sorted({1, steps // 3, steps // 2, steps - 1} - {0, steps})


class _Precisions(TorchDispatchMode):
    """While it is active, it keeps the precisions of all results."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen |= {leaf.dtype for leaf in tree_leaves(result) if isinstance(leaf, Tensor)}
        return result


def lowest_precision(run: Run, inputs: Tensor) -> torch.dtype:
    """The lowest precision in which a model computes on these inputs."""
    with _Precisions() as precisions:
        run(inputs)
    return max(precisions.seen & set(TOLERANCES), key=lambda dtype: TOLERANCES[dtype], default=torch.float64)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that a model makes without a dtype have this one, as its weights do."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
