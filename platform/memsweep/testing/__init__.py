"""Conformance suites: what every task and every model must do, for the registry's own parts and for plugins.

In a plugin's tests::

    from memsweep.testing import ModelSuite, TaskSuite

    class TestMyTask(TaskSuite):
        task = "my_task"
"""

from memsweep.testing.models import ModelSuite
from memsweep.testing.tasks import TaskSuite

__all__ = ["ModelSuite", "TaskSuite"]
