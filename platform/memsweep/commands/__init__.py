"""The verbs of the command line that have to do with studies and their results."""

from __future__ import annotations

from memsweep.commands.look import plan, report, status, sync
from memsweep.commands.submit import submit
from memsweep.commands.verbs import extend, resume, retry, sweep

__all__ = ["extend", "plan", "report", "resume", "retry", "status", "submit", "sweep", "sync"]
