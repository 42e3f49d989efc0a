"""A chained study of seconds, and what its workers do in the tests of chains; workers import this file, too."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from memsweep.sweep.worker.execute import PackJob, PackReport, Progress, execute_pack

STUDY = """
task: {name: linear_functional, kernel: exponential, horizon: 8}
model: {name: diagonal_rnn, parameterization: exp}
training: {seeds: 2, steps: 40, batch_size: 8, validation_size: 16, validate_every: 5, schedule: constant}
perturbation: {radii: {from: 1e-3, to: 1.0, count: 3}, starts: 0, ascent_steps: 1, balls: [recurrent]}
chain: {along: model.width, carry: validation_loss, into: training.stop_below, factor: 0.5, first: 100.0}
grid: {model.width: [2, 3, 4]}
"""


FATAL_RATE = 0.5
"""A value of task.rate by which a test marks a chain whose second trial kills every worker."""


def deadly(job: PackJob, progress: Progress) -> PackReport:
    """The real work, but the first worker that begins a model of width 3 is killed; in a marked chain, every worker."""
    widths = [data["model"]["width"] for _, data in job.members]
    mark = Path(job.folder) / "killed"
    fatal = any(data["task"]["rate"] == FATAL_RATE for _, data in job.members)

    def reached(fraction: float, doing: str = "") -> None:
        if 3 in widths and fraction > widths.index(3) / len(widths) and (fatal or not mark.exists()):
            if not fatal:
                mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        progress(fraction)

    return execute_pack(job, reached)
