"""What the trials of a study must be like so that several workers can share out their data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memsweep import registry
from memsweep.config.core.problems import sentence
from memsweep.config.schema.trial import ResourcesConfig, TrialConfig


def sharing_problems(resources: ResourcesConfig, rows: Iterable[TrialConfig]) -> list[str]:
    """Why these resources cannot compute these trials; each reason once, however many trials have it."""
    if resources.shards == 1:
        return []
    return list(dict.fromkeys(problem for row in rows for problem in _of(row, resources.workers)))


def _of(trial: TrialConfig, workers: int) -> Iterator[str]:
    training = trial.training
    if training.objective == "population":
        yield sentence(
            "resources.strategy",
            "data shares out the sequences of a step, and with training.objective: population there are none. Take "
            "strategy: replicas",
        )
    if registry.get(registry.TASK, trial.task.name).carries_states:
        yield sentence(
            "resources.strategy",
            f"data shares out the sequences of a step, but those of the task {trial.task.name} go on from batch to "
            "batch, with states that stay where they are. Take strategy: replicas",
        )
    for name in ("batch_size", "validation_size"):
        if (size := getattr(training, name)) < workers:
            yield sentence(
                f"training.{name}",
                f"must be at least resources.workers, {workers}, which share its sequences out (strategy: data)",
                str(size),
            )
    if getattr(trial.model, "dropout", 0.0):
        yield sentence(
            "resources.strategy",
            "data cannot share out a step with dropout, whose draws are of the whole batch. Set model.dropout to 0, or "
            "take strategy: replicas",
        )
    elif registry.get(registry.MODEL, trial.model.name).whole_batch(trial.model):
        yield sentence(
            "resources.strategy",
            f"data cannot share out a step of the model {trial.model.name} as it is configured: it takes statistics of "
            "the whole batch (batch norm). Take a norm that does not, or strategy: replicas",
        )
