"""The Triton kernels of ``memsweep.recurrence.triton.gated``. Importing this file imports Triton.

A program has one model and a few sequences, [UNITS, SEQUENCES]; UNITS is the width, padded. Series are [N, B, T, G] and
[N, B, T, M]: what a step reads of a sequence lies together. The kernels are Triton's language, not Python: types are
not checked, and constants are in capitals.

Products with U go column by column. They read states, or errors, from where they were stored, after a barrier: a
product of tiles with the matrices of three or four gates needs more than a multiprocessor holds from width 64 on.

The equations are those of memsweep.recurrence.gated.gru and memsweep.recurrence.gated.lstm.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from memsweep.recurrence.triton.scan_kernels import _answer

_COUNTS = ["batch", "horizon"]
# compiled once for all batches and horizons: Triton would make a kernel of its own where a count is 1


@triton.jit
def _sigmoid(z):
    """Through e^-|z|, which cannot overflow."""
    small = tl.exp(-tl.abs(z))
    return tl.where(z < 0.0, small, 1.0) / (1.0 + small)


@triton.jit
def _rows(batch, SEQUENCES: tl.constexpr):
    """The program's sequences, which of them exist, and their places among those of all models."""
    rows = tl.program_id(1) * SEQUENCES + tl.arange(0, SEQUENCES)
    return rows < batch, tl.program_id(0).to(tl.int64) * batch + rows


@triton.jit
def _pulled(total, matrix, errors, starts, here, GATES: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr):
    """total + U' e, of errors that are stored at ``starts``."""
    units = tl.arange(0, UNITS)
    base = matrix + tl.program_id(0).to(tl.int64) * GATES * WIDTH * WIDTH + units
    for k in range(GATES * WIDTH):
        u = tl.load(base + k * WIDTH, mask=units < WIDTH, other=0.0)
        total += u[:, None] * tl.load(errors + starts + k, mask=here, other=0.0)[None, :]
    return total


@triton.jit(do_not_specialize=_COUNTS)
def gru_forward(
    drive, turned, recalled, states, gates, memory, batch, horizon,
    WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """``turned``: U transposed, [N, M, G]. KEEP: stores r, z and n, one behind the other, and q."""
    units, (here, rows) = tl.arange(0, UNITS), _rows(batch, SEQUENCES)
    exists = (units[:, None] < WIDTH) & here[None, :]
    model = tl.program_id(0).to(tl.int64)
    c = tl.load(recalled + model * WIDTH + units, mask=units < WIDTH, other=0.0)
    h = tl.zeros((UNITS, SEQUENCES), c.dtype)
    for t in range(horizon):
        starts = (rows * horizon + t) * WIDTH
        place, wide = starts[None, :] + units[:, None], 3 * starts[None, :] + units[:, None]
        r = tl.load(drive + wide, mask=exists, other=0.0)
        z = tl.load(drive + wide + WIDTH, mask=exists, other=0.0)
        n = tl.load(drive + wide + 2 * WIDTH, mask=exists, other=0.0)
        q = tl.zeros((UNITS, SEQUENCES), c.dtype) + c[:, None]
        if t > 0:
            for j in range(WIDTH):
                before = tl.load(states + starts - WIDTH + j, mask=here, other=0.0)[None, :]
                column = turned + (model * WIDTH + j) * 3 * WIDTH + units
                r += tl.load(column, mask=units < WIDTH, other=0.0)[:, None] * before
                z += tl.load(column + WIDTH, mask=units < WIDTH, other=0.0)[:, None] * before
                q += tl.load(column + 2 * WIDTH, mask=units < WIDTH, other=0.0)[:, None] * before
        r, z = _sigmoid(r), _sigmoid(z)
        n = _answer(n + r * q, 2)
        h = h + z * (n - h)
        tl.store(states + place, h, mask=exists)
        if KEEP:
            tl.store(gates + wide, r, mask=exists)
            tl.store(gates + wide + WIDTH, z, mask=exists)
            tl.store(gates + wide + 2 * WIDTH, n, mask=exists)
            tl.store(memory + place, q, mask=exists)
        tl.debug_barrier()  # every thread of the program reads all units


@triton.jit(do_not_specialize=_COUNTS)
def gru_backward(
    grad, matrix, states, gates, memory, of_sums, of_candidate, batch, horizon,
    WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    """From the gradient by h to those by the sums U h, and by a^n, which does not pass the reset gate."""
    units, (here, rows) = tl.arange(0, UNITS), _rows(batch, SEQUENCES)
    exists = (units[:, None] < WIDTH) & here[None, :]
    later = tl.zeros((UNITS, SEQUENCES), grad.dtype.element_ty)
    for past in range(horizon):
        t = horizon - 1 - past
        starts = (rows * horizon + t) * WIDTH
        place, wide = starts[None, :] + units[:, None], 3 * starts[None, :] + units[:, None]
        g = later + tl.load(grad + place, mask=exists, other=0.0)
        r = tl.load(gates + wide, mask=exists, other=0.0)
        z = tl.load(gates + wide + WIDTH, mask=exists, other=0.0)
        n = tl.load(gates + wide + 2 * WIDTH, mask=exists, other=0.0)
        q = tl.load(memory + place, mask=exists, other=0.0)
        before = tl.load(states + place - tl.where(t > 0, WIDTH, 0), mask=exists, other=0.0)
        before = tl.where(t > 0, before, 0.0)
        of_n = z * (1.0 - n * n) * g
        tl.store(of_candidate + place, of_n, mask=exists)
        tl.store(of_sums + wide, of_n * q * r * (1.0 - r), mask=exists)
        tl.store(of_sums + wide + WIDTH, (n - before) * z * (1.0 - z) * g, mask=exists)
        tl.store(of_sums + wide + 2 * WIDTH, of_n * r, mask=exists)
        tl.debug_barrier()
        later = _pulled((1.0 - z) * g, matrix, of_sums, 3 * starts, here, 3, WIDTH, UNITS)


@triton.jit(do_not_specialize=_COUNTS)
def lstm_forward(
    drive, turned, states, gates, cells, batch, horizon,
    WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """``turned``: U transposed, [N, M, G]. KEEP: stores i, f, o and g, one behind the other, and c."""
    units, (here, rows) = tl.arange(0, UNITS), _rows(batch, SEQUENCES)
    exists = (units[:, None] < WIDTH) & here[None, :]
    model = tl.program_id(0).to(tl.int64)
    c = tl.zeros((UNITS, SEQUENCES), drive.dtype.element_ty)
    for t in range(horizon):
        starts = (rows * horizon + t) * WIDTH
        place, wide = starts[None, :] + units[:, None], 4 * starts[None, :] + units[:, None]
        i = tl.load(drive + wide, mask=exists, other=0.0)
        f = tl.load(drive + wide + WIDTH, mask=exists, other=0.0)
        o = tl.load(drive + wide + 2 * WIDTH, mask=exists, other=0.0)
        g = tl.load(drive + wide + 3 * WIDTH, mask=exists, other=0.0)
        if t > 0:
            for j in range(WIDTH):
                before = tl.load(states + starts - WIDTH + j, mask=here, other=0.0)[None, :]
                column = turned + (model * WIDTH + j) * 4 * WIDTH + units
                i += tl.load(column, mask=units < WIDTH, other=0.0)[:, None] * before
                f += tl.load(column + WIDTH, mask=units < WIDTH, other=0.0)[:, None] * before
                o += tl.load(column + 2 * WIDTH, mask=units < WIDTH, other=0.0)[:, None] * before
                g += tl.load(column + 3 * WIDTH, mask=units < WIDTH, other=0.0)[:, None] * before
        i, f, o, g = _sigmoid(i), _sigmoid(f), _sigmoid(o), _answer(g, 2)
        c = f * c + i * g
        tl.store(states + place, o * _answer(c, 2), mask=exists)
        if KEEP:
            tl.store(gates + wide, i, mask=exists)
            tl.store(gates + wide + WIDTH, f, mask=exists)
            tl.store(gates + wide + 2 * WIDTH, o, mask=exists)
            tl.store(gates + wide + 3 * WIDTH, g, mask=exists)
            tl.store(cells + place, c, mask=exists)
        tl.debug_barrier()


@triton.jit(do_not_specialize=_COUNTS)
def lstm_backward(
    grad, matrix, gates, cells, of_sums, batch, horizon,
    WIDTH: tl.constexpr, UNITS: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    """From the gradient by h to that by the sums a + U h."""
    units, (here, rows) = tl.arange(0, UNITS), _rows(batch, SEQUENCES)
    exists = (units[:, None] < WIDTH) & here[None, :]
    later = tl.zeros((UNITS, SEQUENCES), grad.dtype.element_ty)
    pushed = later  # the gradient by c, through everything later
    for past in range(horizon):
        t = horizon - 1 - past
        starts = (rows * horizon + t) * WIDTH
        place, wide = starts[None, :] + units[:, None], 4 * starts[None, :] + units[:, None]
        of_h = later + tl.load(grad + place, mask=exists, other=0.0)
        i = tl.load(gates + wide, mask=exists, other=0.0)
        f = tl.load(gates + wide + WIDTH, mask=exists, other=0.0)
        o = tl.load(gates + wide + 2 * WIDTH, mask=exists, other=0.0)
        g = tl.load(gates + wide + 3 * WIDTH, mask=exists, other=0.0)
        shown = _answer(tl.load(cells + place, mask=exists, other=0.0), 2)
        before = tl.load(cells + place - tl.where(t > 0, WIDTH, 0), mask=exists, other=0.0)
        before = tl.where(t > 0, before, 0.0)
        pushed += o * (1.0 - shown * shown) * of_h
        tl.store(of_sums + wide, g * i * (1.0 - i) * pushed, mask=exists)
        tl.store(of_sums + wide + WIDTH, before * f * (1.0 - f) * pushed, mask=exists)
        tl.store(of_sums + wide + 2 * WIDTH, shown * o * (1.0 - o) * of_h, mask=exists)
        tl.store(of_sums + wide + 3 * WIDTH, i * (1.0 - g * g) * pushed, mask=exists)
        pushed *= f
        tl.debug_barrier()
        later = tl.zeros((UNITS, SEQUENCES), grad.dtype.element_ty)
        later = _pulled(later, matrix, of_sums, 4 * starts, here, 4, WIDTH, UNITS)
