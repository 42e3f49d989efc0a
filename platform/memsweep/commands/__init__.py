"""The verbs of the command line that have to do with studies and their results."""

from __future__ import annotations

from memsweep.commands.audit import audit
from memsweep.commands.look import plan, status, sync
from memsweep.commands.measure import measure
from memsweep.commands.report import report
from memsweep.commands.submit import submit
from memsweep.commands.verbs import extend, resume, retry, sweep
from memsweep.commands.weights import weights

__all__ = [
    "audit",
    "extend",
    "measure",
    "plan",
    "report",
    "resume",
    "retry",
    "status",
    "submit",
    "sweep",
    "sync",
    "weights",
]
