"""What tasks are made of: the one door through which ``tasks/`` and plugins reach the engine.

``Task`` is what every task is. Half-made are functionals of white noise (``FunctionalTask``), those with a memory
function (``KernelTask``, ``LinearFunctionalTask``), images read as sequences (``SequentialImages``), with their pixels
in the published disorder (``PermutedImages``), and texts (``TextTask``).
"""

from __future__ import annotations

from memsweep.learning.classification import ORDERS, Labelled, SequentialImages
from memsweep.learning.data_folder import DATA_VARIABLE, data_folder
from memsweep.learning.functionals import FunctionalTask, KernelTask, LinearFunctionalTask
from memsweep.learning.kernels import KERNELS, PARAMETERS, Kernel, KernelConfig
from memsweep.learning.losses import (
    last_step_accuracy,
    last_step_cross_entropy,
    mean_cross_entropy,
    step_accuracy,
    summed_cross_entropy,
)
from memsweep.learning.permuted import PermutedImages
from memsweep.learning.task import Batch, CarriedTask, Task
from memsweep.learning.text import Corpus, TextTask
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

__all__ = [
    "DATA_VARIABLE",
    "KERNELS",
    "ORDERS",
    "PARAMETERS",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "Batch",
    "CarriedTask",
    "Corpus",
    "FunctionalTask",
    "Kernel",
    "KernelConfig",
    "KernelTask",
    "Labelled",
    "LinearFunctionalTask",
    "PermutedImages",
    "SequentialImages",
    "Stream",
    "Task",
    "TextTask",
    "data_folder",
    "last_step_accuracy",
    "last_step_cross_entropy",
    "mean_cross_entropy",
    "step_accuracy",
    "summed_cross_entropy",
]
