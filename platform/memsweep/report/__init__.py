"""Tables and pictures of a study, made from its stored results alone (no Ray, no MLflow, no training code).

``build`` writes a report, ``judge`` only judges, and ``compare`` puts studies side by side. Each is imported when it is
used, with the heavy libraries that it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["ReportPaths", "build", "compare", "judge"]

_HOMES = {
    **dict.fromkeys(("ReportPaths", "build"), "memsweep.report.publish"),
    "compare": "memsweep.report.values.side_by_side",
    "judge": "memsweep.report.analysis.contents",
}
"""Name -> the module that has it; ``__init__.pyi`` says the same to type checkers."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
