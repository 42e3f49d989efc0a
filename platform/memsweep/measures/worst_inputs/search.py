"""The perturbation error of trained replicas over weights and inputs, a lower bound by search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memsweep.data.api import LinearFunctionalTask
from memsweep.measures.worst_inputs.ascent import worst_over_inputs
from memsweep.stability.optional import Subject
from memsweep.stability.perturbation.error import project


def worst_rows(subject: Subject, asked: Any, row: int) -> Iterator[dict[str, Any]]:
    """The errors of one replica, by ball and radius, radius 0 among them.

    Args:
        subject: replicas of tasks that are linear functionals.
        asked: the measure's Config.
        row: of the replica.
    """
    perturbation = subject.config.perturbation
    ensemble, weights = subject.pack.ensemble, subject.pack.weights
    alone, own = ensemble.part([row], 1), weights[row : row + 1]
    if perturbation.projected:
        alone, own = project(alone, own)
    task = subject.tasks[ensemble.replicas[row].trial]
    assert isinstance(task, LinearFunctionalTask), "please report this: the target is no linear functional"
    kernel, bound, radii = task.kernel(), asked.bound * task.variance**0.5, tuple(sorted(asked.radii))
    for ball in perturbation.balls:
        worst = worst_over_inputs(alone, own, kernel, ball, perturbation, radii, bound)
        for radius, error in zip((0.0, *radii), worst.errors.tolist(), strict=True):
            about = {"ball": ball, "norm": perturbation.norm, "bound": bound, "radius": radius, "error": error}
            yield about | {"zero_error": bound * float(kernel.abs().sum())}
