"""Conformance suites: what every task, model, unit, learning rule, measure and analysis must do, plugins included.

In a plugin's tests::

    from memsweep.testing import ModelSuite, TaskSuite

    class TestMyTask(TaskSuite):
        task = "my_task"
"""

from memsweep.testing.analyses import AnalysisSuite
from memsweep.testing.measures import MeasureSuite
from memsweep.testing.models import ModelSuite
from memsweep.testing.rules import RuleSuite
from memsweep.testing.tasks import TaskSuite
from memsweep.testing.units import OnlineUnitSuite, UnitSuite

__all__ = ["AnalysisSuite", "MeasureSuite", "ModelSuite", "OnlineUnitSuite", "RuleSuite", "TaskSuite", "UnitSuite"]
