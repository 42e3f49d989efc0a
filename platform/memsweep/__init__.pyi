from memsweep.errors import ConfigError as ConfigError
from memsweep.errors import MemsweepError as MemsweepError
from memsweep.errors import StoreError as StoreError
from memsweep.studies.comparison import Comparison as Comparison
from memsweep.studies.door import compare as compare
from memsweep.studies.door import measure as measure
from memsweep.studies.door import plan as plan
from memsweep.studies.door import results as results
from memsweep.studies.door import sweep as sweep
from memsweep.studies.preview import Preview as Preview
from memsweep.studies.results import Results as Results

__version__: str
