"""The first round of a study whose sizes were found: as much of it as a share of the limit pays for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from memsweep.config.schema.study import SweepConfig
from memsweep.errors import counted
from memsweep.sweep.driver.launch import Limits
from memsweep.sweep.driver.progress import duration
from memsweep.sweep.planning.plan import identified, make_packs

SHARE = 0.5
"""Of the limit, for the first round at most: one that takes twice as long as the cost model says still ends."""


def first_rounds(study: SweepConfig) -> Iterator[SweepConfig]:
    """The study with its own plan, then with each smaller one."""
    yield study
    yield from (replace(study, rows=plan.rows, grid=plan.grid) for plan in study.smaller)


def begun_rounds(study: SweepConfig) -> Iterator[SweepConfig]:
    """The same, and the first plans of earlier versions: an earlier command may have begun with each of them."""
    yield from first_rounds(study)
    yield from (replace(study, rows=plan.rows, grid=plan.grid) for plan in study.earlier)


def first_round(study: SweepConfig, limits: Limits) -> tuple[SweepConfig, str]:
    """The study with the largest plan that fits into its share of the limit, or with the smallest; and a note on it.

    Seconds are those of the cost model, so that the same limit gives the same plan on every machine.

    Args:
        study: as it is written.
        limits: of the run.

    Returns:
        The study, and in words why it begins with less than its own plan; empty where it does not.
    """
    if not study.smaller or (most := SHARE * limits.core_seconds) == math.inf:
        return study, ""
    chosen = next((plan for plan in first_rounds(study) if seconds_of(plan) <= most), None)
    if chosen is study:
        return study, ""
    why = (
        f"the whole first plan ({counted(len(study.rows), 'trial')}, about {duration(seconds_of(study))} of a core) "
        f"would take more than half of the limit ({duration(most)})"
    )
    if chosen is not None:
        return chosen, f"fewer sizes or seeds, because {why}"
    *_, least = first_rounds(study)
    return least, f"the fewest sizes and seeds, because {why}, and so do these"


def seconds_of(study: SweepConfig) -> float:
    """Core seconds of the study's trials, by the cost model."""
    return sum(pack.cost for pack in make_packs(identified(study)))
