"""Measures what trials cost here: a few training steps and a part of the perturbations, in processes of their own.

The programs run as a worker would run them (``memsweep.sweep.worker.execute``), into a folder that is deleted
afterwards. Training is timed between validations at two distances, which tells a step from a validation; perturbations
on more and more of their work, as far as the time reaches, which tells what each evaluation costs beside what all of
them share.

Seconds are the processor's where one thread computes, so that whatever else the machine does now is not counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.sweep.worker.execute import PackJob, execute_pack
from memsweep.sweep.worker.memory import forget_peak, peak_memory

if TYPE_CHECKING:
    from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
    from memsweep.stability.results import TrialResult
    from memsweep.trial import Finding

_CLOSE, _FAR = 1, 8  # steps between the validations of the two timed trainings
_INTERVALS = 12  # between validations, at most: their median does not change much any more
_PACING = 0.2  # part of the time that each of the two trainings may take
_GRACE = 2.0  # seconds by which a program that is being measured may be late, before it is given up


@dataclass(frozen=True)
class Measured:
    """What the trials of one program cost together, in seconds of one process, bytes, and parts of them.

    Attributes:
        begin: data, the validation set and the first validation.
        step, validation: one of them, of all replicas.
        end: after the last step of training (modes merged).
        unmoved: of the measurement, what does not grow with its evaluations.
        evaluation: one evaluation of the error in an ascent, see ``evaluations``.
        storing: tables and files, of one trial.
        disk: bytes of one trial's files.
        memory: the most bytes that the process held beyond its bare self; on a card where that computes.
        sure: the time reached for enough of the perturbations to tell their cost.
    """

    begin: float
    step: float
    validation: float
    end: float
    unmoved: float
    evaluation: float
    storing: float
    disk: float
    memory: int
    sure: bool = True


@dataclass(frozen=True)
class Probed:
    """What a probe found.

    Attributes:
        found: place of a job in the list -> what was measured.
        failed: place of a job -> why nothing was measured.
        starting: seconds until a process was ready to begin (Python and its libraries).
    """

    found: dict[int, Measured] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    starting: float = 0.0


def evaluations(perturbation: PerturbationConfig) -> float:
    """Evaluations of the error at all radii; one with its gradient counts as three."""
    if perturbation.method != "worst_case":
        return float(len(perturbation.balls) * perturbation.radii.count * perturbation.repeats)
    first = perturbation.ascent_steps // 2
    second = perturbation.ascent_steps - first
    ways = 0.0
    for ball in perturbation.balls:
        starts = perturbation.starts + (2 if ball == "recurrent" else 4)
        ways += starts * (3 * first + 1) + 3 * (3 * second + 1)
    return perturbation.radii.count * ways


def probe(jobs: Sequence[PackJob], seconds: float, processes: int = 1) -> Probed:
    """Measure jobs of one program each, in their order as far as the time reaches.

    Args:
        jobs: their folder is not used.
        seconds: for all of it, the start of the processes included.
        processes: that measure side by side, as packs run.
    """
    with tempfile.TemporaryDirectory(prefix="memsweep-probe-") as scratch, contextlib.ExitStack() as stack:
        began = time.monotonic()
        processes = max(1, min(processes, len(jobs)))
        hands = [[(place, jobs[place]) for place in range(n, len(jobs), processes)] for n in range(processes)]
        running = [
            stack.enter_context(_process(Path(scratch, str(n)), hand, began, seconds)) for n, hand in enumerate(hands)
        ]
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, began + seconds + _GRACE - time.monotonic()))
        return _read([Path(scratch, str(n)) for n in range(processes)])


@contextlib.contextmanager
def _process(
    folder: Path, jobs: Sequence[tuple[int, PackJob]], began: float, seconds: float
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that measures; it is gone at the end, and whatever it started."""
    folder.mkdir()
    folded = [(place, dataclasses.replace(job, folder=str(folder / f"of-{place}"))) for place, job in jobs]
    (folder / "jobs").write_bytes(pickle.dumps((folded, began, seconds)))
    process = subprocess.Popen(
        [sys.executable, "-m", "memsweep.sweep.estimate.benchmark", str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(folders: Sequence[Path]) -> Probed:
    found: dict[int, Measured] = {}
    failed: dict[int, str] = {}
    starting: list[float] = []
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            for line in (folder / "found").read_text("utf-8").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # ended in the middle of a word
                    data = json.loads(line)
                    if "starting" in data:
                        starting.append(data["starting"])
                    elif "error" in data:
                        failed[data["place"]] = data["error"]
                    else:
                        found[data["place"]] = Measured(**data["measured"])
    return Probed(found, failed, max(starting, default=0.0))


def main(folder: Path) -> None:
    """What a measuring process does: one line of JSON for each job."""
    jobs, began, seconds = pickle.loads((folder / "jobs").read_bytes())
    from memsweep import registry, trial  # noqa: F401  (they belong to the bare process)

    for workspace in {job.workspace for _, job in jobs}:
        registry.discover(Path(workspace))
    forget_peak()
    bare = peak_memory()
    with (folder / "found").open("a", encoding="utf-8") as told:

        def tell(**about: Any) -> None:
            told.write(json.dumps(about) + "\n")
            told.flush()

        tell(starting=time.monotonic() - began)
        for position, (place, job) in enumerate(jobs):
            left = began + seconds - time.monotonic()
            if left <= 0:
                return
            try:
                tell(place=place, measured=dataclasses.asdict(measured(job, left / (len(jobs) - position), bare)))
            except Exception as error:  # of the task's or the model's code: the other jobs are measured all the same
                tell(place=place, error=f"{type(error).__name__}: {error}"[:300])


def measured(job: PackJob, seconds: float, bare: int) -> Measured:
    """Measure the trials of one program in this process.

    Args:
        job: its members share a program; its folder is new.
        seconds: how long that may take; the least that has to be done is done in any case.
        bare: bytes that the process held before.

    Raises:
        RuntimeError: the trials fail.
    """
    alone = job.threads == 1 and job.arithmetic.device == "cpu"
    clock = time.process_time if alone else time.perf_counter
    bench = _Bench(seconds, clock)
    report = execute_pack(job, lambda fraction: None, run=bench)
    if report.failed:
        raise RuntimeError(next(iter(report.failed.values()))["error"])
    rows = len(job.members)
    storing = (clock() - bench.ended) / rows
    disk = sum(path.stat().st_size for path in Path(job.folder).rglob("*") if path.is_file()) / rows
    return Measured(**bench.times, storing=storing, disk=disk, memory=_memory(job, bare), sure=bench.sure)


def _memory(job: PackJob, bare: int) -> int:
    if job.arithmetic.device == "cpu":
        return max(0, peak_memory() - bare)
    import torch

    free, card = torch.cuda.mem_get_info()
    beside = card - free - torch.cuda.memory_reserved()
    return int(torch.cuda.max_memory_reserved() + beside)


class _EnoughError(Exception):
    """A training has told what it was run for."""


@dataclass
class _Parts:
    """Seconds of the parts of a trial."""

    begin: float = 0.0
    end: float = 0.0
    perturbation: float = 0.0


@dataclass
class _Bench:
    """Takes the place of ``memsweep.trial.run_pack``: runs parts of the work, and gives results of the whole's size.

    Attributes:
        seconds: that it may take.
        clock: what is measured with.
        times: the parts, as ``Measured`` has them.
        ended: when all but tables and files was done, by the clock.
        sure: the time reached for enough of the perturbations.
    """

    seconds: float
    clock: Callable[[], float]
    times: dict[str, float] = field(default_factory=dict)
    ended: float = 0.0
    sure: bool = False

    def __call__(self, configs: list[TrialConfig], *, phase: Callable[[str], Any], **options: Any) -> list[TrialResult]:
        from memsweep.trial import results_of

        taken: dict[str, Any] = {name: options[name] for name in ("company", "device", "shards") if name in options}
        close = far = 0.0
        if configs[0].training.end:
            close = self._pace(configs, _CLOSE, taken)
            far = self._pace(configs, _FAR, taken)
        step = max(0.0, (far - close) / (_FAR - _CLOSE)) or close
        validation = max(0.0, close - step)
        parts, points, findings = self._whole(configs, taken)
        unmoved, evaluation = _line(points)
        self.times = {
            "begin": max(0.0, parts.begin - step - validation),
            "step": step,
            "validation": validation,
            "end": parts.end,
            "unmoved": unmoved,
            "evaluation": evaluation,
        }
        self.ended = self.clock()
        with phase("tables"):
            return results_of(configs, [_full_size(finding, configs[finding.trial]) for finding in findings])

    def _pace(self, configs: Sequence[TrialConfig], every: int, options: dict[str, Any]) -> float:
        """Seconds of so many steps and one validation."""
        from memsweep.trial import run_share

        ends: list[float] = []
        end = time.monotonic() + _PACING * self.seconds

        def told(fraction: float) -> None:
            ends.append(self.clock())
            if len(ends) > 1 and (len(ends) > _INTERVALS or time.monotonic() > end):
                raise _EnoughError

        cut = [
            _cut(config, every * (_INTERVALS + 2), every, dataclasses.replace(config.perturbation, balls=()))
            for config in configs
        ]
        began = self.clock()
        with contextlib.suppress(_EnoughError):
            run_share(cut, progress=told, **options)
        lengths = [later - earlier for earlier, later in pairwise(ends)]
        return statistics.median(lengths) if lengths else self.clock() - began

    def _whole(
        self, configs: Sequence[TrialConfig], options: dict[str, Any]
    ) -> tuple[_Parts, list[tuple[float, float]], list[Finding]]:
        """Parts of a trial of one step, evaluations with their seconds, and what was found."""
        end = time.monotonic() + (1 - 2 * _PACING) * self.seconds
        least, *levels = _levels(configs[0].perturbation)
        before = time.monotonic()
        parts, findings = self._once([_cut(config, 1, 1, least) for config in configs], options)
        points = [(evaluations(least), parts.perturbation)]
        for level in levels:
            shared, each = _line(points)
            now = time.monotonic()
            if now + (now - before) * (shared + each * evaluations(level)) / points[-1][1] > end:
                break
            before = now
            parts, findings = self._once([_cut(config, 1, 1, level) for config in configs], options)
            points.append((evaluations(level), parts.perturbation))
        self.sure = len(points) > min(2, len(levels))
        return parts, points, findings

    def _once(self, configs: list[TrialConfig], options: dict[str, Any]) -> tuple[_Parts, list[Finding]]:
        """One step of training and the measurement."""
        from memsweep.trial import run_share

        parts, validated = _Parts(), list[float]()

        @contextlib.contextmanager
        def phase(name: str) -> Iterator[None]:
            began = self.clock()
            yield
            ended = self.clock()
            if name == "perturbation":
                parts.perturbation += ended - began
            elif name == "training":
                middle = validated[0] if validated else ended
                parts.begin, parts.end = parts.begin + middle - began, ended - middle
            else:
                parts.begin += ended - began

        findings = run_share(configs, progress=lambda fraction: validated.append(self.clock()), phase=phase, **options)
        return parts, findings


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Seconds of what all evaluations share, and of one of them, by the last two points."""
    (few, short), (more, longer) = points[-2:] if len(points) > 1 else ((0.0, points[0][1]), points[0])
    each = max(0.0, (longer - short) / (more - few)) if more > few else 0.0
    return max(0.0, longer - each * more), each


def _levels(whole: PerturbationConfig) -> list[PerturbationConfig]:
    """More and more of the perturbations; each does at least twice as much as the one before it."""
    few = dataclasses.replace(whole.radii, count=2)
    some = dataclasses.replace(whole.radii, count=min(whole.radii.count, 8))
    short, longer = (
        dataclasses.replace(
            whole, radii=few, starts=0, ascent_steps=min(n, whole.ascent_steps), repeats=min(n, whole.repeats)
        )
        for n in (2, 8)
    )
    found = [short]
    for level in (longer, dataclasses.replace(whole, radii=few), dataclasses.replace(whole, radii=some)):
        if evaluations(level) >= 2 * evaluations(found[-1]) > 0:
            found.append(level)
    return found


def _cut(config: TrialConfig, steps: int, every: int, perturbation: PerturbationConfig) -> TrialConfig:
    """The same shapes in so many steps; nothing ends a training before them."""
    training = dataclasses.replace(
        config.training,
        steps=steps if config.training.steps else 0,
        validate_every=every,
        until=0,
        turns=(),
        patience=0,
        stop_below=0.0,
        smallest_rate=0.0,
    )
    return dataclasses.replace(config, training=training, perturbation=perturbation)


def _full_size(finding: Finding, config: TrialConfig) -> Finding:
    """What was found, with as many errors and history rows as the whole trial will have: any numbers."""
    from memsweep.learning.training.history import kept_until

    draw, training, radii = random.Random(finding.trial), config.training, config.perturbation.radii.count
    measurement = dataclasses.replace(
        finding.measurement,
        errors={ball: sorted(draw.random() for _ in range(radii + 1)) for ball in config.perturbation.balls},
        history=[(step, draw.random(), draw.random()) for step in kept_until(training, training.end)],
    )
    return dataclasses.replace(finding, measurement=measurement)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
