"""The functions of ``import memsweep``: what a command does, with values in and values out."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from torch import nn

from memsweep import registry
from memsweep.config.load.study import load_study, study_of
from memsweep.config.schema.study import SweepConfig
from memsweep.errors import BlockedError, ConfigError, Exit
from memsweep.reference.describe import describe as described
from memsweep.report.analysis.contents import analyse
from memsweep.report.read.failures import failure_lines
from memsweep.report.read.study import load_study as read_study
from memsweep.studies.continuation import extended, retried, trials_of
from memsweep.studies.decide.request import deciding, limits_of_study
from memsweep.studies.ending import stopped
from memsweep.studies.locations import Place, find_study, store_of
from memsweep.studies.measurement import measurement
from memsweep.studies.overrides import plain, words_of
from memsweep.studies.preview import Preview, preview
from memsweep.studies.python.calls import discover, place_of, verb, warn
from memsweep.studies.python.comparison import Comparison, compared
from memsweep.studies.python.decided import IN_A_DICT, Decided, module_of, of_module
from memsweep.studies.python.measurement import Measurement
from memsweep.studies.python.module import measured_in_memory
from memsweep.studies.python.results import Results
from memsweep.studies.python.words import Description, Status
from memsweep.studies.run import Run
from memsweep.studies.sharing.run import SharedRun
from memsweep.studies.status import read_status
from memsweep.studies.trials import Request
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import default_results
from memsweep.trust.gate import Trust

Study = str | Path | Mapping[str, Any]
"""A name in search_spaces/, the path of a YAML file, or what such a file would say, as a dict with a ``name``."""
Overrides = str | Mapping[str, Any]
"""``"model.width=2,4"`` as on the command line, or ``{"model.width": [2, 4], "training.steps": 100}``."""


_DICT = "the study, a dict"


@verb
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
    share: bool = False,
    progress: bool = True,
    trust: bool = False,
) -> Results:
    """Run a study as ``memsweep sweep`` does: plan, train, measure, judge, report. What is stored is not run again.

    Args:
        study: a name in search_spaces/, the path of a YAML file, or a dict of what such a file would say. In a dict
            ``factory`` may be the class itself, that of a notebook's cell as well.
        overrides: words (``"model.width=2,4"``) or dicts (``{"model.width": [2, 4]}``; a list is an axis of the grid).
        results: the folder of all results, or ``s3://bucket/prefix`` (None: $MEMSWEEP_RESULTS, else ``results``).
        workspace: folder that holds tasks/ and search_spaces/.
        inline: True: in this process, without Ray; False: on Ray; None: in this process if it is short and all of its
            code is memsweep's own (docs/using.md). The numbers are the same.
        address: of a running Ray cluster to join: ``auto``, or ``host:port``.
        max_hours, max_trials, max_failures: stop at a limit; what is finished is kept and returned, with a warning.
        no_reuse: recompute every trial.
        share: divide the study with other drivers that say so, too: each pack runs once, and all return the whole
            study. One of them leads, and writes the report and MLflow (docs/evidence/scaling.md).
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
    place = place_of(where, workspace, Launch(inline, address), limits, results)
    source = "" if isinstance(study, Mapping) else str(study)
    request = Request(loaded, trials_of(loaded), no_reuse=no_reuse, overrides=tuple(words_of(overrides)), source=source)
    return _run(request, place, progress, SharedRun if share else Run)


@verb
def extend(
    study: Study,
    *overrides: Overrides,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    inline: bool | None = None,
    address: str | None = None,
    progress: bool = True,
    trust: bool = False,
) -> Results:
    """Add trials to a stored study as ``memsweep extend`` does, and run those without a result.

    Args:
        study, overrides: the study as of ``sweep``, with more values of an axis, more seeds or more suggestions.
        results, workspace, inline, address, progress, trust: as of ``sweep``.

    Returns:
        The results of the whole study.

    Raises:
        MemsweepError: there are no results, or nothing is added; others as of ``sweep``.
    """
    wider = _load(study, overrides, workspace, trust)
    where = Location.at(default_results() if results is None else results)
    source = "" if isinstance(study, Mapping) else str(study)
    request, note = extended(wider, where, Trust(trust), source)
    if note:
        warn(note)
    return _run(request, place_of(where, workspace, Launch(inline, address), Limits(), results), progress)


@verb
def decide(
    study: Study | Callable[..., nn.Module],
    *overrides: Overrides,
    kernel: str | None = None,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    inline: bool | None = None,
    address: str | None = None,
    max_hours: float | None = None,
    max_core_hours: float | None = None,
    max_gpu_hours: float | None = None,
    max_trials: int | None = None,
    progress: bool = True,
    trust: bool = False,
) -> Decided:
    """Go on with a study, round by round, until its questions are decided, as ``memsweep decide`` does.

    Args:
        study: as of ``sweep``; or a module, by its name (``my_nets:MinGRU``) or as the class or function of a file:
            its study is then made of the module and the kernel alone, as the command makes it. To go on with it,
            name the module again.
        kernel: the memory for a module (None: ``exponential``).
        overrides, results, workspace, inline, address, progress, trust: as of ``sweep``.
        max_hours, max_core_hours, max_gpu_hours, max_trials: of this run, in place of those that the study has under
            ``decide``; at a limit what is finished is kept and returned, with a warning.

    Returns:
        The results of the whole study; ``.decisions`` says how each question stands, and what it has cost.

    Raises:
        ConfigError: the study searches settings; others as of ``sweep``.
    """
    where = Location.at(default_results() if results is None else results)
    discover(workspace)
    if module := module_of(study, kernel):
        loaded, command = of_module(module, kernel, words_of(overrides), Path(workspace), where)
    else:
        loaded, command = _load(study, overrides, workspace, trust), ""
    limits = limits_of_study(Limits(max_hours, max_trials, None, max_core_hours, max_gpu_hours), loaded)
    source = module or ("" if isinstance(study, Mapping) else str(study))
    request, questions = deciding(loaded, None, where, Trust(trust), source, limits)
    found = _run(
        replace(request, command=command),
        place_of(where, workspace, Launch(inline, address), limits, results),
        progress,
    )
    # a run that ended without an error is at its end, or at a limit
    return Decided(find_study(loaded.name, where).location, found.contents, questions.decisions(at_limit=True))


@verb
def retry(
    study: str | Path,
    *,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    inline: bool | None = None,
    address: str | None = None,
    force: bool = False,
    progress: bool = True,
    trust: bool = False,
) -> Results:
    """Run the trials of a study that failed, and no others, as ``memsweep retry`` does.

    Args:
        study: its name, or the folder or ``s3://`` address of its results.
        force: also those that failed in the same way too often.
        results, workspace, inline, address, progress: as of ``sweep``.
        trust: what the stored plan names may be called, though another user planned it.

    Returns:
        The results of the whole study.

    Raises:
        MemsweepError: there are no results, or the installed code would compute others; others as of ``sweep``.
    """
    discover(workspace)
    store = find_study(str(study), Location.at(default_results() if results is None else results))
    request = retried(store, Trust(trust), force=force)
    named = (results or "", Path(study).parent)
    return _run(
        request, place_of(store.location.parent, workspace, Launch(inline, address), Limits(), *named), progress
    )


def status(study: str | Path, *, results: str | Path | None = None) -> Status:
    """Say the state of every trial of a study, and which process runs it; nothing is run or written.

    Args:
        study, results: as of ``results``.

    Raises:
        MemsweepError: there are no results.
        StoreError: the plan is damaged, or the storage cannot be read.
    """
    return Status(read_status(find_study(str(study), Location.at(default_results() if results is None else results))))


def describe(name: str, *, workspace: str | Path = ".") -> Description:
    """Say what a name means, with its fields, their types, defaults and limits, as ``memsweep describe`` does.

    Args:
        name: of a task, model, parameterization, unit, rule, study, or section of a study file.
        workspace: folder that holds tasks/ and search_spaces/.

    Raises:
        ConfigError: nothing has this name; the message lists what can be described.
    """
    discover(workspace)
    return Description(str(name), described(str(name), Path(workspace)))


@overload
def measure(
    subject: str | Path,
    *overrides: Overrides,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    inline: bool | None = None,
    address: str | None = None,
    progress: bool = True,
    trust: bool = False,
) -> Results: ...


@overload
def measure(
    subject: nn.Module,
    *overrides: Overrides,
    reference: str | None = None,
    sequences: Any,
    workspace: str | Path = ".",
) -> Measurement: ...


@overload
def measure(
    subject: nn.Module | Callable[..., nn.Module],
    task: str | Mapping[str, Any],
    /,
    *overrides: Overrides,
    reference: str | None = None,
    workspace: str | Path = ".",
) -> Measurement: ...


@verb
def measure(
    subject: str | Path | nn.Module | Callable[..., nn.Module],
    *overrides: Overrides,
    reference: str | None = None,
    sequences: Any = None,
    results: str | Path | None = None,
    workspace: str | Path = ".",
    inline: bool | None = None,
    address: str | None = None,
    progress: bool = True,
    trust: bool = False,
) -> Results:
    """Measure trained weights, and train nothing: those of a stored study, or of a model in memory.

    ``measure("small", {"perturbation.norm": "entrywise"})`` measures the stored weights of a study by other settings.
    ``measure(module, "linear_functional", {"task.horizon": 50})`` measures a module with the weights that it has:
    nothing of it is stored, and nothing is changed. ``measure(module, sequences=x)`` needs no task: it measures by how
    far the outputs on these sequences move from the model's own.

    Args:
        subject: the name of a study, the folder or ``s3://`` address of its results; or an ``nn.Module``, or a class or
            function that makes one, whose initial weights are measured (``model.width`` and others are then settings).
        overrides: of a study, ``perturbation.*`` and ``name``. Of a module, first the task (its name, or a dict with
            ``name`` and its fields), then any of ``task.*``, ``perturbation.*``, ``training.dtype`` and
            ``training.first_seed``; of a user's module also ``model.tokens``, ``model.roles.*`` and ``model.causal``.
            Others as of ``sweep``.
        reference: what changes are held against, ``perturbation.reference``: ``target``, ``metric`` or ``self``, which
            asks nothing of the module but outputs (None: as the study, or target; of sequences ``self``).
        sequences: in place of a task: numbers ``[S, T, I]`` or ids ``[S, T]`` (an array, a tensor, an iterable of
            sequences, or the path of a npy, safetensors or parquet file).
        results, inline, address, progress: as of ``sweep``; for a study alone.
        workspace: as of ``sweep``.
        trust: what the stored plan names may be called, though another user planned it.

    Returns:
        The results of a study of its own, beside the other; or those of one trial for each combination of the axes.

    Raises:
        ConfigError: an override is no setting of a measurement, or wrong.
        MemsweepError: there are no results, or none has stored weights that fit; others as of ``sweep``.
        ModuleError: the module cannot be run or measured.
    """
    if reference is not None:
        overrides = (*overrides, {"perturbation.reference": reference})
    discover(workspace)
    if not isinstance(subject, str | Path):
        return measured_in_memory(subject, overrides, workspace, sequences)
    if sequences is not None:
        raise ConfigError(["sequences are measured of a module: give an nn.Module, not a study's name"], "measure")
    store = find_study(str(subject), Location.at(default_results() if results is None else results))
    request, left_out = measurement(store, words_of(overrides), Path(workspace), Trust(trust))
    if left_out:
        warn(left_out)
    named = (results or "", Path(subject).parent)
    return _run(
        request, place_of(store.location.parent, workspace, Launch(inline, address), Limits(), *named), progress
    )


@verb
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
    if wrong := [each for each in studies if not isinstance(each, Results | str | Path)]:
        rule = "a study is a name, a folder or Results, each an argument of its own: compare('one', 'two')"
        raise ConfigError([f"{rule}; got {wrong[0]!r}"], "compare")
    found = [each if isinstance(each, Results) else _read(each, results) for each in studies]
    return Comparison(compared([(Location.at(each.location), each.contents) for each in found]))


def _read(study: str | Path, results: str | Path | None) -> Results:
    registry.discover_when_asked("memsweep.models.parameterizations")
    store = find_study(str(study), Location.at(default_results() if results is None else results))
    return Results(store.location, analyse(read_study(store.location)))


def _load(study: Any, overrides: tuple[Overrides, ...], workspace: str | Path, trust: bool) -> SweepConfig:
    if callable(study):
        raise ConfigError([f"a study is a name, a file or a dict, got {study!r}. {IN_A_DICT}"], "the study")
    discover(workspace)
    words = words_of(overrides)
    if not isinstance(study, Mapping):
        return load_study(str(study), words, Path(workspace), trust=Trust(trust))
    if "name" not in study and not any(word.startswith("name=") for word in words):
        raise ConfigError(["name: is missing. Its results go to a folder of that name: {'name': 'mine', ...}."], _DICT)
    return study_of(plain(study), words, Path(workspace), "", _DICT)


def _run(request: Request, place: Place, progress: bool, kind: type[Run] = Run) -> Results:
    """Runs a study; what the command prints of a run that did not end well is raised, or given as a warning."""
    run = kind(request, place, None if progress else io.StringIO())
    with warnings.catch_warnings():
        # in a notebook a library of a library looks for widgets that nothing here needs
        warnings.filterwarnings("ignore", message="IProgress not found")
        ending = run.execute()
    why = stopped(ending)
    if ending.code == Exit.INTERRUPTED:
        raise KeyboardInterrupt(why)
    if (ending.report is None and kind is Run) or ending.summary.lost or ending.summary.outage:
        raise BlockedError(why)
    location = store_of(place.results, ending.study).location
    # of a shared study another driver may have written the report
    contents = ending.report.contents if ending.report is not None else analyse(read_study(location))
    found = Results(location, contents)
    lines = failure_lines(contents.study.failures)
    failed = [f"{ending.study}: {len(found.missing)} trials without a result: results.missing", *lines]
    for text in (why, "\n".join(failed) if ending.summary.failed else "", ending.complaint):
        if text:
            warn(text)
    return found
