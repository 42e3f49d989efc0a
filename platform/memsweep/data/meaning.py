"""The meaning of a task's numbers, of tasks of others: whether a loss is a mean, streams differ, levels can be ones.

Letters: see memsweep.data.contract.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from memsweep.config.load.foreign import foreign_code
from memsweep.errors import ModuleError
from memsweep.streams import TEST, TRAIN, Stream

MANY, LEAST = 64, 16
"""B of what shows the meaning of the numbers, where memory allows it; and the fewest sequences that do."""
NUMBERS = 2**22
"""The most numbers in inputs or outputs of that batch."""
TOLERANCE = 0.1
"""How far the loss of the same sequences twice may be from their loss; for a mean only rounding parts them."""
ROOM = 0.2
"""The part of the loss of zeros by which a chance level may exceed it, besides five standard errors."""
ROUNDING = 1e-4
"""How far two computations of one loss may be apart."""


def called(what: str, call: Callable[[], Any]) -> Any:
    """Runs code of a task.

    Raises:
        ModuleError: it raised.
    """
    with foreign_code(lambda error: f"{what} failed: {error}. Correct its code"):
        return call()


def meant(part: Any, config: Any) -> tuple[str, ...]:
    """The faults in the meaning of a task's numbers, whose shapes and kinds are right.

    Nothing is said where it is not certain. A finite set may be drawn in the same order for all seeds, and the best
    answer without an input may be better than zeros: these are left out.
    """
    name, problems = config.name, list[str]()
    with contextlib.suppress(ModuleError):
        task = called(f"the task {name!r}", lambda: part(config))
        size = min(MANY, NUMBERS // (task.horizon * max(task.inputs, task.outputs)))
        if size >= LEAST:
            train, test = (
                called(f"draw of the task {name!r}", functools.partial(task.draw, Stream(0, stream), 0, size))
                for stream in (TRAIN, TEST)
            )
            problems += _of_streams(name, train, test, size)
            if {field.name for field in fields(test)} == {"inputs", "targets"}:  # others may be of the sequences, too
                problems += _of_mean(task, name, test)
                problems += _of_zeros(task, name, test)
                problems += _of_models(task, name, _first_of(test))
                problems += _of_squares(task, name, _first_of(train))
    return tuple(problems)


def _of_streams(name: str, train: Any, test: Any, size: int) -> Iterator[str]:
    """The fault of a model that is tested on the sequences of its training."""
    one, other = train.inputs, test.inputs
    # fewer rows than were asked for are all that there are, and few different ones may be, too
    if one.shape != other.shape or len(one) < size or len(one.flatten(1).unique(dim=0)) < LEAST:
        return
    if equal(one, other):
        yield (
            f"draw of the task {name!r} gave the same {size} sequences for the streams {TRAIN!r} and {TEST!r}: a model "
            "would be tested on what it was trained on. Draw them from stream.generator(index)"
        )


def _of_mean(task: Any, name: str, batch: Any) -> Iterator[str]:
    """The fault of a loss that grows with the number of sequences, of outputs of zero or of others."""
    few = _first_of(batch)
    for given, outputs in ((batch, 0 * _some(task, batch)[:1]), (few, _some(task, few)[:1])):
        rows = [*range(len(given.inputs))] * 2
        once = float(_loss(task, name, outputs, given))
        twice = float(_loss(task, name, torch.cat([outputs, outputs], 1), _rows_of(given, rows)))
        if abs(twice - once) > TOLERANCE * abs(once):
            yield (
                f"loss of the task {name!r} is {once:.4g} for {len(given.inputs)} sequences, and {twice:.4g} for the "
                "same ones twice; it must be their mean, which does not depend on their number. Take the mean over the "
                "sequences, and not the sum"
            )
            return


def _of_models(task: Any, name: str, batch: Any) -> Iterator[str]:
    """The fault of a loss, or a metric, of one model that depends on another one."""
    outputs = _some(task, batch)
    for what, judge in (
        ("loss", lambda given: {"loss": _loss(task, name, given, batch)}),
        ("metrics", lambda given: called(f"metrics of the task {name!r}", lambda: task.metrics(given.clone(), batch))),
    ):
        together, alone = judge(outputs), judge(outputs[:1])
        for key, values in together.items():
            one, beside = float(alone[key]), float(values[0])
            if abs(one - beside) > ROUNDING * abs(one):
                yield (
                    f"{what if key == what else f'metric {key!r}'} of the task {name!r} is {one:.4g} for the outputs "
                    f"of a model, and {beside:.4g} for the same beside those of another one; it must be of each model "
                    "alone. Take means and sums over the last three axes (sequences, steps, outputs)"
                )


def _of_squares(task: Any, name: str, batch: Any) -> Iterator[str]:
    """The fault of squared_weights that say another loss: kernels train by them."""
    weights = called(f"squared_weights of the task {name!r}", task.squared_weights)
    if weights is None:
        return
    said = f"squared_weights of the task {name!r}"
    outputs = _some(task, batch)
    shape = list(weights.shape) if isinstance(weights, Tensor) else None
    if shape != [task.horizon] or batch.targets.shape != outputs.shape[1:]:
        yield (
            f"{said} gave {f'a tensor {shape}' if shape is not None else 'no tensor'}, for targets "
            f"{list(batch.targets.shape)}; it must give [{task.horizon}], a number for each step, and targets be "
            f"{list(outputs.shape[1:])}. Of another loss give None"
        )
        return
    loss, squares = _loss(task, name, outputs, batch), of_squares(weights, outputs, batch.targets)
    if bool(((loss - squares).abs() > ROUNDING * loss.abs()).any()):
        yield (
            f"{said} say the loss {float(squares[0]):.4g} of outputs whose loss is {float(loss[0]):.4g}: models would "
            "be trained on the one and judged by the other. The loss must be sum_{b,t,o} v_t (y - target)^2 / B; "
            "correct the weights v, or give None"
        )


def of_squares(weights: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of outputs ``[N..., B, T, O]`` that ``squared_weights`` say, ``[N...]``."""
    squares = weights.unsqueeze(-1) * (outputs - targets).square()
    return squares.sum((-1, -2, -3)) / len(targets)


def _first_of(batch: Any) -> Any:
    return _rows_of(batch, [*range(min(LEAST, len(batch.inputs)))])


def _some(task: Any, batch: Any) -> Tensor:
    """Outputs of two models that are all different, ``[2, B, T, O]``."""
    draws = torch.Generator().manual_seed(0)
    return torch.randn(2, *batch.inputs.shape[:2], task.outputs, generator=draws, dtype=torch.float64)


def _loss(task: Any, name: str, outputs: Tensor, batch: Any) -> Tensor:
    # a copy: a loss may change outputs in place
    value: Tensor = called(f"loss of the task {name!r}", lambda: task.loss(outputs.clone(), batch))
    return value


def _of_zeros(task: Any, name: str, batch: Any) -> Iterator[str]:
    """The fault of a chance level above the loss of outputs of zero, which are an answer without an input."""
    rows = [*range(len(batch.inputs))]
    if len(rows) < LEAST:
        return
    chance, loss = task.chance(), _loss_of_zeros(task, name, batch, rows)
    each = torch.tensor([_loss_of_zeros(task, name, batch, [row]) for row in rows])
    error = float(each.std()) / math.sqrt(len(rows))
    if chance > (1.0 + ROOM) * loss + 5.0 * error:  # not where a loss is nan
        yield (
            f"chance of the task {name!r} gave {chance:.4g}, and outputs of zero have the loss {loss:.4g} on "
            f"{len(rows)} sequences (standard error {error:.2g}); it must give the expected loss of the best answer "
            "without an input, which is at most that of zeros. Correct chance, or the loss"
        )


def of_oracle(part: Any, config: Any) -> tuple[str, ...]:
    """The faults of levels that the task's own right answers do not reach; nothing where it has none."""
    name, problems = config.name, list[str]()
    with contextlib.suppress(Exception):  # a task may have no oracle: its conformance suite tells
        task = part(config)
        levels, best, chance = task.metric_levels(), task.best_loss(), task.chance()
        if not levels and not best:
            return ()
        batch = task.draw(Stream(0, TEST), 0, LEAST)
        if {field.name for field in fields(batch)} != {"inputs", "targets"}:
            return ()
        answers = task.oracle(batch.inputs)
        batches = [(answers[None], batch)]  # a metric may be of the batch, as a correlation is
        batches += [(answers[None, [row]], _rows_of(batch, [row])) for row in range(len(batch.inputs))]
        for key, (right, at_chance) in levels.items():
            whole, *each = (float(task.metrics(outputs, own)[key]) for outputs, own in batches)
            if not _agree(whole, each, right, right - at_chance):
                problems.append(
                    f"metric_levels of the task {name!r} gave {key!r} {right:g} for the right answers, and those of "
                    f"its oracle have {whole:.4g} on {len(each)} sequences. Correct the level, the metric or the oracle"
                )
        if best:
            whole, *each = (float(task.loss(outputs, own)) for outputs, own in batches)
            if not _agree(whole, each, best, chance):
                problems.append(
                    f"best_loss of the task {name!r} gave {best:.4g}, and the answers of its oracle have the loss "
                    f"{whole:.4g} on {len(each)} sequences. Correct best_loss, the loss or the oracle"
                )
    return tuple(problems)


def _agree(whole: float, each: list[float], expected: float, scale: float) -> bool:
    """Whether the value on all sequences, or the mean of those on each, may be the expected one."""
    found = torch.tensor([value for value in each if math.isfinite(value)])
    error = float(found.std()) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return any(abs(value - expected) <= ROOM * scale + 5.0 * error for value in (whole, float(found.mean())))


def _rows_of(batch: Any, rows: list[int]) -> Any:
    return replace(batch, inputs=batch.inputs[rows], targets=batch.targets[rows])


def _loss_of_zeros(task: Any, name: str, batch: Any, rows: list[int]) -> float:
    taken = _rows_of(batch, rows)
    zeros = torch.zeros(1, *taken.inputs.shape[:2], task.outputs, dtype=torch.float64)
    return float(_loss(task, name, zeros, taken))


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have the same values; nan is equal to nan."""
    return bool(((one == other) | ((one != one) & (other != other))).all())
