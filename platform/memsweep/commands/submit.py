"""The ``submit`` command: checks a study, uploads it to a Ray cluster as a job and follows the job's log."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import builtin
from memsweep.commands import console
from memsweep.documents import Answer
from memsweep.errors import Exit, MemsweepError, TrustError, listed
from memsweep.extras import need
from memsweep.redaction import redacted
from memsweep.studies.locations import not_in_a_bucket
from memsweep.sweep.driver.launch import LIMITS, Limits
from memsweep.sweep.estimate.nodes import offered
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import VARIABLE
from memsweep.sweep.submit.client import JobServer, server_address
from memsweep.sweep.submit.job import Job, SubmissionError, runtime_env
from memsweep.sweep.submit.selection import INCLUDE, Selection, engine_files
from memsweep.sweep.submit.upload import Upload
from memsweep.trust.gate import known

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.submit.client import JobDetails

_FLAGS = {"no_reuse": ("sweep",), "share": ("sweep", "resume"), "force": ("retry",)}
"""Flags that only some commands have."""
_WITHOUT_PACKS = ("sync", "report")
"""Commands that run nothing: they take no nodes and no limits."""
_AS_STORED = ("resume", "retry", "sync")
"""Commands that take a stored plan as it is: nothing but the study stands behind them."""
_WITH_STUDY_FILE = ("sweep", "extend", "decide")
"""Commands that read a study file; the others read the stored plan."""
_MOST_NAMED = 5


def submit(args: argparse.Namespace) -> Answer:
    """Runs a command as a job of a Ray cluster; the exit code is the job's, unless the job goes on alone."""
    need("ray", "memsweep submit")
    address = server_address(args.address)
    job, upload = checked_job(args)
    server = JobServer(address)
    console.say(", ".join(f"{key}: {value}" for key, value in job.metadata.items() if key != console.CARRIED))
    if name := server.running(job):
        console.say(f"this command runs already, as the job {name}: nothing is uploaded")
    else:
        name = job.name
        console.say("\n".join([*upload.lines(), f"job: {name}"]))
        if note := _results_note(args, job):
            console.say_sentence(note)
        sys.stdout.flush()
        server.submit(job, upload)
    about = {"job": name, "address": address, "upload": upload.item(), "metadata": dict(job.metadata)}
    if args.detach:
        text = _next_commands(server, name)
        return Answer({**about, "status": "SUBMITTED", "message": None}, text=text)
    code, state = _follow(server, name, quiet=args.wait)
    status, message = ("SUBMITTED", None) if state is None else (str(state.status.value), state.message)
    return Answer({**about, "status": status, "message": message}, code)


def _results_note(args: argparse.Namespace, job: Job) -> str:
    """A sentence where nothing here says where the job's results go: the job refuses its own folder, which goes."""
    stored = args.do not in _WITH_STUDY_FILE and "/" in args.study
    if args.results or stored or VARIABLE in (job.runtime_env.get("env_vars") or {}):
        return ""
    own = f" (that of this shell, {redacted(os.environ[VARIABLE])}, is not sent)" if os.environ.get(VARIABLE) else ""
    return (
        f"note: results go where {VARIABLE} of the cluster's nodes says{own}. Where they have none, the job ends with "
        "exit code 2 before it starts anything: give --results then."
    )


def checked_job(args: argparse.Namespace) -> tuple[Job, Upload]:
    """The job of a command line and its files, after the checks that need no server.

    Raises:
        ConfigError: the study is wrong.
        SubmissionError: the job would fail on the cluster, or it holds a secret.
    """
    from memsweep import __version__
    from memsweep.sweep.worker.provenance import code_revision

    workspace, words = Path(args.workspace).resolve(), _words(args)
    given = _read_runtime_env(args.runtime_env) if args.runtime_env else {}
    env = runtime_env(workspace, given)
    Job("", shlex.join([args.study, *words]), env)  # refuses secrets before the study's problems can quote them
    metadata = {"study": args.study, "verb": args.do, "memsweep": __version__, "revision": code_revision(workspace)}
    selection, study = Selection(workspace), args.study
    if args.do in _WITH_STUDY_FILE:
        study = _select_study(args, selection, words, metadata)
    else:
        if args.do == "measure":
            from memsweep.studies.measurement import settings

            settings(args.overrides, workspace)
        _select(selection, _stored_trials(args, workspace, selection), words)
    selection.add_installation(given)
    if trusted := known(metadata["study"]):
        metadata[console.CARRIED] = " ".join(sorted(trusted))
    plain = re.sub(r"[^A-Za-z0-9]+", "-", metadata["study"]).strip("-")[:40] or "study"  # for a URL and a shell
    name = f"memsweep-{plain}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"
    job = Job(name, shlex.join(["python", "-m", "memsweep", args.do, study, *words]), env, metadata)
    return job, Upload(workspace, selection.files, engine_files(), tuple(selection.notes))


def _words(args: argparse.Namespace) -> list[str]:
    """The words of the job's command behind its study."""
    problems = [
        f"has no --{flag.replace('_', '-')}: that is for {' and '.join(commands)}. Leave one of the two out"
        for flag, commands in _FLAGS.items()
        if getattr(args, flag) and args.do not in commands
    ]
    asked = [
        name for name in ("trust", "nodes", "max_nodes", *(f"max_{limit}" for limit in LIMITS)) if getattr(args, name)
    ]
    if args.do in _WITHOUT_PACKS and asked:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        problems.append(f"runs no packs, and has no {flags}. Leave one of the two out")
    if args.do in _AS_STORED and args.overrides:
        problems.append(
            f"goes on with the stored plan as it is, and takes no word behind the study, got "
            f"{listed(list(map(repr, args.overrides)), _MOST_NAMED)}. Leave them out, or change the study with "
            f"--do {', '.join(_WITH_STUDY_FILE[:-1])} or {_WITH_STUDY_FILE[-1]}, which take them"
        )
    if problems:
        raise SubmissionError(" ".join(f"--do {args.do} {problem}." for problem in problems))
    if args.share and args.results and (place := Location.at(args.results)).local is None:
        raise SubmissionError(not_in_a_bucket(place))
    if args.results and "://" not in args.results and not Path(args.results).is_absolute():
        raise SubmissionError(
            f"--results {args.results} would lie in the job's own folder, which goes with the job. Give s3://bucket/x, "
            "or the whole path of a folder that all nodes share."
        )
    words = [*args.overrides, *(["--results", args.results] if args.results else [])]
    words += [f"--{flag.replace('_', '-')}" for flag in (*_FLAGS, "trust") if getattr(args, flag)]
    if args.nodes is not None:
        node = offered(args.node)
        words += ["--nodes", str(args.nodes), *(["--node", str(node)] if node else [])]
    limits = {name: getattr(args, f"max_{name}") for name in ("nodes", *LIMITS)}
    # as hours: the price of a node may not be known there
    limits["node_hours"], limits["cost"] = (
        Limits(node_hours=args.max_node_hours, cost=args.max_cost).paid_hours[0],
        None,
    )
    for name, limit in limits.items():
        if limit is not None:
            words += [f"--max-{name.replace('_', '-')}", str(limit)]
    return words


def _select_study(
    args: argparse.Namespace, selection: Selection, words: Sequence[str], metadata: dict[str, str]
) -> str:
    """Checks a study and selects its files; the study as the job's command names it.

    Args:
        args, words: of the command line.
        selection: gets the files.
        metadata: gets the study's name and the number of its trials.
    """
    from memsweep.config.load import study_files
    from memsweep.config.load.study import load_study
    from memsweep.studies.locations import remember_plan

    loaded = load_study(args.study, args.overrides, selection.root, args.discover, console.trust_of(args))
    remember_plan(loaded.name, loaded.rows, loaded.search)
    metadata |= {"study": loaded.name, "trials": str(len(loaded.rows))}
    file, study = study_files.find(args.study, selection.root), str(args.study)
    if file.is_relative_to(builtin.folder(builtin.STUDIES)):  # goes along with the engine
        study = file.stem
    else:
        selection.add_study(file)
        study = file.relative_to(selection.root).as_posix() if study.endswith((".yaml", ".yml")) else study
    _select(selection, loaded.rows, [file.read_text("utf-8"), *words])
    return study


def _select(selection: Selection, trials: Sequence[TrialConfig], words: Sequence[str]) -> None:
    selection.add_code(trials)
    selection.add_data(trials, words)
    selection.add_included()


def _stored_trials(args: argparse.Namespace, workspace: Path, selection: Selection) -> Sequence[TrialConfig]:
    """The trials of a stored plan, where it can be read from here; else those of the workspace's study of that name.

    Raises:
        TrustError: the plan, or the study, names code that this user has neither planned nor trusted.
    """
    from memsweep.config.load.study import load_study
    from memsweep.studies.locations import find_study, plan_to_run
    from memsweep.sweep.store.filesystem import Location

    trust = console.trust_of(args)
    try:
        if args.results:
            args.discover(workspace)
            return plan_to_run(find_study(args.study, Location.at(args.results)), trust).sweep().rows
    except TrustError:
        raise
    except MemsweepError:
        pass
    try:
        return load_study(args.study, (), workspace, args.discover, trust).rows
    except TrustError:
        raise
    except MemsweepError:
        selection.notes.append(
            f"the stored plan of {args.study} cannot be read from here: modules and data files that it names are "
            f"uploaded where {INCLUDE} names them"
        )
        return ()


def _read_runtime_env(file: str) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    from memsweep.config.load.bounded import StudyFileError, read_yaml

    try:
        with Path(file).open(encoding="utf-8") as stream:
            return dict(read_yaml(stream))
    except (OSError, ValueError, TypeError, yaml.YAMLError, StudyFileError) as error:
        raise SubmissionError(
            f"the runtime environment {file} cannot be read: {' '.join(str(error).split())}. A YAML mapping of Ray's "
            "fields (pip, env_vars) is expected."
        ) from error


def _follow(server: JobServer, name: str, *, quiet: bool) -> tuple[int, JobDetails | None]:
    """Follows a job to its end: the exit code, and how the job ended. Ctrl-C stops only the following."""
    try:
        state = server.follow(name, lambda text: None if quiet else print(text, end="", flush=True))
    except KeyboardInterrupt:
        print(f"\ndetached: the job goes on.\n{_next_commands(server, name)}")
        return Exit.INTERRUPTED, None
    return report_end(state, name, quiet=quiet), state


def report_end(state: JobDetails, name: str, *, quiet: bool) -> int:
    """Prints how a job ended; returns its exit code."""
    status, code = str(state.status.value), state.driver_exit_code
    if status == "STOPPED" or code == Exit.LIMIT:
        stopped = "stopped at a limit" if code == Exit.LIMIT else "stopped"
        print(f"{name}: {stopped}; finished results are kept. Submit the same command again to go on.")
        return code if code == Exit.LIMIT else Exit.INTERRUPTED
    if status == "SUCCEEDED":
        print(f"{name}: done")
        return 0
    if code is None or quiet:  # the command never ran, or its log was not shown
        print(state.message, file=sys.stderr)
    print(f"{name}: failed" + (f" with exit code {code}" if code is not None else ""), file=sys.stderr)
    return code or 1


def _next_commands(server: JobServer, name: str) -> str:
    return (
        f"  follow: ray job logs -f {name} --address {server.address}\n"
        f"  look:   {server.address}/#/jobs/{name}, or memsweep status with the study's --results\n"
        f"  stop:   ray job stop {name} --address {server.address} (finished results are kept)"
    )
