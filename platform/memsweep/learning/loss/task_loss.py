"""Which task loss a program trains or is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from memsweep.data.functionals import LinearFunctionalTask
from memsweep.data.task import CarriedTask, Task
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.carried import CarriedLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss


def task_loss_for(tasks: Sequence[Task], exact: bool, dtype: torch.dtype) -> TaskLoss[Any]:
    """The task loss of trials of one program.

    Args:
        tasks: one per trial; all equal when not exact.
        exact: the expected loss has a closed form (``TrialConfig.has_closed_form``).
        dtype: of weights and data.
    """
    if exact:
        return ExactLoss([task for task in tasks if isinstance(task, LinearFunctionalTask)], dtype)
    if tasks[0].carries_states:
        assert isinstance(tasks[0], CarriedTask), "a task that carries states is a CarriedTask"
        return CarriedLoss(tasks[0], dtype)
    return SampledLoss(tasks[0], dtype)
