from memsweep.errors import ConfigError as ConfigError
from memsweep.errors import MemsweepError as MemsweepError
from memsweep.errors import StoreError as StoreError
from memsweep.studies.preview import Preview as Preview
from memsweep.studies.python.audit import Audit as Audit
from memsweep.studies.python.audit import audit as audit
from memsweep.studies.python.comparison import Comparison as Comparison
from memsweep.studies.python.decided import Decided as Decided
from memsweep.studies.python.door import compare as compare
from memsweep.studies.python.door import decide as decide
from memsweep.studies.python.door import describe as describe
from memsweep.studies.python.door import extend as extend
from memsweep.studies.python.door import measure as measure
from memsweep.studies.python.door import plan as plan
from memsweep.studies.python.door import results as results
from memsweep.studies.python.door import retry as retry
from memsweep.studies.python.door import status as status
from memsweep.studies.python.door import sweep as sweep
from memsweep.studies.python.measurement import Measurement as Measurement
from memsweep.studies.python.page import Page as Page
from memsweep.studies.python.results import Results as Results
from memsweep.studies.python.words import Description as Description
from memsweep.studies.python.words import Status as Status

__version__: str
