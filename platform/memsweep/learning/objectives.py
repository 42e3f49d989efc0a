"""What tasks are made of: the one door through which ``tasks/`` and plugins reach the engine.

``Task`` is what every task is. Three kinds come half-made: functionals of white noise (``FunctionalTask``), those with
a memory function (``KernelTask``, ``LinearFunctionalTask``), and images read as sequences (``SequentialImages``).
"""

from __future__ import annotations

from memsweep.learning.classification import ORDERS, Labelled, SequentialImages
from memsweep.learning.functionals import FunctionalTask, KernelTask, LinearFunctionalTask
from memsweep.learning.kernels import KERNELS, PARAMETERS, Kernel, KernelConfig
from memsweep.learning.losses import last_step_accuracy, last_step_cross_entropy, summed_cross_entropy
from memsweep.learning.task import Batch, CarriedTask, Task
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

__all__ = [
    "KERNELS",
    "ORDERS",
    "PARAMETERS",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "Batch",
    "CarriedTask",
    "FunctionalTask",
    "Kernel",
    "KernelConfig",
    "KernelTask",
    "Labelled",
    "LinearFunctionalTask",
    "SequentialImages",
    "Stream",
    "Task",
    "last_step_accuracy",
    "last_step_cross_entropy",
    "summed_cross_entropy",
]
