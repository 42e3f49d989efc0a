"""memsweep: how well, and how stably, can a recurrent sequence model hold a long memory?

Run a study, and read what it says:

    import memsweep as ms

    ms.plan("quickstart", "model.width=2,4")            # what would run; runs no trial
    results = ms.sweep("quickstart", {"model.width": [2, 4]}, inline=True)
    results = ms.results("results/quickstart")          # a folder, a name, s3://bucket/quickstart

    results                                             # the verdicts, as ``memsweep report`` shows them
    results.verdicts, results.slopes                    # DataFrames, with columns for the fields that vary
    results.radii, results.curves, results.history, results.trials
    results.figure("radius-recurrent").savefig("radius.pdf")
    results.judge(thresholds=[0.05])                    # the same by other criteria; nothing is trained
    ms.compare("quickstart", "another")                 # studies side by side
    results.weights({"model.width": 4, "task.horizon": 50}, seed=0)     # name -> tensor, for load_state_dict
    results.model({"model.width": 4, "task.horizon": 50}, seed=0)       # the module with these weights
    results.page()                                      # the report's page, inline in a notebook

    ms.status("quickstart"); ms.retry("quickstart"); ms.extend("quickstart", {"model.width": [2, 4, 8]})
    ms.describe("training")

A module of your own, without a study:

    ms.audit(module)                                    # is it causal, how long does it remember, what does it cost
    ms.measure(module, "linear_functional", {"task.horizon": 50}).radii     # how far may its weights move

A study is a name in search_spaces/, the path of a YAML file, or a dict. Errors are ``MemsweepError``: the message says
what to do. ``help(memsweep.Results)`` describes the tables, docs/python.md shows all of this at work, and the command
``memsweep --help`` does the same from a shell.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(
        ("compare", "decide", "describe", "extend", "measure", "plan", "results", "retry", "status", "sweep"),
        "memsweep.studies.python.door",
    ),
    **dict.fromkeys(("Audit", "audit"), "memsweep.studies.python.audit"),
    **dict.fromkeys(("Description", "Status"), "memsweep.studies.python.words"),
    "Decided": "memsweep.studies.python.decided",
    "Measurement": "memsweep.studies.python.measurement",
    "Page": "memsweep.studies.python.page",
    "Comparison": "memsweep.studies.python.comparison",
    "Preview": "memsweep.studies.preview",
    "Results": "memsweep.studies.python.results",
    **dict.fromkeys(("ConfigError", "MemsweepError", "StoreError"), "memsweep.errors"),
}
"""Name -> the module that has it, imported when the name is used; ``__init__.pyi`` says the same to type checkers.

There is no import statement, because modules of every floor import ``memsweep`` for its version.
"""

__all__ = [
    "Audit",
    "Comparison",
    "ConfigError",
    "Decided",
    "Description",
    "Measurement",
    "MemsweepError",
    "Page",
    "Preview",
    "Results",
    "Status",
    "StoreError",
    "audit",
    "compare",
    "decide",
    "describe",
    "extend",
    "measure",
    "plan",
    "results",
    "retry",
    "status",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Verb(ModuleType):
    """A package whose name is a verb: ``memsweep.sweep(...)`` runs a study, and ``memsweep.sweep.store`` is a room."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._function(*args, **options)

    @property
    def _function(self) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(_HOMES[name]), name)

    @property
    def __signature__(self) -> Any:  # what an editor shows
        import inspect

        return inspect.signature(self._function)


import_module("memsweep.sweep").__class__ = _Verb
