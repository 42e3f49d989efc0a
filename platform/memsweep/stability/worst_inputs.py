"""The perturbation error of trained replicas over weights and inputs, a lower bound by search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from memsweep.config.schema.trial import TrialConfig
from memsweep.data.api import LinearFunctionalTask, Task
from memsweep.learning.state.trained import TrainedEnsemble
from memsweep.models.base import Model, Weights
from memsweep.stability.measure import Measurement, with_table
from memsweep.stability.perturbation.error import project
from memsweep.stability.perturbation.over_inputs import worst_over_inputs

TABLE = "worst_inputs"


def with_worst_inputs(
    measured: dict[int, tuple[int, Measurement]], pack: TrainedEnsemble, tasks: Sequence[Task], config: TrialConfig
) -> dict[int, tuple[int, Measurement]]:
    """The measurements of an ensemble's replicas, with their errors over weights and inputs.

    Args:
        measured, pack, config: as of ``measure``.
        tasks: of the trials of the pack, all of them linear functionals.
    """
    perturbation = config.perturbation
    asked = perturbation.worst_inputs
    assert asked is not None, "please report this: no worst inputs were asked for"
    ensemble, weights = pack.ensemble, pack.weights
    if perturbation.projected:
        ensemble, weights = project(ensemble, weights)

    def rows(model: Model, own: Weights, row: int) -> Iterator[dict[str, Any]]:
        del model, own
        task = tasks[ensemble.replicas[row].trial]
        assert isinstance(task, LinearFunctionalTask), "please report this: the target is no linear functional"
        kernel, bound, radii = task.kernel(), asked.bound * task.variance**0.5, tuple(sorted(asked.radii))
        alone = ensemble.part([row], 1)
        for ball in perturbation.balls:
            worst = worst_over_inputs(alone, weights[row : row + 1], kernel, ball, perturbation, radii, bound)
            for radius, error in zip((0.0, *radii), worst.errors.tolist(), strict=True):
                about = {"ball": ball, "norm": perturbation.norm, "bound": bound, "radius": radius, "error": error}
                yield about | {"zero_error": bound * float(kernel.abs().sum())}

    return with_table(measured, pack, TABLE, rows)
