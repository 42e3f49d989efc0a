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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.data.meaning import NUMBERS, called, equal, meant, of_oracle
from memsweep.errors import ModuleError
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

MODELS, SEQUENCES = 2, 3
"""N and B of what is judged; different, so that no axis passes for another."""
SECONDS = 5.0
"""That the configs of one class may take; the rest of them is left to their trials."""


@dataclass(frozen=True)
class Contract:
    """The findings about a task.

    Attributes:
        problems: what is wrong, a sentence without a full stop each.
        inputs: of a batch; None where there are problems, or nothing was drawn.
        failed: what its code raised, a sentence without a full stop: its trials tell, too. None: nothing.
    """

    problems: tuple[str, ...] = ()
    inputs: Tensor | None = None
    failed: str | None = None


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
        send((found.problems, None if found.inputs is None else found.inputs.numpy(), found.failed))
        if found.inputs is not None:
            problems = meant(part, config)
            send((problems,))
            send((problems or of_oracle(part, config),))  # last: brute force may be slow

    # what came before an end without a word holds
    told = [*in_copy(look)] or [((), None, None)]
    _, inputs, failed = told[0]
    return Contract(told[-1][0], None if inputs is None else torch.from_numpy(inputs), failed)


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
    failed = None
    try:
        task = called(f"the task {name!r}", lambda: part(config))
        problems += [text for size in ("inputs", "outputs", "horizon") for text in _of_size(task, name, size)]
        problems += _of_kernel(task, name)
        problems += _of_chance(name, called(f"chance of the task {name!r}", task.chance))
        problems += [] if problems else [*_of_best_loss(task, name), *_of_levels(task, name)]
        for stream in () if problems else (VALIDATION, TEST):
            draw = functools.partial(task.draw, Stream(0, stream), 0, SEQUENCES)
            batch = called(f"draw of the task {name!r}", draw)
            problems += [*_of_batch(task, name, stream, batch)] or [*_of_judgement(task, name, batch)]
            if problems:
                break
        if not problems and not registry.is_own(part) and time.monotonic() - start < SECONDS / 4:
            problems += _of_repetition(task, name)
    except ModuleError as error:
        failed = str(error)
    return Contract(tuple(problems), None if problems or batch is None else batch.inputs, failed)


def _of_size(task: Any, name: str, size: str) -> Iterator[str]:
    value = called(f"{size} of the task {name!r}", lambda: getattr(task, size))
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
    value = called(f"kernel of the task {name!r}", task.kernel)
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
    best, chance = called(f"best_loss of the task {name!r}", task.best_loss), task.chance()
    if not 0 <= _number(best) < chance:  # nan is not, either
        yield (
            f"best_loss of the task {name!r} gave {best!r}, and chance {chance:.4g}; it must give the expected loss of "
            "the right answers, from 0 to below chance"
        )


def _of_levels(task: Any, name: str) -> Iterator[str]:
    """The faults in the levels of a task's metrics, of which more is better."""
    levels = called(f"metric_levels of the task {name!r}", task.metric_levels)
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
        batch = called(f"draw of the task {name!r}", draw)
        drawn.append([each.clone() for each in (batch.inputs, batch.targets)])  # it may fill the same tensors again
    if not all(one.shape == other.shape and equal(one, other) for one, other in zip(*drawn, strict=True)):
        yield (
            f"draw of the task {name!r} gave other sequences of the stream {TRAIN!r} when it was asked for the same "
            "ones again; they must depend on the stream and the index alone. Draw them from stream.generator(index), "
            "and from nothing that goes on from call to call, as global generators do"
        )


def _of_judgement(task: Any, name: str, batch: Any) -> Iterator[str]:
    """The faults in the loss and the metrics of outputs of zero."""
    shape = (MODELS, *batch.inputs.shape[:2], task.outputs)
    # a result, as a model's outputs are, so that a loss may change them in place
    outputs = torch.zeros(shape, dtype=torch.float64, requires_grad=True).clone()
    given = f"for outputs {list(shape)} (models, sequences, steps, outputs) and targets {_kind(batch.targets)}"
    try:
        loss = called(f"loss of the task {name!r} {given}", lambda: task.loss(outputs, batch))
        metrics = called(f"metrics of the task {name!r} {given}", lambda: task.metrics(outputs.detach(), batch))
    except ModuleError as error:
        yield str(error)
        return
    if wrong := _of_value(f"loss of the task {name!r}", loss, given):
        yield wrong
    elif not _is_finite_somewhere(task, batch, shape, loss):
        yield f"loss of the task {name!r} is not finite for outputs of zero, nor for random ones; it must be"
    elif not loss.requires_grad:
        yield f"no gradient goes through the loss of the task {name!r}; leave out detach, item, numpy and no_grad"
    if not isinstance(metrics, dict) or tuple(metrics) != tuple(task.reports):
        named = list(metrics) if isinstance(metrics, dict) else _kind(metrics)
        yield f"metrics of the task {name!r} gave {named}; they must have the names in reports, {list(task.reports)}"
        return
    for key, value in metrics.items():
        if wrong := _of_value(f"metric {key!r} of the task {name!r}", value, given):
            yield wrong


def _is_finite_somewhere(task: Any, batch: Any, shape: tuple[int, ...], loss: Tensor) -> bool:
    """Whether the loss is a number for outputs of zero, or for random ones."""
    if torch.isfinite(loss).all():
        return True
    outputs = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return bool(torch.isfinite(called("loss", lambda: task.loss(outputs, batch))).all())


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
