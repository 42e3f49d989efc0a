"""What tasks are made of: the one door through which ``tasks/`` and plugins reach the engine.

``Task`` is what every task is. Half-made are functionals of white noise (``FunctionalTask``), those with a memory
function (``KernelTask``, ``LinearFunctionalTask``), images read as sequences (``SequentialImages``), with their pixels
in the published disorder (``PermutedImages``), texts (``TextTask``), and sequences of symbols with a class
(``LabelledSequences``), such as expressions (``ExpressionLaw``).
"""

from __future__ import annotations

from memsweep.data.folder import (
    DATA_VARIABLE,
    DataFolderConfig,
    data_folder,
    lacks,
    published_lines,
    published_text,
)
from memsweep.data.functionals import FunctionalTask, KernelTask, LinearFunctionalTask
from memsweep.data.images.archives import ARCHIVES, Archive, archive_files, archive_problems, archive_splits
from memsweep.data.images.classification import ORDERS, Labelled, SequentialImages
from memsweep.data.images.permuted import PermutedImages
from memsweep.data.kernels import KERNELS, PARAMETERS, Kernel, KernelConfig
from memsweep.data.losses import (
    counted_cross_entropy,
    last_counted_accuracy,
    last_step_accuracy,
    last_step_cross_entropy,
    mean_cross_entropy,
    step_accuracy,
    step_cross_entropy,
    summed_cross_entropy,
)
from memsweep.data.sequences.characters import Characters
from memsweep.data.sequences.labelled import ANSWERS, LabelledSequences, Sequences
from memsweep.data.sequences.list_operations import (
    EXPRESSION_SYMBOLS,
    ExpressionLaw,
    expression_numbers,
    expression_value,
)
from memsweep.data.sequences.text import Corpus, TextTask
from memsweep.data.task import Batch, CarriedTask, Task
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
