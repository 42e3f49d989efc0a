"""The gradient of an output with respect to earlier inputs, by the lag.

Letters: S sequences, P projections, T time (length).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from memsweep.checks.finding import Finding, curve, finding, not_measured, show
from memsweep.checks.memory.scale import CUT_OFF, SIZES, finite_rows, time_scale
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject, first
from memsweep.models.contracts import default_dtype

_PROJECTIONS = 4


def gradient(subject: Subject, seconds: float) -> Finding:
    """|dy_T / dx_(T-k)| by the lag k, along several inputs: the typical one and the one with the longest memory."""
    norms, signed = np.empty((0, 0)), np.empty((0, 0, 0))
    try:
        for length in subject.affordable(subject.lengths(), seconds):
            norms, signed = _gradients(subject, length)
    except RuntimeError as error:
        return not_measured("gradient", f"{(str(error).splitlines() or [''])[0][:200]}.")
    signed = signed[np.isfinite(norms).all(-1)]
    norms, notes = finite_rows(norms, "inputs, whose gradients")
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
        "horizon_limited": longest > CUT_OFF * length,
        "depends_on_input": bool(np.ptp(signed, axis=0).max() > 1e-6 * norms.max()) if len(norms) > 1 else None,
        "last_over_first": float(profile[-1] / profile[0]) if profile[0] else None,
        "sequences": len(norms),
    }
    more = " or more" if numbers["horizon_limited"] else ""
    same = f" The gradient is the same for all {len(norms)} inputs, as that of a linear module."
    kind = same if numbers["depends_on_input"] is False else ""
    well = (
        f"63 % of the gradient by lag lies within {show(typical)} steps for typical inputs, {show(longest)}{more} for "
        f"the longest of {len(norms)} (measured over {length}).{kind}"
    )
    row = int(np.nanargmax(scales))
    curves = [curve("gradient", "typical", profile), curve("gradient", "longest", norms[row])]
    return finding("gradient", well, numbers, notes=[well, *notes] if notes else [], curves=curves)


def _gradients(subject: Subject, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Frobenius norms by lag ``[S, T]``, and signed numbers ``[S, P, T]`` that are equal where the gradients are.

    From random projections where there are many outputs.
    """
    dtype = subject.reference
    sizes = SIZES if not subject.tokens else SIZES[:4]
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
    parts = [_parts(subject, part, towards) for part, towards in zip(rows, directions, strict=True)]
    squares, signed = (
        torch.cat(each).flip(1).unflatten(0, (len(sequences), len(projections))) for each in zip(*parts, strict=True)
    )
    return squares.sum(1).sqrt().numpy(), signed.numpy()


def _parts(subject: Subject, inputs: Tensor, projections: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of projected last outputs by each step's input: squared norms, and parts along one direction.

    Both are ``[S, T]``. Gradients that differ have other parts along a random direction, whatever their norms.
    """
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
    slope = slope.to("cpu", torch.float64).flatten(2)
    direction = torch.randn(slope.shape[-1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return slope.square().sum(-1), slope @ (direction / direction.norm())


CHECK = Check("gradient", gradient, place=90, share=0.08)
