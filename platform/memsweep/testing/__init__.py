"""Conformance suites: what every task, model and recurrent unit must do, for the registry's own and for plugins.

In a plugin's tests::

    from memsweep.testing import ModelSuite, TaskSuite

    class TestMyTask(TaskSuite):
        task = "my_task"
"""

from memsweep.testing.models import ModelSuite
from memsweep.testing.tasks import TaskSuite
from memsweep.testing.units import OnlineUnitSuite, UnitSuite

__all__ = ["ModelSuite", "OnlineUnitSuite", "TaskSuite", "UnitSuite"]
