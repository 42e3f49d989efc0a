"""How a trial can end. Every member says what happened and what to do next."""

from __future__ import annotations

import enum


class Outcome(enum.StrEnum):
    """The end of a trial; ``explanation`` is shown in the table, the MLflow tag and the report."""

    DONE = "done"
    DIVERGED = "diverged"
    STOPPED_EARLY = "stopped_early"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    PREEMPTED = "preempted"

    @property
    def explanation(self) -> str:
        """Cause and next action, in one or two sentences."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Outcome.DONE: "Trained for all of its steps, and measured.",
    Outcome.DIVERGED: (
        "At least one replica's loss became infinite or NaN; its errors are recorded as inf. "
        "Lower training.learning_rate or training.clip (0 is no limit) if the divergence is not itself the finding."
    ),
    Outcome.STOPPED_EARLY: (
        "Every replica ended before all steps: after training.patience validations without improvement, below "
        "training.stop_below, or at training.until, which a search's scheduler sets; the best state was measured. "
        "Raise training.patience (0 never stops) or leave training.until out if the loss was still falling."
    ),
    Outcome.OUT_OF_MEMORY: (
        "The trial asked for more memory than the worker had, running alone. "
        "Lower training.batch_size or task.horizon, or run it on a larger node."
    ),
    Outcome.FAILED: "The task's or the model's code raised; the traceback is in the report. Mend it and run again.",
    Outcome.PREEMPTED: "The worker was taken away before the trial ended. Run the same command again to finish it.",
}
