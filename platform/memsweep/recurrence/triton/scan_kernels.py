"""The Triton kernels of ``memsweep.recurrence.triton.scan``. Importing this file imports Triton.

A program has the states of one model for a few sequences, [UNITS, SEQUENCES]; UNITS is the width, padded. The kernels
are Triton's language, not Python: types are not checked, and constants are in capitals.

A dense product reads the states of the step before from where they were stored, after a barrier: float64 has no
product of tiles in registers on every card.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

_COUNTS = ["batch", "horizon"]
# compiled once for all batches and horizons: Triton would make a kernel of its own where a count is 1


@triton.jit
def _answer(z, SIGMA: tl.constexpr):
    """sigma(z); a NaN stays one."""
    if SIGMA == 1:
        z = tl.where(z > 1.0, 1.0, z)
        z = tl.where(z < -1.0, -1.0, z)
    elif SIGMA == 2:
        # through e^-2|z|, which cannot overflow; near 0, where 1 - e^-2|z| cancels, by the series
        size = tl.abs(z)
        small = tl.exp(-2.0 * size)
        far = (1.0 - small) / (1.0 + small)
        s = z * z
        series = 1.0 + s * (-1.0 / 3 + s * (2.0 / 15 + s * (-17.0 / 315 + s * (62.0 / 2835 + s * (-1382.0 / 155925)))))
        series_more = s * s * s * s * s * s * (21844.0 / 6081075 + s * (-929569.0 / 638512875))
        z = tl.where(size < 0.15, z * (series + series_more), tl.where(z < 0, -far, far))
    elif SIGMA == 3:
        z = tl.where(z < 0.0, 0.0, z)
    return z


@triton.jit
def _slope(state, carried, SIGMA: tl.constexpr):
    """sigma' from the state and what was carried into it: a clipped answer is known by the sum that it gave."""
    slope = tl.full(state.shape, 1.0, state.dtype)
    if SIGMA == 1:
        slope = tl.where((state == carried + 1.0) | (state == carried - 1.0), 0.0, slope)
    elif SIGMA == 2:
        slope = 1.0 - (state - carried) * (state - carried)
    elif SIGMA == 3:
        slope = tl.where(state == carried, 0.0, slope)
    return slope


@triton.jit
def _places(batch, horizon, WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr):
    """Offsets of the program's states at step 0, which of them exist, and the two axes."""
    units, rows = tl.arange(0, UNITS), tl.program_id(1) * SEQUENCES + tl.arange(0, SEQUENCES)
    starts = (tl.program_id(0).to(tl.int64) * batch + rows) * horizon * WIDTH
    exists = (units[:, None] < WIDTH) & (rows[None, :] < batch)
    return starts[None, :] + units[:, None], exists, units, starts, rows


@triton.jit
def _product(
    matrix, values, starts, rows, batch, units, WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr
):
    """matrix times the values [width, sequences] that are stored at ``starts``."""
    total = tl.zeros((UNITS, SEQUENCES), values.dtype.element_ty)
    base = tl.program_id(0).to(tl.int64) * WIDTH * WIDTH
    for j in range(WIDTH):
        column = tl.load(matrix + base + units * WIDTH + j, mask=units < WIDTH, other=0.0)
        row = tl.load(values + starts + j, mask=rows < batch, other=0.0)
        total += column[:, None] * row[None, :]
    return total


@triton.jit(do_not_specialize=_COUNTS)
def states(
    drive, matrix, found, batch, horizon, WIDTH: tl.constexpr,
    UNITS: tl.constexpr, SEQUENCES: tl.constexpr, DENSE: tl.constexpr, SIGMA: tl.constexpr, CARRIED: tl.constexpr,
):  # fmt: skip
    """h_t = carried h_{t-1} + sigma(x_t + A h_{t-1})."""
    places, exists, units, starts, rows = _places(batch, horizon, WIDTH, UNITS, SEQUENCES)
    h = tl.zeros((UNITS, SEQUENCES), drive.dtype.element_ty)
    a = h
    if not DENSE:
        a += tl.load(matrix + tl.program_id(0) * WIDTH + units, mask=units < WIDTH, other=0.0)[:, None]
    for t in range(horizon):
        z = tl.load(drive + places + t * WIDTH, mask=exists, other=0.0)
        if DENSE:
            if t > 0:
                before = starts + (t - 1) * WIDTH
                z += _product(matrix, found, before, rows, batch, units, WIDTH, UNITS, SEQUENCES)
        else:
            z += a * h
        answer = _answer(z, SIGMA)
        h = h + answer if CARRIED else answer
        tl.store(found + places + t * WIDTH, h, mask=exists)
        if DENSE:
            tl.debug_barrier()


@triton.jit(do_not_specialize=_COUNTS)
def errors(
    grad, series, back, found, batch, horizon, WIDTH: tl.constexpr,
    UNITS: tl.constexpr, SEQUENCES: tl.constexpr, DENSE: tl.constexpr, SIGMA: tl.constexpr, CARRIED: tl.constexpr,
):  # fmt: skip
    """e_t = sigma'_t g_t with g_{t-1} = l_{t-1} + carried g_t + A' e_t, from the last step to the first."""
    places, exists, units, starts, rows = _places(batch, horizon, WIDTH, UNITS, SEQUENCES)
    later = tl.zeros((UNITS, SEQUENCES), grad.dtype.element_ty)
    a = later
    if not DENSE:
        a += tl.load(back + tl.program_id(0) * WIDTH + units, mask=units < WIDTH, other=0.0)[:, None]
    for step in range(horizon):
        t = horizon - 1 - step
        h = tl.load(series + places + t * WIDTH, mask=exists, other=0.0)
        carried = tl.zeros((UNITS, SEQUENCES), grad.dtype.element_ty)
        if CARRIED:
            carried = tl.load(series + places + (t - 1) * WIDTH, mask=exists & (t > 0), other=0.0)
        whole = tl.load(grad + places + t * WIDTH, mask=exists, other=0.0) + later
        e = _slope(h, carried, SIGMA) * whole
        tl.store(found + places + t * WIDTH, e, mask=exists)
        if DENSE:
            tl.debug_barrier()
            later = _product(back, found, starts + t * WIDTH, rows, batch, units, WIDTH, UNITS, SEQUENCES)
        else:
            later = a * e
        if CARRIED:
            later += whole


@triton.jit
def _complex_eigenvalues(matrix, units, WIDTH: tl.constexpr):
    at = (tl.program_id(0) * WIDTH + units) * 2
    re = tl.load(matrix + at, mask=units < WIDTH, other=0.0)
    im = tl.load(matrix + at + 1, mask=units < WIDTH, other=0.0)
    return re[:, None], im[:, None]


@triton.jit(do_not_specialize=_COUNTS)
def complex_states(
    drive, matrix, found, batch, horizon,
    WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    """h_t = lambda h_{t-1} + x_t in complex numbers, stored as pairs of real ones."""
    places, exists, units, _, _ = _places(batch, horizon, WIDTH, UNITS, SEQUENCES)
    a, b = _complex_eigenvalues(matrix, units, WIDTH)
    re = tl.zeros((UNITS, SEQUENCES), drive.dtype.element_ty)
    im = re
    for t in range(horizon):
        at = 2 * (places + t * WIDTH)
        x, y = tl.load(drive + at, mask=exists, other=0.0), tl.load(drive + at + 1, mask=exists, other=0.0)
        re, im = x + a * re - b * im, y + a * im + b * re
        tl.store(found + at, re, mask=exists)
        tl.store(found + at + 1, im, mask=exists)


@triton.jit(do_not_specialize=_COUNTS)
def complex_errors(
    grad, series, back, found, batch, horizon,
    WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    """g_{t-1} = l_{t-1} + conj(lambda) g_t; ``back`` holds the conjugates."""
    places, exists, units, _, _ = _places(batch, horizon, WIDTH, UNITS, SEQUENCES)
    a, b = _complex_eigenvalues(back, units, WIDTH)
    re = tl.zeros((UNITS, SEQUENCES), grad.dtype.element_ty)
    im = re
    for step in range(horizon):
        at = 2 * (places + (horizon - 1 - step) * WIDTH)
        x, y = tl.load(grad + at, mask=exists, other=0.0), tl.load(grad + at + 1, mask=exists, other=0.0)
        re, im = x + a * re - b * im, y + a * im + b * re
        tl.store(found + at, re, mask=exists)
        tl.store(found + at + 1, im, mask=exists)
