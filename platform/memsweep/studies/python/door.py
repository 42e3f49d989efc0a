"""The functions of ``import memsweep``: what a command does, with values in and values out."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.load.study import load_study, study_of
from memsweep.config.schema.study import SweepConfig
from memsweep.errors import BlockedError, ConfigError, Exit
from memsweep.report.analysis.contents import analyse
from memsweep.report.read.study import load_study as read_study
from memsweep.studies import default_results
from memsweep.studies.ending import failures, stopped
from memsweep.studies.locations import Place, find_study, names_folder, store_of
from memsweep.studies.measurement import measurement
from memsweep.studies.overrides import plain, words_of
from memsweep.studies.preview import Preview, preview
from memsweep.studies.python.comparison import Comparison, compared
from memsweep.studies.python.results import Results
from memsweep.studies.run import Run
from memsweep.studies.trials import Request
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.store.filesystem import Location
from memsweep.trust.gate import Trust

Study = str | Path | Mapping[str, Any]
"""A name in search_spaces/, the path of a YAML file, or what such a file would say, as a dict with a ``name``."""
Overrides = str | Mapping[str, Any]
"""``"model.width=2,4"`` as on the command line, or ``{"model.width": [2, 4], "training.steps": 100}``."""


_DICT = "the study, a dict"


def sweep(
    study: Study,
    *overrides: Overrides,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    inline: bool | None = None,
    address: str | None = None,
    max_hours: float | None = None,
    max_trials: int | None = None,
    max_failures: int | None = None,
    no_reuse: bool = False,
    progress: bool = True,
    trust: bool = False,
) -> Results:
    """Run a study as ``memsweep sweep`` does: plan, train, measure, judge, report. What is stored is not run again.

    Args:
        study: a name in search_spaces/, the path of a YAML file, or a dict of what such a file would say.
        overrides: words (``"model.width=2,4"``) or dicts (``{"model.width": [2, 4]}``; a list is an axis of the grid).
        results: the folder of all results, or ``s3://bucket/prefix`` (None: $MEMSWEEP_RESULTS, else ``results``).
        workspace: folder that holds tasks/ and search_spaces/.
        inline: True: in this process, without Ray; False: on Ray; None: in this process if it is short and all of its
            code is memsweep's own (docs/using.md). The numbers are the same.
        address: of a running Ray cluster to join: ``auto``, or ``host:port``.
        max_hours, max_trials, max_failures: stop at a limit; what is finished is kept and returned, with a warning.
        no_reuse: recompute every trial.
        progress: write lines of progress to standard output.
        trust: what a study file from elsewhere names may be called (SECURITY.md). A dict, and overrides, need no word.

    Returns:
        The results. Trials that failed are in ``.missing``, and a warning names them.

    Raises:
        ConfigError: the study cannot run; with all that is wrong. Nothing has been started.
        HeldError: another process runs the study.
        MemsweepError: the results cannot be written, or the storage or the cluster went away.
        KeyboardInterrupt: after Ctrl-C; what is finished is kept, and the same call goes on.
    """
    loaded = _load(study, overrides, workspace, trust)
    where = Location.at(default_results() if results is None else results)
    limits = Limits(max_hours, max_trials, max_failures)
    place = _place(where, workspace, Launch(inline, address), limits, results)
    trials = identified(loaded) if loaded.search is None else ()
    return _run(Request(loaded, trials, no_reuse=no_reuse), place, progress)


def measure(
    study: str | Path,
    *overrides: Overrides,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    inline: bool | None = None,
    address: str | None = None,
    progress: bool = True,
    trust: bool = False,
) -> Results:
    """Measure the stored weights of a study with other settings of the perturbation, and train nothing.

    Args:
        study: its name, or the folder or ``s3://`` address of its results.
        overrides: of ``perturbation.*`` (``{"perturbation.norm": "entrywise"}``), and ``name``; others as of ``sweep``.
        results, workspace, inline, address, progress: as of ``sweep``.
        trust: what the stored plan names may be called, though another user planned it.

    Returns:
        The results of a study of its own, beside the other.

    Raises:
        ConfigError: an override is no setting of a measurement, or wrong.
        MemsweepError: there are no results, or none has stored weights that fit; others as of ``sweep``.
    """
    _discover(workspace)
    store = find_study(str(study), Location.at(default_results() if results is None else results))
    request, left_out = measurement(store, words_of(overrides), Path(workspace), Trust(trust))
    if left_out:
        warnings.warn(left_out, stacklevel=2)
    named = (results or "", Path(study).parent)
    return _run(request, _place(store.location.parent, workspace, Launch(inline, address), Limits(), *named), progress)


def plan(
    study: Study,
    *overrides: Overrides,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    no_reuse: bool = False,
    trust: bool = False,
) -> Preview:
    """Say what ``sweep`` would do, and write nothing. Arguments as of ``sweep``.

    Returns:
        ``.trials`` is a DataFrame with a row per trial: identity, what varies, state; ``.to_run`` counts what is left;
        ``.estimate()`` gives hours, memory and disk. Printed, it is the text of ``memsweep plan``.

    Raises:
        ConfigError: the study cannot run; with all that is wrong.
        StoreError: the storage cannot be read.
    """
    loaded = _load(study, overrides, workspace, trust)
    return preview(loaded, Location.at(default_results() if results is None else results), no_reuse=no_reuse)


def results(study: str | Path, *, results: str | Path | None = None) -> Results:
    """Read the stored results of a study; nothing is run or written, and no file of a workspace is imported.

    Args:
        study: its name, or the folder or ``s3://`` address of its results: ``results/quickstart``.
        results: the folder of all results, for a name (None: $MEMSWEEP_RESULTS, else ``results``).

    Raises:
        MemsweepError: there are none; the message names the studies that there are.
        StoreError: the plan is damaged, or the storage cannot be read. A damaged result is in ``.missing``.
    """
    return _read(study, results)


def compare(*studies: Results | str | Path, results: str | Path | None = None) -> Comparison:
    """Compare stored studies side by side, as ``memsweep report A B`` does; nothing is run or written.

    Args:
        studies: two or more; the first is the reference. Results, or what ``results`` takes.
        results: as of ``results``.

    Raises:
        MemsweepError: there are fewer than two, one is given twice, or they were judged by different criteria; others
            as of ``results``.
    """
    found = [each if isinstance(each, Results) else _read(each, results) for each in studies]
    return Comparison(compared([(Location.at(each.location), each.contents) for each in found]))


def _read(study: str | Path, results: str | Path | None) -> Results:
    registry.discover_when_asked("memsweep.models.parameterizations")
    store = find_study(str(study), Location.at(default_results() if results is None else results))
    return Results(store.location, analyse(read_study(store.location)))


def _load(study: Study, overrides: tuple[Overrides, ...], workspace: str | Path, trust: bool) -> SweepConfig:
    _discover(workspace)
    words = words_of(overrides)
    if not isinstance(study, Mapping):
        return load_study(str(study), words, Path(workspace), trust=Trust(trust))
    if "name" not in study and not any(word.startswith("name=") for word in words):
        raise ConfigError(["name: is missing. Its results go to a folder of that name: {'name': 'mine', ...}."], _DICT)
    return study_of(plain(study), words, Path(workspace), "", _DICT)


def _place(
    where: Location,
    workspace: str | Path,
    launch: Launch,
    limits: Limits,
    *named: str | Path | None,
) -> Place:
    if problems := [f"{name} must be above 0, got {value}." for name, value in _wrong(limits)]:
        raise ConfigError(problems, "the limits")
    return Place(where, Path(workspace), launch, limits, names_folder(where, *(path or "" for path in named)))


def _run(request: Request, place: Place, progress: bool) -> Results:
    """Runs a study; what the command prints of a run that did not end well is raised, or given as a warning."""
    run = Run(request, place, None if progress else io.StringIO())
    with warnings.catch_warnings():
        # in a notebook a library of a library looks for widgets that nothing here needs
        warnings.filterwarnings("ignore", message="IProgress not found")
        ending = run.execute()
    why = stopped(ending)
    if ending.code == Exit.INTERRUPTED:
        raise KeyboardInterrupt(why)
    if ending.report is None or ending.summary.lost or ending.summary.outage:
        raise BlockedError(why)
    found = Results(store_of(place.results, ending.study).location, ending.report.contents)
    failed = [f"{ending.study}: {len(found.missing)} trials without a result: results.missing", *failures(ending)]
    for text in (why, "\n".join(failed) if ending.summary.failed else "", ending.complaint):
        if text:
            warnings.warn(text, stacklevel=3)
    return found


def _discover(workspace: str | Path) -> None:
    for sentence in registry.discover(Path(workspace)):
        warnings.warn(sentence, stacklevel=4)


def _wrong(limits: Limits) -> list[tuple[str, object]]:
    return [(f"max_{name}", value) for name, value in vars(limits).items() if value is not None and not value > 0]
