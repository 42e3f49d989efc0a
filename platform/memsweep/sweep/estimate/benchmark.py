"""Measures a few training and perturbation steps of programs, as a worker would run them, in a process of its own.

Each program runs several times with more and more steps (``_LEVELS``), as far as the time reaches. The difference
between the last two runs gives the seconds of one step and of one evaluation of the perturbation error.
"""

from __future__ import annotations

import contextlib
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

from memsweep.config.load.foreign import in_one_line
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.sweep.planning.cost import evaluations
from memsweep.sweep.planning.identity import Arithmetic, identity, pack_identity
from memsweep.sweep.store.layout import WEIGHTS
from memsweep.sweep.worker.execute import PackJob, execute_pack
from memsweep.sweep.worker.gpu_memory import shortened
from memsweep.sweep.worker.limits import forget_peak, peak_memory

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_LEVELS = ((4, 2, 1), (16, 2, 4), (64, 4, 8), (256, 8, 16), (1024, 32, 32))
"""Training steps, radii and ascent steps of each run."""
_PATIENCE = 10  # on CPUs, times the seconds of the processor that may pass: other programs use it, too
_GROWTH = 5.0  # a run of the next level takes at most about so many times the seconds of this one

_Timing = tuple[float, float]  # a count and its seconds


@dataclass(frozen=True)
class Measured:
    """Cost of the trials of one program together, in seconds of one process and in bytes.

    Attributes:
        fixed: what depends neither on steps nor on evaluations: data, memory functions, tables, storage.
        step: of all models, with their share of the validations.
        evaluation: one evaluation of the perturbation error, see ``cost.evaluations``.
        disk: bytes of one trial's files; of fewer radii than the study's if the last levels were too long.
        weights: those of its trained weights among them.
        memory: the most bytes that the process held beyond its bare self; on a GPU if it computes there.
        levels: how many runs gave these numbers.
    """

    fixed: float
    step: float
    evaluation: float
    disk: float
    weights: float
    memory: int
    levels: int = len(_LEVELS)

    def seconds(self, config: TrialConfig) -> float:
        """Seconds of the whole program of this trial."""
        return self.fixed + config.training.end * self.step + evaluations(config) * self.evaluation


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
) -> Benchmark:
    """Measure programs in their order, as far as the time reaches.

    Args:
        programs: name -> trials that run as one program.
        arithmetic: where they are computed.
        threads: threads of the process.
        workspace: folder whose ``tasks/`` they need.
        seconds: of the processor for each thread, or of the clock where a GPU computes; for all of it, the start of
            the process included. A busy machine so gives the same measurements, later.
        keep: what of a trained trial is kept beside its tables.
    """
    result = Benchmark()
    end = time.monotonic() + seconds * (_PATIENCE if arithmetic.device == "cpu" else 1)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="memsweep-benchmark-") as folder:
        plain = {name: [to_dict(config) for config in configs] for name, configs in programs.items()}
        work = (sender, Path(folder), plain, arithmetic, threads, str(workspace), seconds, keep)
        process = context.Process(target=_measure_all, args=work, daemon=True)
        began = time.monotonic()
        process.start()
        sender.close()
        try:
            with contextlib.suppress(EOFError):
                while receiver.poll(max(0.0, end - time.monotonic())):
                    name, value = receiver.recv()
                    if name is None:
                        result.starting = value - began
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
) -> None:
    """The measuring process; its messages are a program's name with its cost or with an error."""
    os.setsid()
    clock, end = time.monotonic, time.monotonic() + seconds
    if arithmetic.device == "cpu":
        end = seconds * threads
        clock = time.process_time
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(end), math.ceil(end) + 1))  # a first run may be too long
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    from memsweep import registry, trial  # noqa: F401  (they belong to the bare process)

    registry.discover(Path(workspace))
    sender.send((None, time.monotonic()))
    for position, (name, plain) in enumerate(programs.items()):
        last = clock() + (end - clock()) / (len(programs) - position)
        try:
            configs = [trial_from_dict(config) for config in plain]
            place = folder / str(position)
            for measured in measure(configs, arithmetic, threads, workspace, place, last, keep, clock):
                sender.send((name, measured))
        except Exception as error:  # raised by a task or a model: the other programs are measured all the same
            sender.send((name, in_one_line(error)[:300]))


def measure(
    configs: Sequence[TrialConfig],
    arithmetic: Arithmetic,
    threads: int,
    workspace: str,
    folder: Path,
    end: float,
    keep: str = WEIGHTS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Measured]:
    """Measure one program in this process; gives its cost again after every level.

    Args:
        configs: trials that run as one program.
        arithmetic, threads, workspace, keep: see ``benchmark``.
        folder: of the results, new.
        end: time of the clock that no run but the first may be expected to exceed.
        clock: tells the time.

    Raises:
        RuntimeError: the trials fail.
    """
    forget_peak()
    bare = peak_memory()
    trained, moved = [(0.0, 0.0)], [(0.0, 0.0)]
    for number, level in enumerate(_LEVELS, 1):
        began = clock()
        cut = [shortened(config, *level) for config in configs]
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
        sizes = {path: path.stat().st_size for path in Path(job.folder).rglob("*") if path.is_file()}
        disk = sum(sizes.values()) / len(cut)
        weights = sum(size for path, size in sizes.items() if path.parent.name == WEIGHTS) / len(cut)
        fixed = begin + shared + sum(seconds.values())
        yield Measured(fixed, step, evaluation, disk, weights, _memory(bare, arithmetic.device), number)
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
