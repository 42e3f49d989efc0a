"""What tasks are made of: the one door through which ``tasks/`` and plugins reach the engine.

``Task`` is what every task is. Half-made are functionals of white noise (``FunctionalTask``), those with a memory
function (``KernelTask``, ``LinearFunctionalTask``), images read as sequences (``SequentialImages``), with their pixels
in the published disorder (``PermutedImages``), texts (``TextTask``), and sequences of symbols with a class
(``LabelledSequences``), such as expressions (``ExpressionLaw``).
"""

from __future__ import annotations

from memsweep.learning.characters import Characters
from memsweep.learning.classification import ORDERS, Labelled, SequentialImages
from memsweep.learning.data_folder import (
    DATA_VARIABLE,
    DataFolderConfig,
    data_folder,
    lacks,
    published_lines,
    published_text,
)
from memsweep.learning.functionals import FunctionalTask, KernelTask, LinearFunctionalTask
from memsweep.learning.image_archives import ARCHIVES, Archive, archive_files, archive_problems, archive_splits
from memsweep.learning.kernels import KERNELS, PARAMETERS, Kernel, KernelConfig
from memsweep.learning.labelled_sequences import ANSWERS, LabelledSequences, Sequences
from memsweep.learning.list_operations import EXPRESSION_SYMBOLS, ExpressionLaw, expression_numbers, expression_value
from memsweep.learning.losses import (
    counted_cross_entropy,
    last_counted_accuracy,
    last_step_accuracy,
    last_step_cross_entropy,
    mean_cross_entropy,
    step_accuracy,
    step_cross_entropy,
    summed_cross_entropy,
)
from memsweep.learning.permuted import PermutedImages
from memsweep.learning.task import Batch, CarriedTask, Task
from memsweep.learning.text import Corpus, TextTask
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

__all__ = [
    "ANSWERS",
    "ARCHIVES",
    "DATA_VARIABLE",
    "EXPRESSION_SYMBOLS",
    "KERNELS",
    "ORDERS",
    "PARAMETERS",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "Archive",
    "Batch",
    "CarriedTask",
    "Characters",
    "Corpus",
    "DataFolderConfig",
    "ExpressionLaw",
    "FunctionalTask",
    "Kernel",
    "KernelConfig",
    "KernelTask",
    "Labelled",
    "LabelledSequences",
    "LinearFunctionalTask",
    "PermutedImages",
    "Sequences",
    "SequentialImages",
    "Stream",
    "Task",
    "TextTask",
    "archive_files",
    "archive_problems",
    "archive_splits",
    "counted_cross_entropy",
    "data_folder",
    "expression_numbers",
    "expression_value",
    "lacks",
    "last_counted_accuracy",
    "last_step_accuracy",
    "last_step_cross_entropy",
    "mean_cross_entropy",
    "published_lines",
    "published_text",
    "step_accuracy",
    "step_cross_entropy",
    "summed_cross_entropy",
]
