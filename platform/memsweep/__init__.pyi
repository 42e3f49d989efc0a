from memsweep.errors import ConfigError as ConfigError
from memsweep.errors import MemsweepError as MemsweepError
from memsweep.errors import StoreError as StoreError
from memsweep.studies.preview import Preview as Preview
from memsweep.studies.python.comparison import Comparison as Comparison
from memsweep.studies.python.door import compare as compare
from memsweep.studies.python.door import measure as measure
from memsweep.studies.python.door import plan as plan
from memsweep.studies.python.door import results as results
from memsweep.studies.python.door import sweep as sweep
from memsweep.studies.python.results import Results as Results

__version__: str
