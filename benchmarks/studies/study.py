"""Whole studies, from the file to the report: how many trials an hour of a core makes, and where its time goes.

Real studies show the shares of training, perturbation, files and scheduling; a study whose trials do nothing, at two
sizes, shows what a trial costs beside its training and whether that grows with the study.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.studies import noop
from benchmarks.studies.whole import Whole, in_a_process, whole

NOOP = (100, 1000)
"""Trials; ``scale`` runs 10,000."""
CURSE_EVERY = 5
"""Every so many-th trial of curse_of_memory is run; coprime to its axes, so that each of their values comes."""


def real(study: str, every: int) -> Whole:
    """A study of search_spaces/, or every so many-th trial of it."""
    with tempfile.TemporaryDirectory(prefix="memsweep-study-") as results:
        return whole(study, (), Path(results), every=every)


def row(study: str, part: str, found: Whole) -> Row:
    """A row of ``study.json``; shares are of the time of all cores during the run."""
    seconds, profile = sum(found.stages.values()), found.profile
    return {
        "study": study,
        "part": part,
        "trials": found.trials,
        "jobs": found.jobs,
        "seconds": seconds,
        "cpu_ms_a_trial": 1000 * found.cpu / found.trials,
        "trials_per_core_hour": 3600 * found.trials / (profile.slots * seconds),
        "ray_share": profile.scheduling,
        "training_share": profile.share("training"),
        "perturbation_share": profile.share("perturbation"),
        "io_share": profile.share("tables", "storing"),
    }


def cost_row(found: Whole, how: str) -> Row:
    """Milliseconds of wall clock per trial by stage, and the driver's memory."""
    stages = {name: 1000 * seconds / found.trials for name, seconds in found.stages.items()}
    after_run, after_report = found.memory
    whole_ms = sum(stages.values())
    return {
        **{"study": "no-op", "part": how, "trials": found.trials, "jobs": found.jobs, "ms_per_trial": whole_ms},
        **{f"{name}_ms": ms for name, ms in stages.items()},
        **{"memory_mib": after_run, "report_memory_mib": after_report, "page_mb": found.page / 1e6},
    }


def run(options: Options) -> None:
    """Measure, print, write."""
    studies = [("quickstart", 10 if options.quick else 1), ("curse_of_memory", 61 if options.quick else CURSE_EVERY)]
    rows, costs = [], []
    for study, every in studies:
        if options.wants({"study": study}):
            part = "whole" if every == 1 else f"one trial in {every}"
            rows.append(row(study, part, in_a_process(real, study, every)))
            harness.table(rows[-1:])
    for trials in NOOP[:1] if options.quick else NOOP:
        if options.wants({"study": "no-op", "trials": trials}):
            found = in_a_process(noop.drill, trials)
            rows.append(row("no-op", "whole", found))
            costs.append(cost_row(found, "whole"))
            harness.table(costs[-1:])
    harness.table(costs, "what a trial costs beside its work, by stage")
    settings: dict[str, Any] = {"costs": costs}
    harness.publish("study", settings, rows, options)
