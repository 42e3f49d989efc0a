"""The contract of a task, held before a study runs: sizes, and shapes and kinds of inputs, targets, loss and metrics.

A few sequences are drawn, and outputs of zero are judged. A wrong shape would otherwise be torch's to tell, from the
middle of a training; or nobody's, where it broadcasts. What a task raises while it draws is a trial's to tell: it may
hold for some settings alone, and the other trials go on. Of a task of others, more sequences show whether its loss is a
mean, its streams differ, and its chance level can be one.

Letters: N models, B batch, T time, I inputs, O outputs.
"""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing
import operator
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.load.foreign import foreign_code
from memsweep.errors import ModuleError
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

MODELS, SEQUENCES = 2, 3
"""N and B of what is judged; different, so that no axis passes for another."""
MANY, LEAST = 64, 16
"""B of what shows the meaning of the numbers, where memory allows it; and the fewest sequences that do."""
NUMBERS = 2**22
"""The most numbers in inputs or outputs of that batch."""
TOLERANCE = 0.1
"""How far the loss of the same sequences twice may be from their loss; for a mean only rounding parts them."""
ROOM = 0.2
"""The part of the loss of zeros by which a chance level may exceed it, besides five standard errors."""
SECONDS = 5.0
"""That the configs of one class may take; the rest of them is left to their trials."""


@dataclass(frozen=True)
class Contract:
    """The findings about a task.

    Attributes:
        problems: what is wrong, a sentence without a full stop each.
        inputs: of a batch; None where there are problems, or nothing was drawn.
    """

    problems: tuple[str, ...] = ()
    inputs: Tensor | None = None


_taken = defaultdict[type, float](float)
"""Seconds by class of a task."""


@functools.lru_cache(maxsize=4096)
def contract(part: Any, config: Any) -> Contract:
    """Looks at a task on a few sequences; the same class (of ``data.task.Task``) and config are looked at once.

    A task of memsweep's own that reads files is left to its conformance suite: reading them can take seconds.
    """
    own = registry.is_own(part)
    if (own and part.data_files(config)) or _taken[part] > SECONDS:
        return Contract()
    start = time.monotonic()
    found = looked_at(part, config) if own else _apart(part, config)
    _taken[part] += time.monotonic() - start
    return found


def _apart(part: Any, config: Any) -> Contract:
    """The same in a copy of this process."""

    def look(send: Callable[[object], None]) -> None:
        found = looked_at(part, config)
        send((found.problems, None if found.inputs is None else found.inputs.numpy()))
        if found.inputs is not None:
            problems = meant(part, config)
            send((problems, None))
            send((problems or of_oracle(part, config), None))  # last: brute force may be slow

    # what came before an end without a word holds
    told = [*in_copy(look)] or [((), None)]
    inputs = told[0][1]
    return Contract(told[-1][0], None if inputs is None else torch.from_numpy(inputs))


def in_copy(look: Callable[[Callable[[object], None]], None]) -> Iterator[Any]:
    """Yields what a function sends from a copy of this process: code of others may end it, or hang. The trials tell.

    Nothing comes where this process may have no copies, and nothing later than ``SECONDS`` after what was sent before.
    """
    if multiprocessing.current_process().daemon:
        return
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        torch.set_num_threads(1)  # other threads of this process are not in its copy
        with contextlib.suppress(BaseException):
            look(sender.send)

    process = context.Process(target=run, daemon=True)
    process.start()
    sender.close()
    try:
        while receiver.poll(SECONDS):
            yield receiver.recv()
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()


@functools.lru_cache(maxsize=256)
def sequences_given(part: Any, config: Any, size: int) -> int:
    """How many test sequences a task gives where it is asked for ``size``: finite data may have fewer.

    ``size`` where that is not seen: they are many numbers, or files to be read, or the task's code fails or hangs.
    """

    def look(send: Callable[[object], None]) -> None:
        task = part(config)
        if size * task.horizon * max(task.inputs, task.outputs) <= NUMBERS:
            send(len(task.draw(Stream(0, TEST), 0, size).inputs))

    if registry.is_own(part) and part.data_files(config):
        return size
    return next(in_copy(look), size)


def looked_at(part: Any, config: Any) -> Contract:
    """``contract``, in this process."""
    name, problems, batch, start = config.name, list[str](), None, time.monotonic()
    with contextlib.suppress(ModuleError):
        task = _called(f"the task {name!r}", lambda: part(config))
        problems += [text for size in ("inputs", "outputs", "horizon") for text in _of_size(task, name, size)]
        problems += _of_kernel(task, name)
        problems += _of_chance(name, _called(f"chance of the task {name!r}", task.chance))
        problems += [] if problems else [*_of_best_loss(task, name), *_of_levels(task, name)]
        for stream in () if problems else (VALIDATION, TEST):
            draw = functools.partial(task.draw, Stream(0, stream), 0, SEQUENCES)
            batch = _called(f"draw of the task {name!r}", draw)
            problems += [*_of_batch(task, name, stream, batch)] or [*_of_judgement(task, name, batch)]
            if problems:
                break
        if not problems and not registry.is_own(part) and time.monotonic() - start < SECONDS / 4:
            problems += _of_repetition(task, name)
    return Contract(tuple(problems), None if problems or batch is None else batch.inputs)


def _called(what: str, call: Callable[[], Any]) -> Any:
    """Runs code of a task.

    Raises:
        ModuleError: it raised.
    """
    with foreign_code(lambda error: f"{what} failed: {error}. Correct its code"):
        return call()


def _of_size(task: Any, name: str, size: str) -> Iterator[str]:
    value = _called(f"{size} of the task {name!r}", lambda: getattr(task, size))
    try:
        fits = not isinstance(value, bool) and operator.index(value) >= 1
    except TypeError:
        fits = False
    if not fits:
        yield f"{size} of the task {name!r} is {value!r}; it must be a whole number of at least 1"


def _of_kernel(task: Any, name: str) -> Iterator[str]:
    """The faults in the memory function of a task that has one."""
    # as a KernelTask, whose file this one cannot import; another task may call anything a kernel
    if not all(callable(getattr(task, name, None)) for name in ("kernel", "filtered")):
        return
    value = _called(f"kernel of the task {name!r}", task.kernel)
    if not isinstance(value, Tensor) or tuple(value.shape) != (task.horizon,) or value.is_complex():
        yield (
            f"kernel of the task {name!r} gave {_kind(value)}; it must give a tensor of real numbers "
            f"[{task.horizon}], one for each lag"
        )
    elif not torch.isfinite(value).all():
        count = int((~torch.isfinite(value)).sum())
        yield f"kernel of the task {name!r} gave {count} numbers that are not finite; all must be"


def _of_chance(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, float | int) or not math.isfinite(value) or value <= 0:
        shown = _kind(value) if isinstance(value, Tensor) else repr(value)
        yield (
            f"chance of the task {name!r} gave {shown}; it must give a finite float above 0: the loss of the best "
            "answer without an input, to which errors are relative"
        )


def _number(value: Any) -> float:
    """A number of Python, numpy or torch; nan for what is none."""
    item = value.item() if isinstance(value, Tensor | np.ndarray | np.generic) and not value.ndim else value
    return float(item) if isinstance(item, float | int) and not isinstance(item, bool) else math.nan


def _of_best_loss(task: Any, name: str) -> Iterator[str]:
    """The fault of right answers that are no better than an answer without an input."""
    best, chance = _called(f"best_loss of the task {name!r}", task.best_loss), task.chance()
    if not 0 <= _number(best) < chance:  # nan is not, either
        yield (
            f"best_loss of the task {name!r} gave {best!r}, and chance {chance:.4g}; it must give the expected loss of "
            "the right answers, from 0 to below chance"
        )


def _of_levels(task: Any, name: str) -> Iterator[str]:
    """The faults in the levels of a task's metrics, of which more is better."""
    levels = _called(f"metric_levels of the task {name!r}", task.metric_levels)
    if not isinstance(levels, dict) or not levels.keys() <= {*task.reports}:
        named = list(levels) if isinstance(levels, dict) else _kind(levels)
        yield f"metric_levels of the task {name!r} gave {named}; its names must be in reports, {list(task.reports)}"
        return
    for key, level in levels.items():
        pair = isinstance(level, tuple | list) and len(level) == 2
        if not pair or not all(math.isfinite(_number(each)) for each in level):
            yield (
                f"metric_levels of the task {name!r} gave {level!r} for {key!r}; it must give two finite numbers, the "
                "metric of the right answers and that at chance"
            )
        elif level[0] <= level[1]:
            yield (
                f"metric_levels of the task {name!r} gave {key!r} {level[0]:g} for the right answers and {level[1]:g} "
                "at chance; more is better, so the first must be above the second. Swap them, or give a metric that "
                "grows"
            )


def _of_batch(task: Any, name: str, stream: str, batch: Any) -> Iterator[str]:
    """The faults in the inputs and targets of a batch."""
    draw = f"draw of the task {name!r} for {SEQUENCES} sequences of the stream {stream!r} gave"
    if not all(isinstance(getattr(batch, each, None), Tensor) for each in ("inputs", "targets")):
        yield f"{draw} {_kind(batch)}; it must give a Batch of two tensors, inputs and targets"
        return
    inputs, targets = batch.inputs, batch.targets
    # a task of finite data may have fewer sequences, and test sequences may be longer than those of training
    rows, steps = (SEQUENCES, task.horizon) if inputs.ndim < 2 else inputs.shape[:2]
    rows, steps = max(1, min(rows, SEQUENCES)), max(steps, task.horizon) if stream == TEST else task.horizon
    numbers = inputs.is_floating_point()
    if tuple(inputs.shape) != ((rows, steps, task.inputs) if numbers else (rows, steps)):
        yield (
            f"{draw} inputs {_kind(inputs)}; it must give numbers [{rows}, {steps}, {task.inputs}] (sequences, "
            f"horizon, inputs), or symbols [{rows}, {steps}], whole numbers from 0 to {task.inputs - 1}"
        )
    elif not numbers and not -1 <= int(inputs.min()) <= int(inputs.max()) < task.inputs:
        yield (
            f"{draw} the symbols {int(inputs.min())} to {int(inputs.max())}; it must give 0 to {task.inputs - 1}, and "
            "-1 behind the end of a sequence"
        )
    elif numbers and not torch.isfinite(inputs).all():
        yield f"{draw} inputs with {int((~torch.isfinite(inputs)).sum())} numbers that are not finite; all must be"
    if targets.ndim == 0 or len(targets) != rows:
        yield f"{draw} targets {_kind(targets)}; their first axis must be that of the {rows} sequences"


def _of_repetition(task: Any, name: str) -> Iterator[str]:
    """The fault of other sequences when the same ones are drawn again: numbers would depend on what ran before."""
    draw = functools.partial(task.draw, Stream(0, TRAIN), 0, SEQUENCES)
    drawn = []
    for _ in range(2):
        batch = _called(f"draw of the task {name!r}", draw)
        drawn.append([each.clone() for each in (batch.inputs, batch.targets)])  # it may fill the same tensors again
    if not all(one.shape == other.shape and _equal(one, other) for one, other in zip(*drawn, strict=True)):
        yield (
            f"draw of the task {name!r} gave other sequences of the stream {TRAIN!r} when it was asked for the same "
            "ones again; they must depend on the stream and the index alone. Draw them from stream.generator(index), "
            "and from nothing that goes on from call to call, as global generators do"
        )


def meant(part: Any, config: Any) -> tuple[str, ...]:
    """The faults in the meaning of a task's numbers, whose shapes and kinds are right.

    Nothing is said where it is not certain. A finite set may be drawn in the same order for all seeds, and the best
    answer without an input may be better than zeros: these are left out.
    """
    name, problems = config.name, list[str]()
    with contextlib.suppress(ModuleError):
        task = _called(f"the task {name!r}", lambda: part(config))
        size = min(MANY, NUMBERS // (task.horizon * max(task.inputs, task.outputs)))
        if size >= LEAST:
            train, test = (
                _called(f"draw of the task {name!r}", functools.partial(task.draw, Stream(0, stream), 0, size))
                for stream in (TRAIN, TEST)
            )
            problems += _of_streams(name, train, test, size)
            if {field.name for field in fields(test)} == {"inputs", "targets"}:  # others may be of the sequences, too
                problems += _of_mean(task, name, test)
                problems += _of_zeros(task, name, test)
    return tuple(problems)


def _of_streams(name: str, train: Any, test: Any, size: int) -> Iterator[str]:
    """The fault of a model that is tested on the sequences of its training."""
    one, other = train.inputs, test.inputs
    # fewer rows than were asked for are all that there are, and few different ones may be, too
    if one.shape != other.shape or len(one) < size or len(one.flatten(1).unique(dim=0)) < LEAST:
        return
    if _equal(one, other):
        yield (
            f"draw of the task {name!r} gave the same {size} sequences for the streams {TRAIN!r} and {TEST!r}: a model "
            "would be tested on what it was trained on. Draw them from stream.generator(index)"
        )


def _of_mean(task: Any, name: str, batch: Any) -> Iterator[str]:
    """The fault of a loss that grows with the number of sequences."""
    rows = [*range(len(batch.inputs))]
    once, twice = _loss_of_zeros(task, name, batch, rows), _loss_of_zeros(task, name, batch, [*rows, *rows])
    if abs(twice - once) > TOLERANCE * abs(once):
        yield (
            f"loss of the task {name!r} is {once:.4g} for {len(rows)} sequences, and {twice:.4g} for the same ones "
            "twice; it must be their mean, which does not depend on their number. Take the mean over the sequences, "
            "and not the sum"
        )


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
    return float(_called(f"loss of the task {name!r}", lambda: task.loss(zeros, taken)))


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _of_judgement(task: Any, name: str, batch: Any) -> Iterator[str]:
    """The faults in the loss and the metrics of outputs of zero."""
    shape = (MODELS, *batch.inputs.shape[:2], task.outputs)
    # a result, as a model's outputs are, so that a loss may change them in place
    outputs = torch.zeros(shape, dtype=torch.float64, requires_grad=True).clone()
    given = f"for outputs {list(shape)} (models, sequences, steps, outputs) and targets {_kind(batch.targets)}"
    try:
        loss = _called(f"loss of the task {name!r} {given}", lambda: task.loss(outputs, batch))
        metrics = _called(f"metrics of the task {name!r} {given}", lambda: task.metrics(outputs.detach(), batch))
    except ModuleError as error:
        yield str(error)
        return
    if wrong := _of_value(f"loss of the task {name!r}", loss, given):
        yield wrong
    elif not loss.requires_grad:
        yield f"no gradient goes through the loss of the task {name!r}; leave out detach, item, numpy and no_grad"
    if not isinstance(metrics, dict) or tuple(metrics) != tuple(task.reports):
        named = list(metrics) if isinstance(metrics, dict) else _kind(metrics)
        yield f"metrics of the task {name!r} gave {named}; they must have the names in reports, {list(task.reports)}"
        return
    for key, value in metrics.items():
        if wrong := _of_value(f"metric {key!r} of the task {name!r}", value, given):
            yield wrong


def _of_value(what: str, value: Any, given: str) -> str | None:
    if isinstance(value, Tensor) and tuple(value.shape) == (MODELS,) and value.is_floating_point():
        return None
    return (
        f"{what} is {_kind(value)} {given}; it must be [{MODELS}] of float64, a number for each model. Take the mean "
        "over the sequences, and leave the axes before them"
    )


def _kind(value: Any) -> str:
    """``[2, 3] of float64``; of what is no tensor, its type."""
    if isinstance(value, Tensor):
        return f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
