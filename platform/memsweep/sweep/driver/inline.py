"""Packs one after another in this process: for debugging, and where Ray is not wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from memsweep.sweep.backend import Events, Work
from memsweep.sweep.worker.execute import PackJob
from memsweep.sweep.worker.timing import throttled


class InlineBackend:
    """Runs each job by a plain call, so a debugger sees every line. Imports no Ray."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self._work = work

    def run(self, jobs: Sequence[PackJob], at_once: int, events: Events) -> None:
        for job in jobs:
            if not events.may_start():
                return
            events.started(job)
            report = self._work(replace(job, inline=True), throttled(partial(events.advanced, job)))
            events.finished(job, report)
