"""Every registered task and model passes its conformance suite: a new one is tested without editing this file."""

from __future__ import annotations

from pathlib import Path

from memsweep import registry
from memsweep.testing import ModelSuite, TaskSuite

registry.discover(Path(__file__).parents[1])

for _name in registry.names(registry.TASK):
    globals()[f"TestTask_{_name}"] = type(f"TestTask_{_name}", (TaskSuite,), {"task": _name})
for _name in registry.names(registry.MODEL):
    globals()[f"TestModel_{_name}"] = type(f"TestModel_{_name}", (ModelSuite,), {"model": _name})
del TaskSuite, ModelSuite  # pytest would collect the bare suites too
