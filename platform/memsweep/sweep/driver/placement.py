"""Where a study runs without --ray and --inline: in the process of its command, or on Ray, and why.

Starting Ray and importing torch in each of its workers takes as long as many short trials. On the other hand a process
of its own protects the sweep from a trial that ends its process. Code that came with memsweep ends no process, and
about other code nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep import registry
from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import listed
from memsweep.extras import is_there, line_for
from memsweep.sweep.driver.progress import duration
from memsweep.sweep.estimate.estimate import Wave, modelled_work
from memsweep.sweep.job import in_job
from memsweep.sweep.planning.cost import is_known
from memsweep.sweep.planning.fingerprint import named_code, parts

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig

SHORT_SECONDS = 60.0
"""Seconds of work of one core below which a sweep is over sooner without Ray, on two cores."""


@dataclass(frozen=True)
class Placement:
    """Where a study runs.

    Attributes:
        inline: in the process of its command, without Ray.
        text: where, and why, in words.
        reason: the same without the cost model's seconds, for who has a better estimate.
    """

    inline: bool
    text: str
    reason: str


def placement(sweep: SweepConfig, waves: Sequence[Wave]) -> Placement:
    """Where a study runs without --ray and --inline.

    Args:
        sweep: the study.
        waves: what is left to run.
    """
    seconds = modelled_work(waves)
    work = f"about {duration(seconds)} of work by the cost model"
    if not is_there("ray"):
        told, known = f"runs in this process: {work}", "runs in this process"
        return Placement(True, *(f"{text}; for Ray, {line_for('ray')}" for text in (told, known)))
    if seconds >= SHORT_SECONDS:
        return Placement(False, f"runs on Ray: {work}", "runs on Ray: it is not short by the cost model")
    if why := next(_reasons(sweep), "") or next(_doubts(waves), ""):
        text = f"runs on Ray: {why}; --inline runs it in this process, with the same numbers"
        return Placement(False, text, text)
    known = "runs in this process: it is short by the cost model"
    told = f"runs in this process: {work}"
    return Placement(True, *(f"{text}; --ray runs it on Ray, with the same numbers" for text in (told, known)))


def _reasons(sweep: SweepConfig) -> Iterator[str]:
    """The reasons for Ray in the environment and the study's settings."""
    if in_job() or os.environ.get("RAY_ADDRESS"):
        yield "the environment names a cluster"
    if sweep.resources != ResourcesConfig():
        yield "the study sets resources"
    if sweep.search is not None and sweep.search.settings.scheduler.by_ray:
        yield f"the scheduler {sweep.search.settings.scheduler.name} is Ray's"


def _doubts(waves: Iterable[Wave]) -> Iterator[str]:
    """The parts of these trials that did not come with memsweep, and models whose time is not known."""
    foreign, unknown = dict[str, None](), dict[str, None]()
    for config in {trial.config: None for wave in waves for pack in wave.packs for trial in pack.trials}:
        foreign |= dict.fromkeys(vars(part)["Config"].name for part in parts(config) if not registry.is_own(part))
        foreign |= dict.fromkeys(name for _, name in sorted(named_code(config)))
        unknown |= {} if is_known(config) else {config.model.name: None}
    if foreign:
        yield f"the code of {listed(list(foreign), 3)} is not memsweep's own"
    if unknown:
        yield f"the cost model does not know how long such models take ({listed(list(unknown), 3)})"
