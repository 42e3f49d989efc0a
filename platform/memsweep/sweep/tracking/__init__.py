"""Shows the store in MLflow; the only package that imports mlflow, and only when a sweep is tracked."""

from __future__ import annotations

from memsweep.sweep.tracking.run_content import Verdicts
from memsweep.sweep.tracking.tracker import Tracker, sync

__all__ = ["Tracker", "Verdicts", "sync"]
