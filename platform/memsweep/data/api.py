"""The public interface for tasks: ``tasks/`` and plugins import all that they need from here.

``Task`` is the base of every task. Bases that do more: functionals of white noise (``FunctionalTask``), those with a
memory function (``KernelTask``, ``LinearFunctionalTask``), images read as sequences (``SequentialImages``), in the
published permutation (``PermutedImages``), texts (``TextTask``), numbers of a dynamical system (``SeriesTask``),
sequences of symbols with a class (``LabelledSequences``), such as expressions (``ExpressionLaw``), and with answers at
marked steps (``MarkedSequences``), such as states that every symbol changes (``TrackedStates``).
"""

from __future__ import annotations

from memsweep.data.folder import DATA_VARIABLE as DATA_VARIABLE
from memsweep.data.folder import DataFolderConfig as DataFolderConfig
from memsweep.data.folder import data_folder as data_folder
from memsweep.data.folder import existing as existing
from memsweep.data.folder import lacks as lacks
from memsweep.data.folder import problems_of as problems_of
from memsweep.data.folder import published_lines as published_lines
from memsweep.data.folder import published_text as published_text
from memsweep.data.folder import with_times as with_times
from memsweep.data.functionals import KERNELS as KERNELS
from memsweep.data.functionals import PARAMETERS as PARAMETERS
from memsweep.data.functionals import FunctionalTask as FunctionalTask
from memsweep.data.functionals import Kernel as Kernel
from memsweep.data.functionals import KernelConfig as KernelConfig
from memsweep.data.functionals import KernelTask as KernelTask
from memsweep.data.functionals import LinearFunctionalTask as LinearFunctionalTask
from memsweep.data.images.archives import ARCHIVES as ARCHIVES
from memsweep.data.images.archives import Archive as Archive
from memsweep.data.images.archives import GreyImagesConfig as GreyImagesConfig
from memsweep.data.images.archives import archive_files as archive_files
from memsweep.data.images.archives import archive_problems as archive_problems
from memsweep.data.images.archives import archive_splits as archive_splits
from memsweep.data.images.classification import ORDERS as ORDERS
from memsweep.data.images.classification import Labelled as Labelled
from memsweep.data.images.classification import PermutedImages as PermutedImages
from memsweep.data.images.classification import SequentialImages as SequentialImages
from memsweep.data.losses import counted_cross_entropy as counted_cross_entropy
from memsweep.data.losses import last_counted_accuracy as last_counted_accuracy
from memsweep.data.losses import last_step_accuracy as last_step_accuracy
from memsweep.data.losses import last_step_cross_entropy as last_step_cross_entropy
from memsweep.data.losses import mean_cross_entropy as mean_cross_entropy
from memsweep.data.losses import step_accuracy as step_accuracy
from memsweep.data.losses import step_cross_entropy as step_cross_entropy
from memsweep.data.losses import summed_cross_entropy as summed_cross_entropy
from memsweep.data.sequences.labelled import ANSWERS as ANSWERS
from memsweep.data.sequences.labelled import NOTHING as NOTHING
from memsweep.data.sequences.labelled import SURE as SURE
from memsweep.data.sequences.labelled import LabelledSequences as LabelledSequences
from memsweep.data.sequences.labelled import Sequences as Sequences
from memsweep.data.sequences.list_operations import EXPRESSION_SYMBOLS as EXPRESSION_SYMBOLS
from memsweep.data.sequences.list_operations import ExpressionLaw as ExpressionLaw
from memsweep.data.sequences.list_operations import expression_numbers as expression_numbers
from memsweep.data.sequences.list_operations import expression_value as expression_value
from memsweep.data.sequences.marked import MarkedSequences as MarkedSequences
from memsweep.data.sequences.marked import TrackedStates as TrackedStates
from memsweep.data.sequences.text import Characters as Characters
from memsweep.data.sequences.text import Corpus as Corpus
from memsweep.data.sequences.text import TextTask as TextTask
from memsweep.data.series import SeriesTask as SeriesTask
from memsweep.data.task import Batch as Batch
from memsweep.data.task import CarriedTask as CarriedTask
from memsweep.data.task import Task as Task
from memsweep.streams import TEST as TEST
from memsweep.streams import TRAIN as TRAIN
from memsweep.streams import VALIDATION as VALIDATION
from memsweep.streams import Stream as Stream
