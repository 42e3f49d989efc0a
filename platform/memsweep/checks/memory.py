"""How long a module remembers, and how much: its memory function, the gradient of an output with respect to earlier
inputs, and how many numbers of the past its states pass on.

The memory function is Definition 3.1 of arXiv 2305.19190: the response to a step of the input, differenced over time.
The time scale of a function of the lag is the number of lags that hold 63 % of its sum (1 - 1/e: for e^(-k/tau) it is
tau).

Letters: S sequences, T time (length), I inputs, O outputs, P projections, R rows of a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.checks.finding import Finding, Status, curve, finding, not_measured, show
from memsweep.checks.subject import Subject, affordable, first
from memsweep.models.contracts import default_dtype
from memsweep.stability.block import block_values

SHARE = 1 - np.exp(-1)
STEP_SCALES = (0.01, 0.1, 1.0, 10.0)
_INPUTS = (0.1, 1.0, 1.0, 1.0, 3.0, 10.0)
"""Sizes of the noise along which gradients are taken."""
_PROJECTIONS = 4
_DIRECTIONS = 8
_PAIRS = 16
_SIZES = {"size": 0.01, "size_fine": 1e-6}
"""Name of a number, and the share of the largest singular value above which one counts."""
_CUT_OFF = 0.25
"""Of the length: beyond this share of it, a time scale says how long was looked and not how long the memory is."""


def time_scale(weight: np.ndarray) -> float:
    """Lags that hold 63 % of the weight: ``[T]`` -> lags, interpolated; nan where there is no weight."""
    total = weight.sum()
    if not np.isfinite(total) or total <= 0:
        return float("nan")
    share = np.concatenate([[0.0], np.cumsum(weight) / total])
    return float(np.interp(SHARE, share, np.arange(len(share))))


def memory_function(subject: Subject, seconds: float) -> Finding:
    """The response to a step of the input, differenced: the largest over directions and sizes, and the typical one."""
    responses = np.empty((0, 0))
    for length in affordable(subject.lengths(), seconds):
        responses = _steps(subject, length)
    responses = responses[np.isfinite(responses).all(1)]
    if not len(responses) or not responses.any():
        return not_measured("memory", "no finite response to a step of the input, or none at all.")
    length = responses.shape[1]
    worst, typical = responses.max(0), np.median(responses, 0)
    scales = [scale for scale in map(time_scale, responses) if np.isfinite(scale)]
    long = time_scale(worst)
    numbers = {
        "length": length,
        "time_scale": long,
        "time_scale_typical": float(np.median(scales)),
        "time_scale_longest": max(scales),
        "horizon_limited": long > _CUT_OFF * length,
        "steps_tried": len(responses),
    }
    more = " or more" if numbers["horizon_limited"] else ""
    well = (
        f"63 % of the memory function lies within {show(long)} steps{more} (measured over {length}); of "
        f"{len(responses)} steps of the input: "
        f"typical {show(numbers['time_scale_typical'])}, longest {show(numbers['time_scale_longest'])}."
    )
    return finding(
        "memory", well, numbers, curves=[curve("memory", "largest", worst), curve("memory", "typical", typical)]
    )


def _steps(subject: Subject, length: int) -> np.ndarray:
    """|difference over time| of the responses to steps, at rest before: ``[steps, T - 1]``."""
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
    slopes = (subject(inputs) - subject(rest)).diff(dim=1).norm(dim=-1) / sizes.unsqueeze(1)
    return slopes.numpy()


def gradient(subject: Subject, seconds: float) -> Finding:
    """|dy_T / dx_(T-k)| by the lag k, along several inputs: the typical one and the one with the longest memory."""
    norms = np.empty((0, 0))
    try:
        for length in affordable(subject.lengths(), seconds):
            measured = _gradients(subject, length)
            if measured is None:
                break
            norms = measured
    except RuntimeError as error:
        return not_measured("gradient", f"{(str(error).splitlines() or [''])[0][:200]}.")
    norms = norms[np.isfinite(norms).all(1)] if norms.size else norms
    if not norms.size or not norms.any():
        return not_measured("gradient", "no finite gradient of an output reaches the inputs.")
    length = norms.shape[1]
    scales = np.array([time_scale(row) for row in norms])
    typical, longest = float(np.nanmedian(scales)), float(np.nanmax(scales))
    profile = np.median(norms, 0)
    numbers = {
        "length": length,
        "time_scale_typical": typical,
        "time_scale_longest": longest,
        "time_scale_shortest": float(np.nanmin(scales)),
        "horizon_limited": longest > _CUT_OFF * length,
        "depends_on_input": bool(np.ptp(norms, axis=0).max() > 1e-6 * norms.max()),
        "last_over_first": float(profile[-1] / profile[0]) if profile[0] else float("nan"),
        "sequences": len(norms),
    }
    more = " or more" if numbers["horizon_limited"] else ""
    kind = "" if numbers["depends_on_input"] else " The gradient is the same for all inputs: the module is linear."
    well = (
        f"63 % of the gradient by lag lies within {show(typical)} steps for typical inputs, {show(longest)}{more} for "
        f"the longest of {len(norms)} (measured over {length}).{kind}"
    )
    row = int(np.nanargmax(scales))
    curves = [curve("gradient", "typical", profile), curve("gradient", "longest", norms[row])]
    return finding("gradient", well, numbers, curves=curves)


def _gradients(subject: Subject, length: int) -> np.ndarray | None:
    """Frobenius norms by lag ``[S, T]``, from random projections where there are many outputs; None: too large."""
    dtype = subject.reference
    sizes = _INPUTS if not subject.tokens else _INPUTS[:4]
    sequences = torch.cat([subject.noise(1, length, 20 + row, size) for row, size in enumerate(sizes)])
    module = subject.at(dtype)
    rows = []
    with torch.no_grad(), default_dtype(dtype):
        outputs = first(module(subject.cast(sequences[:1], dtype))).shape[-1]
    projections = torch.eye(outputs, dtype=torch.float64)
    if outputs > _PROJECTIONS:
        projections = torch.randn(
            _PROJECTIONS, outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        projections /= _PROJECTIONS**0.5
    together = max(1, subject.together(length, dtype) // 4)
    for some in sequences.repeat_interleave(len(projections), 0).split(together):
        rows.append(some)
    directions = projections.repeat(len(sequences), 1).split(together)
    squares = [_squares(subject, part, towards) for part, towards in zip(rows, directions, strict=True)]
    by_lag = torch.cat(squares).flip(1).unflatten(0, (len(sequences), len(projections))).sum(1)
    return by_lag.sqrt().numpy()


def _squares(subject: Subject, inputs: Tensor, projections: Tensor) -> Tensor:
    """Squared norms of the gradients of projected last outputs with respect to each step's input: ``[S, T]``."""
    dtype = subject.reference
    module = subject.at(dtype)
    read: list[Tensor] = []

    def embedded(_module: object, _inputs: object, answer: Tensor) -> Tensor:
        if not read:
            read.append(answer.detach().requires_grad_())
            return read[0]
        return answer

    given = subject.cast(inputs, dtype)
    hooks = []
    if subject.tokens:
        tables = [part for part in module.modules() if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag)]
        if not tables:
            raise RuntimeError("ids have no gradient, and the module has no torch.nn.Embedding that reads them")
        hooks = [table.register_forward_hook(embedded) for table in tables]
    else:
        given = given.requires_grad_()
        read.append(given)
    try:
        with default_dtype(dtype), torch.enable_grad():
            answer = first(module(given))
            (slope,) = torch.autograd.grad((answer[:, -1] * projections.to(answer)).sum(), read[0])
    finally:
        for hook in hooks:
            hook.remove()
    return slope.to("cpu", torch.float64).flatten(2).square().sum(-1)


def capacity(subject: Subject, seconds: float) -> Finding:
    """The effective state size: the rank of the map from inputs before the middle of a sequence to outputs behind it.

    The map is the block of derivatives at a sequence. All that it passes on goes through the state at the middle, so
    that its rank is at most the numbers in that state. Of a linear module it is the Hankel matrix, at any input.
    """
    if subject.tokens:
        return not_measured("capacity", "outputs have no derivative by ids.", Status.SKIP)
    values_SR = np.empty((0, 0))
    try:
        for length in affordable([each for each in subject.lengths() if each > 1], seconds):
            values_SR, reached = np.stack([_block_values(subject, length, size) for size in sorted({*_INPUTS})]), length
    except RuntimeError as error:
        return not_measured("capacity", f"{(str(error).splitlines() or [''])[0][:200]}.")
    values_SR = values_SR[np.isfinite(values_SR).all(1)] if values_SR.size else values_SR
    if not values_SR.size or not values_SR.any():
        return not_measured("capacity", "no finite derivative of a later output reaches the inputs.")
    shares_SR = values_SR / values_SR.max(1, keepdims=True).clip(min=np.finfo(float).tiny)
    counts = {name: (shares_SR > share).sum(1) for name, share in _SIZES.items()}
    numbers: dict[str, Any] = {"length": reached, "most_possible": values_SR.shape[1], "sequences": len(values_SR)}
    for name, count in counts.items():
        numbers |= {name: float(np.median(count)), f"{name}_least": int(count.min()), f"{name}_most": int(count.max())}
    least, most = numbers["size_least"], numbers["size_most"]
    span = f"{least} to {most} over {len(values_SR)} inputs" if least < most else f"over {len(values_SR)} inputs"
    cut = " or more" if numbers["size_fine_most"] == values_SR.shape[1] else ""
    well = (
        f"Behind the middle of {reached} steps, outputs depend on {numbers['size']:g} numbers of the past above 1 % of "
        f"the largest ({span}), and on {numbers['size_fine']:g}{cut} above a millionth."
    )
    return finding("capacity", well, numbers, curves=[curve("capacity", "typical", np.median(shares_SR, 0), start=1)])


def _block_values(subject: Subject, length: int, scale: float) -> np.ndarray:
    """The singular values of the block at noise of a size, ``[R]``, decreasing."""
    dtype = subject.reference
    module, noise = subject.at(dtype), subject.cast(subject.noise(1, length, 30, scale), dtype)
    with default_dtype(dtype):
        together = max(1, subject.together(length, dtype) // 4)
        found: np.ndarray = block_values(lambda inputs: first(module(inputs)), noise, together).numpy()
    return found
