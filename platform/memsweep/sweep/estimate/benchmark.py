"""Measures a few training and perturbation steps of programs, as a worker would run them, in a process of its own.

First a few steps of training of every program, without merging modes: training is most of what a study takes, and one
merge or one perturbation may take longer than the whole measurement. Then each program runs several times with more and
more steps (``_LEVELS``), as far as the time reaches. The difference between the last two runs gives the seconds of one
step and of one evaluation of the perturbation error. Where no run with a perturbation fits into the time, a validation
and a step of the training say what the passes of its search take.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.load.foreign import in_one_line
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.recurrence.compiled.expected import plain_if
from memsweep.streams import VALIDATION, Stream
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.cost import evaluations
from memsweep.sweep.planning.identity import Arithmetic, identity, pack_identity
from memsweep.sweep.store.layout import WEIGHTS
from memsweep.sweep.worker.execute import PackJob, execute_pack
from memsweep.sweep.worker.gpu_memory import shortened
from memsweep.sweep.worker.limits import forget_peak, peak_memory
from memsweep.sweep.worker.timing import Phases

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_LEVELS = ((4, 2, 1), (16, 2, 4), (64, 4, 8), (256, 8, 16), (1024, 32, 32))
"""Training steps, radii and ascent steps of each run."""
_TRAINED = (1, 2, 8, 32)
"""Training steps of the runs that only train; the first one is not counted where others follow: it imports.

The second run is left out where the time reaches for eight times the first: of two steps, most is what a run begins and
ends with.
"""
_MORE, _ENOUGH = 16, 512
"""Batches of a validation, at most, in the run that says what one sequence of it takes; and sequences, on a processor,
where the study validates on fewer."""
_AT_LEAST = 4  # the costliest program takes at most such a part of that time
_TRAINING_SHARE = 0.5  # of the time, at most, for them
_STARTING = 120.0  # seconds of the clock, at most, until the process is ready
_PATIENCE = 10  # on CPUs, times the seconds of the processor that may pass: other programs use it, too
_GROWTH = 5.0  # a run of the next level takes at most about so many times the seconds of this one

_Timing = tuple[float, float]  # a count and its seconds


@dataclass(frozen=True)
class Measured:
    """Cost of the trials of one program together, in seconds of one process and in bytes.

    Attributes:
        fixed: what depends neither on steps nor on evaluations: data, memory functions, tables, storage. Of a program
            that only trained, a bound on the merging of modes is in it, and the drawing of its training set is not.
        step: of all models, with their share of the validations but for a program that only trained.
        evaluation: one evaluation of the perturbation error, see ``cost.evaluations``; None of a program that only
            trained.
        disk: bytes of one trial's files; of fewer radii than the study's if the last levels were too long.
        weights: those of its trained weights among them.
        memory: the most bytes that the process held beyond its bare self; on a GPU if it computes there.
        levels: how many runs gave these numbers.
        validation: one validation of a program that only trained.
        sequence: one sequence in a pass of all its models, without a gradient; 0: not known.
    """

    fixed: float
    step: float
    evaluation: float | None
    disk: float
    weights: float
    memory: int
    levels: int = len(_LEVELS)
    validation: float = 0.0
    sequence: float = 0.0

    def seconds(self, trials: Sequence[TrialConfig]) -> float:
        """Seconds of the whole program of these trials; what was not measured, by what was or by the cost model."""
        first = trials[0]
        validations = first.training.end // first.training.validate_every
        return self.fixed + first.training.end * self.step + validations * self.validation + self._after(trials)

    def _after(self, trials: Sequence[TrialConfig]) -> float:
        """Seconds of what follows the training: where none of it was measured, a pass costs what one costs in it."""
        first = trials[0]
        if self.evaluation is not None:
            return evaluations(first) * self.evaluation
        if not self.sequence or first.has_closed_form:
            return cost.seconds(trials) * (1.0 - cost.training_share(trials))
        calls = max(0.0, self.step * cost.EVALUATION - first.training.batch_size * self.sequence)
        passes = calls * cost.passes(first) / cost.copies_at_once(first)
        whole = evaluations(first) * first.perturbation.test_size * self.sequence
        return whole + passes + cost.TABLES * len(trials)


@dataclass
class Benchmark:
    """Result of the measurements.

    Attributes:
        measured: name of a program -> its cost.
        failed: name -> why it could not be measured.
        starting: seconds until the process was ready to begin (Python and its libraries).
    """

    measured: dict[str, Measured] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    starting: float = 0.0


def benchmark(
    programs: Mapping[str, Sequence[TrialConfig]],
    arithmetic: Arithmetic,
    threads: int,
    workspace: Path,
    seconds: float,
    keep: str = WEIGHTS,
    trained: Mapping[str, Measured] | None = None,
) -> Benchmark:
    """Measure programs in their order, as far as the time reaches.

    Args:
        programs: name -> trials that run as one program.
        arithmetic: where they are computed.
        threads: threads of the process.
        workspace: folder whose ``tasks/`` they need.
        seconds: of the processor for each thread, or of the clock where a GPU computes, for all programs together.
            The start of the process comes on top. A busy machine so gives the same measurements, later.
        keep: what of a trained trial is kept beside its tables.
        trained: programs whose training was measured before.
    """
    result, trained = Benchmark(), trained or {}
    late = {
        name for name, cost in trained.items() if name in programs and cost.seconds(_least(programs[name])) > seconds
    }
    programs = {name: configs for name, configs in programs.items() if name not in late}
    if not programs:
        return result
    patience = seconds * (_PATIENCE if arithmetic.device == "cpu" else 1)
    end = time.monotonic() + _STARTING + patience
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="memsweep-benchmark-") as folder:
        plain = {name: [to_dict(config) for config in configs] for name, configs in programs.items()}
        work = (sender, Path(folder), plain, arithmetic, threads, str(workspace), seconds, keep, dict(trained))
        process = context.Process(target=_measure_all, args=work, daemon=True)
        began = time.monotonic()
        with plain_if(all(map(_puts_off, itertools.chain(*programs.values())))):
            process.start()
        sender.close()
        try:
            with contextlib.suppress(EOFError):
                while receiver.poll(max(0.0, end - time.monotonic())):
                    name, value = receiver.recv()
                    if name is None:
                        result.starting = value - began
                        end = value + patience
                    elif isinstance(value, Measured):
                        result.measured[name] = value  # of the last level so far
                    else:
                        result.failed[name] = value
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if process.pid:
                    os.killpg(process.pid, signal.SIGKILL)  # and whatever it has started
            process.kill()
            process.join()
    return result


def _measure_all(
    sender: Connection,
    folder: Path,
    programs: Mapping[str, Sequence[dict[str, Any]]],
    arithmetic: Arithmetic,
    threads: int,
    workspace: str,
    seconds: float,
    keep: str,
    trained: dict[str, Measured],
) -> None:
    """The measuring process; its messages are a program's name with its cost or with an error."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    from memsweep import registry, trial  # noqa: F401  (they belong to the bare process)

    registry.discover(Path(workspace))
    sender.send((None, time.monotonic()))
    clock, end = time.monotonic, time.monotonic() + seconds
    if arithmetic.device == "cpu":
        clock = time.process_time
        end = clock() + seconds * threads
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(end), math.ceil(end) + 1))  # a first run may be too long
    configs: dict[str, list[TrialConfig]] = {}
    half = clock() + _TRAINING_SHARE * (end - clock())
    for position, (name, plain) in enumerate(programs.items()):
        if clock() > half:
            break
        last = clock() + (half - clock()) / min(_AT_LEAST, len(programs) - position)
        with _errors_sent(sender, name):
            configs[name] = [trial_from_dict(config) for config in plain]
            if name in trained:
                continue
            for measured in measure_training(configs[name], arithmetic, threads, last, clock):
                trained[name] = measured
                sender.send((name, measured))
    reached = [name for name in configs if name in trained]
    for position, name in enumerate(reached):
        last = clock() + (end - clock()) / (len(reached) - position)
        least = trained[name].seconds(_least(configs[name]))
        if clock() + least > end:  # it would take the time of the others, and give no number
            continue
        with _errors_sent(sender, name):
            place = folder / str(position)
            known, every = trained[name], configs[name][0].training.validate_every
            step = known.step + known.validation / every if known.step else math.inf
            for measured in measure(configs[name], arithmetic, threads, workspace, place, last, keep, clock, step):
                sender.send((name, measured))


def _puts_off(config: TrialConfig) -> bool:
    """Whether the kernels are put off that this trial has: they would take longer to compile than to measure."""
    import torch

    from memsweep.recurrence.compiled.expected import is_put_off

    return is_put_off(getattr(torch, config.training.dtype), over_time=config.model.name != "module")


@contextlib.contextmanager
def _errors_sent(sender: Connection, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # raised by a task or a model: the other programs are measured all the same
        sender.send((name, in_one_line(error)[:300]))


def _least(configs: Sequence[TrialConfig]) -> list[TrialConfig]:
    """The shortest run of a whole program."""
    return [shortened(config, *_LEVELS[0]) for config in configs]


def measure_training(
    configs: Sequence[TrialConfig],
    arithmetic: Arithmetic,
    threads: int,
    end: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Measured]:
    """Measure the training of one program in this process; gives its cost again after every run.

    Args:
        configs, arithmetic, threads, end, clock: see ``measure``.
    """
    import torch

    from memsweep.trial import RunOptions, packs, train_replicas

    if not configs[0].training.end:  # its weights are stored
        yield Measured(0.0, 0.0, None, 0.0, 0.0, 0, 0)
        return
    torch.set_num_threads(threads)
    first, options = configs[0], RunOptions(device=arithmetic.device, padded=packs(configs[0]))
    merges = max(config.model.width - 1 if _merges(config) else 0 for config in configs)
    batch, whole = _brief(first, 1).training.validation_size, first.training.validation_size
    most = max(whole, _ENOUGH) if arithmetic.device == "cpu" else whole
    each, sequence, timed = 0.0, 0.0, list[tuple[int, float]]()
    around = 0.0  # seconds of a run that are no training: data, and the making of the models

    def seconds(steps: int, sequences: int | None = None) -> float:
        nonlocal around
        cut, phases = [_brief(config, steps, sequences) for config in configs], Phases(clock)
        began = clock()
        train_replicas(cut, dataclasses.replace(options, phase=phases.phase))
        around = clock() - began - phases.seconds["training"]
        return phases.seconds["training"]

    for steps in _TRAINED:
        if len(timed) == 1 and steps == _TRAINED[1] and clock() + around + _TRAINED[2] * timed[0][1] < end:
            continue
        timed.append((_brief(first, steps).training.end, seconds(steps)))
        if len(timed) == 1:
            continue
        begin, step = _line(*timed[-2:]) if len(timed) > 2 else _line((0.0, 0.0), timed[-1])
        if len(timed) == 2 and not first.trains_in_closed_form:
            asked = min(most, _MORE * batch)
            more = _sequences(first, asked)
            whole = min(whole, more) if more < asked else whole
            if more > batch:
                sequence = max(0.0, seconds(steps, more) - timed[-1][1]) / 2 / (more - batch)
                each = sequence * whole
        if not sequence:
            small = each = begin / 2  # one is before the first step, one after the last
        else:
            small = sequence * batch
        fixed = around + max(0.0, begin - 2 * small) + each * (2 + merges)
        yield Measured(fixed, step, None, 0.0, 0.0, 0, 0, each, sequence)
        if clock() + around + _GROWTH * timed[-1][1] > end:
            return


def _sequences(config: TrialConfig, asked: int) -> int:
    """How many sequences a validation has, where so many are asked for: a data set may hold fewer."""
    task = registry.get(registry.TASK, config.task.name)(config.task)
    if task.carries_states:  # its windows are counted otherwise
        return min(asked, config.training.validation_size)
    return len(task.draw(Stream(config.training.data_seed, VALIDATION), 0, asked).inputs)


def _brief(config: TrialConfig, steps: int, sequences: int | None = None) -> TrialConfig:
    """So many steps of training alone, without merging modes, and with validations at their ends.

    Args:
        config: the trial.
        steps: of its training.
        sequences: of a validation; None: one batch.
    """
    cut = _with_small_set(shortened(config, steps, 1, 1)).training
    size = sequences or min(cut.validation_size, cut.batch_size)
    training = dataclasses.replace(cut, merge_redundant=False, validate_every=steps, validation_size=size)
    return dataclasses.replace(config, training=training, chain=None)


def _with_small_set(config: TrialConfig) -> TrialConfig:
    """The trial with a training set of one batch, where it draws one before the first step.

    Drawing the whole set may take longer than all steps of a measurement, and hides what a step takes.
    """
    training = config.training
    size = min(training.train_size, training.batch_size)
    return dataclasses.replace(config, training=dataclasses.replace(training, train_size=size))


def _merges(config: TrialConfig) -> bool:
    return config.training.merge_redundant and hasattr(config.model, "width")


def measure(
    configs: Sequence[TrialConfig],
    arithmetic: Arithmetic,
    threads: int,
    workspace: str,
    folder: Path,
    end: float,
    keep: str = WEIGHTS,
    clock: Callable[[], float] = time.monotonic,
    known_step: float = math.inf,
) -> Iterator[Measured]:
    """Measure one program in this process; gives its cost again after every level.

    Args:
        configs: trials that run as one program.
        arithmetic, threads, workspace, keep: see ``benchmark``.
        folder: of the results, new.
        end: time of the clock that no run but the first may be expected to exceed.
        clock: tells the time.
        known_step: seconds of a step with its share of the validations, where its training was measured.

    Raises:
        RuntimeError: the trials fail.
    """
    forget_peak()
    bare = peak_memory()
    trained, moved, first_run, memory = [(0.0, 0.0)], [(0.0, 0.0)], (0.0, 0.0), 0
    draws = configs[0].training.train_size > configs[0].training.batch_size
    for number, level in enumerate(_LEVELS, 1):
        began = clock()
        cut = [shortened(config, *level) for config in configs]
        if draws and number > 1:
            cut = [_with_small_set(config) for config in cut]
        members = {identity(config, arithmetic): to_dict(config) for config in cut}
        job = PackJob(
            pack=pack_identity(members),
            study="benchmark",
            folder=str(folder / str(number)),
            workspace=workspace,
            members=tuple(members.items()),
            threads=threads,
            arithmetic=arithmetic,
            keep=keep,
        )
        seconds = _phase_seconds(job)
        trained.append((cut[0].training.end, seconds.pop("training", 0.0)))
        moved.append((evaluations(cut[0]), seconds.pop("perturbation", 0.0)))
        (begin, step), (shared, evaluation) = _line(*trained[-2:]), _line(*moved[-2:])
        if trained[-2][0] == 0:  # what every run takes at its begin is in the step
            step = min(step, known_step)
            begin = trained[-1][1] - trained[-1][0] * step
        if draws:
            first_run = trained.pop() if number == 1 else first_run
            steps, took = first_run
            begin = max(begin, took - steps * step)  # the first run alone drew the whole set
        sizes = {path: path.stat().st_size for path in Path(job.folder).rglob("*") if path.is_file()}
        disk = sum(sizes.values()) / len(cut)
        weights = sum(size for path, size in sizes.items() if path.parent.name == WEIGHTS) / len(cut)
        fixed = begin + shared + sum(seconds.values())
        memory = max(memory, _memory(bare, arithmetic.device))
        yield Measured(fixed, step, evaluation, disk, weights, memory, number)
        if clock() + _GROWTH * (clock() - began) > end:
            return


def _phase_seconds(job: PackJob) -> dict[str, float]:
    """Run a job; its seconds by phase. Where one thread computes, these are the processor's: no other program's."""
    wall, processor = time.perf_counter(), time.process_time()
    report = execute_pack(job, lambda fraction, doing="": None)
    busy = (time.process_time() - processor) / (time.perf_counter() - wall)
    if report.failed:
        raise RuntimeError(next(iter(report.failed.values()))["error"])
    share = min(1.0, busy) if job.threads == 1 and job.arithmetic.device == "cpu" else 1.0
    return {phase: share * seconds for phase, seconds in report.seconds.items()}


def _line(small: _Timing, large: _Timing) -> _Timing:
    """Seconds at a count of zero, and of each count."""
    if large[0] == small[0]:  # the study itself has no more
        small = (0.0, 0.0)
    each = max(0.0, (large[1] - small[1]) / (large[0] - small[0])) if large[0] else 0.0
    return max(0.0, large[1] - each * large[0]), each


def _memory(bare: int, device: str) -> int:
    if device == "cpu":
        return max(0, peak_memory() - bare)
    import torch

    free, card = torch.cuda.mem_get_info()
    others = card - free - torch.cuda.memory_reserved()  # CUDA's context and libraries
    return int(torch.cuda.max_memory_reserved() + others)
