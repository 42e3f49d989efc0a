"""The Triton kernels of ``memsweep.recurrence.triton.layer``. Importing this file imports Triton.

A program has one model and a few sequences; its states, [UNITS, SEQUENCES], stay in registers through the loop over
time. UNITS is the width, padded: padding is zero in every weight, and kept zero. The kernels are Triton's language, not
Python: types are not checked, and constants are in capitals.

What a program sums over its sequences it writes to its own row of ``partial``, and ``summed`` adds the rows in their
order: no number depends on which program ended first. Columns of a row, with M the width: the loss, 1; the gradients by
the offset, O; bias, M; encoder, I M; readout, O M; and by the matrix, M or M M.

States that are kept have the time first, [T + 1, S, M] with S the sequences of a launch, so that what a step reads lies
together, and begin with a row of zeros, h_{-1}.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from memsweep.recurrence.triton.scan_kernels import _answer, _slope

_COUNTS = ["first", "sequences", "batch", "all_blocks", "row_length", "horizon"]
# compiled once for all batches and horizons: Triton would make a kernel of its own, and a constant, where a count is 1


@triton.jit
def _gathered(total, left, right, index, COUNT: tl.constexpr, PADDED: tl.constexpr):
    """Adds left [UNITS, SEQUENCES] times right [SEQUENCES] to column ``index`` of COUNT; a single column stays spread
    over the sequences until the end."""
    if COUNT == 1:
        total += left * right[None, :]
    else:
        column = tl.sum(left * right[None, :], 1)
        total += tl.where(tl.arange(0, PADDED)[None, :] == index, column[:, None], 0.0)
    return total


@triton.jit
def _store_columns(at, total, units, WIDTH: tl.constexpr, COUNT: tl.constexpr, PADDED: tl.constexpr):
    if COUNT == 1:
        tl.store(at + units, tl.sum(total, 1), mask=units < WIDTH)
    else:
        columns = tl.arange(0, PADDED)
        exists = (units[:, None] < WIDTH) & (columns[None, :] < COUNT)
        tl.store(at + columns[None, :] * WIDTH + units[:, None], total, mask=exists)


@triton.jit
def _matrix(matrix, units, WIDTH: tl.constexpr, DENSE: tl.constexpr, BACK: tl.constexpr):
    """A or, to go back, its transpose, [UNITS, UNITS]; of a diagonal, [UNITS, 1]."""
    model = tl.program_id(0).to(tl.int64)
    if DENSE:
        rows, columns = units[:, None], units[None, :]
        exists = (rows < WIDTH) & (columns < WIDTH)
        places = columns * WIDTH + rows if BACK else rows * WIDTH + columns
        found = tl.load(matrix + model * WIDTH * WIDTH + places, mask=exists, other=0.0)
    else:
        found = tl.load(matrix + model * WIDTH + units, mask=units < WIDTH, other=0.0)[:, None]
    return found


@triton.jit(do_not_specialize=_COUNTS)
def forward(
    x, encoder, bias, matrix, readout, offset, target, weight, y, states, partial,
    first, sequences, batch, all_blocks, row_length, horizon,
    WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, UNITS: tl.constexpr,
    SEQUENCES: tl.constexpr, PADDED_INPUTS: tl.constexpr, PADDED_OUTPUTS: tl.constexpr, DENSE: tl.constexpr,
    SIGMA: tl.constexpr, TAU: tl.constexpr, CARRIED: tl.constexpr, KEEP: tl.constexpr, ANSWERS: tl.constexpr,
    JUDGED: tl.constexpr,
):  # fmt: skip
    """Runs ``sequences`` sequences from ``first`` on. KEEP: stores the states. ANSWERS: stores y, [N, B, T, O].
    JUDGED: sums w (y - target)^2 into ``partial`` and, with KEEP, stores its gradient by y where y would be."""
    model, units = tl.program_id(0).to(tl.int64), tl.arange(0, UNITS)
    local = tl.program_id(1) * SEQUENCES + tl.arange(0, SEQUENCES)
    here, rows = local < sequences, (first + local).to(tl.int64)
    real = units < WIDTH
    exists = real[:, None] & here[None, :]
    unit = model * WIDTH + units
    b = tl.load(bias + unit, mask=real, other=0.0)
    a = _matrix(matrix, units, WIDTH, DENSE, False)
    h = tl.zeros((UNITS, SEQUENCES), b.dtype)
    loss = tl.zeros((SEQUENCES,), b.dtype)
    place = (model * (horizon + 1) * sequences + local[None, :]) * WIDTH + units[:, None]
    if KEEP:
        tl.store(states + place, h, mask=exists)
    for t in range(horizon):
        z = tl.zeros((UNITS, SEQUENCES), b.dtype) + b[:, None]
        for i in range(INPUTS):
            u = tl.load(encoder + unit * INPUTS + i, mask=real, other=0.0)
            z += u[:, None] * tl.load(x + (rows * horizon + t) * INPUTS + i, mask=here, other=0.0)[None, :]
        if DENSE:
            z = tl.dot(a, h, acc=z, input_precision="ieee", out_dtype=z.dtype)
        else:
            z += a * h
        answer = _answer(z, SIGMA)
        h = h + answer if CARRIED else answer
        h = tl.where(real[:, None], h, 0.0)  # padding would become 0 times infinity where a state overflows
        if KEEP:
            place += sequences.to(tl.int64) * WIDTH
            tl.store(states + place, h, mask=exists)
        if ANSWERS or JUDGED:
            shown = _answer(h, TAU)
            w = tl.load(weight + t) if JUDGED else 0.0
            for o in range(OUTPUTS):
                c = tl.load(readout + (model * OUTPUTS + o) * WIDTH + units, mask=real, other=0.0)
                answers = tl.sum(c[:, None] * shown, 0) + tl.load(offset + model * OUTPUTS + o)
                if JUDGED:
                    aim = tl.load(target + (rows * horizon + t) * OUTPUTS + o, mask=here, other=0.0)
                    answers = answers - aim
                    loss += tl.where(here, w * answers * answers, 0.0)
                    answers = 2.0 * w * answers
                if ANSWERS or KEEP:
                    tl.store(y + ((model * batch + rows) * horizon + t) * OUTPUTS + o, answers, mask=here)
    if JUDGED:
        block = first // SEQUENCES + tl.program_id(1)
        tl.store(partial + (model * all_blocks + block) * row_length, tl.sum(loss, 0))


@triton.jit(do_not_specialize=_COUNTS)
def backward(
    x, matrix, readout, grad, states, partial,
    first, sequences, batch, all_blocks, row_length, horizon,
    WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, UNITS: tl.constexpr,
    SEQUENCES: tl.constexpr, PADDED_INPUTS: tl.constexpr, PADDED_OUTPUTS: tl.constexpr, DENSE: tl.constexpr,
    SIGMA: tl.constexpr, TAU: tl.constexpr, CARRIED: tl.constexpr,
):  # fmt: skip
    """From the gradient by y to those by the weights: e_t = sigma'_t g_t with
    g_{t-1} = tau'_{t-1} c' dy_{t-1} + carried g_t + A' e_t."""
    model, units = tl.program_id(0).to(tl.int64), tl.arange(0, UNITS)
    local = tl.program_id(1) * SEQUENCES + tl.arange(0, SEQUENCES)
    here, rows = local < sequences, (first + local).to(tl.int64)
    real = units < WIDTH
    exists = real[:, None] & here[None, :]
    back = _matrix(matrix, units, WIDTH, DENSE, True)
    step = sequences.to(tl.int64) * WIDTH
    place = (model * (horizon + 1) * sequences + local[None, :]) * WIDTH + units[:, None] + horizon * step
    h = tl.load(states + place, mask=exists, other=0.0)
    later = tl.zeros((UNITS, SEQUENCES), h.dtype)
    of_bias = later
    of_matrix = tl.zeros((UNITS, UNITS if DENSE else SEQUENCES), h.dtype)
    of_encoder = tl.zeros((UNITS, SEQUENCES if INPUTS == 1 else PADDED_INPUTS), h.dtype)
    of_readout = tl.zeros((UNITS, SEQUENCES if OUTPUTS == 1 else PADDED_OUTPUTS), h.dtype)
    of_offset = tl.zeros((PADDED_OUTPUTS,), h.dtype)
    for past in range(horizon):
        t = horizon - 1 - past
        place -= step
        before = tl.load(states + place, mask=exists, other=0.0)
        shown = _answer(h, TAU)
        pushed = tl.zeros((UNITS, SEQUENCES), h.dtype)
        for o in range(OUTPUTS):
            dy = tl.load(grad + ((model * batch + rows) * horizon + t) * OUTPUTS + o, mask=here, other=0.0)
            c = tl.load(readout + (model * OUTPUTS + o) * WIDTH + units, mask=real, other=0.0)
            pushed += c[:, None] * dy[None, :]
            of_readout = _gathered(of_readout, shown, dy, o, OUTPUTS, PADDED_OUTPUTS)
            of_offset += tl.where(tl.arange(0, PADDED_OUTPUTS) == o, tl.sum(dy, 0), 0.0)
        # tau acts outside of the recurrence, so that its slope follows from its own answer
        whole = later + _slope(shown, tl.zeros((UNITS, SEQUENCES), h.dtype), TAU) * pushed
        e = _slope(h, before if CARRIED else tl.zeros((UNITS, SEQUENCES), h.dtype), SIGMA) * whole
        e = tl.where(exists, e, 0.0)  # as for the states
        of_bias += e
        for i in range(INPUTS):
            seen = tl.load(x + (rows * horizon + t) * INPUTS + i, mask=here, other=0.0)
            of_encoder = _gathered(of_encoder, e, seen, i, INPUTS, PADDED_INPUTS)
        linked = tl.where(exists & (t > 0), e, 0.0)  # h_{-1} is no state: its zeros must not meet an infinite error
        if DENSE:
            of_matrix = tl.dot(linked, tl.trans(before), acc=of_matrix, input_precision="ieee", out_dtype=h.dtype)
            later = tl.dot(back, e, input_precision="ieee", out_dtype=h.dtype)
        else:
            of_matrix += linked * before
            later = back * e
        if CARRIED:
            later += whole
        h = before
    at = partial + (model * all_blocks + first // SEQUENCES + tl.program_id(1)) * row_length + 1
    outputs = tl.arange(0, PADDED_OUTPUTS)
    tl.store(at + outputs, of_offset, mask=outputs < OUTPUTS)
    at += OUTPUTS
    _store_columns(at, of_bias, units, WIDTH, 1, 1)
    _store_columns(at + WIDTH, of_encoder, units, WIDTH, INPUTS, PADDED_INPUTS)
    at += WIDTH + INPUTS * WIDTH
    _store_columns(at, of_readout, units, WIDTH, OUTPUTS, PADDED_OUTPUTS)
    at += OUTPUTS * WIDTH
    if DENSE:
        exists = real[:, None] & real[None, :]
        tl.store(at + units[:, None] * WIDTH + units[None, :], of_matrix, mask=exists)
    else:
        _store_columns(at, of_matrix, units, WIDTH, 1, 1)


@triton.jit(do_not_specialize=["row_length"])
def summed(partial, found, row_length, BLOCKS: tl.constexpr, COLUMNS: tl.constexpr):
    """Adds the rows of every model, first to last."""
    model, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    exists = columns < row_length
    total = tl.load(partial + model * BLOCKS * row_length + columns, mask=exists, other=0.0)
    for block in range(1, BLOCKS):
        total += tl.load(partial + (model * BLOCKS + block) * row_length + columns, mask=exists, other=0.0)
    tl.store(found + model * row_length + columns, total, mask=exists)
