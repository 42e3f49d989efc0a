"""The ``submit`` command: checks a study, uploads it to a Ray cluster as a job and follows the job's log."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import builtin
from memsweep.documents import Answer
from memsweep.errors import Exit
from memsweep.sweep.submit.client import JobServer, server_address
from memsweep.sweep.submit.job import Job, SubmissionError, runtime_env

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.submit.client import JobDetails

_WITH_STUDY_FILE = ("sweep", "extend")
"""Commands that read a study file; the others read the stored plan."""


def submit(args: argparse.Namespace) -> Answer:
    """Runs a command as a job of a Ray cluster; the exit code is the job's, unless the job goes on alone."""
    address = server_address(args.address)
    job = checked_job(args)
    server = JobServer(address)
    print(", ".join(f"{key}: {value}" for key, value in job.metadata.items()))
    if name := server.running(job):
        print(f"this command runs already, as the job {name}: nothing is uploaded", flush=True)
    else:
        name = job.name
        print(f"upload: {job.runtime_env['working_dir']} and the engine, for the job {name}", flush=True)
        server.submit(job)
    about = {"job": name, "address": address, "metadata": dict(job.metadata)}
    if args.detach:
        text = _next_commands(server, name)
        return Answer({**about, "status": "SUBMITTED", "message": None}, text=text)
    code, state = _follow(server, name, quiet=args.wait)
    status, message = ("SUBMITTED", None) if state is None else (str(state.status.value), state.message)
    return Answer({**about, "status": status, "message": message}, code)


def checked_job(args: argparse.Namespace) -> Job:
    """The job of a command line, after the checks that need no server.

    Raises:
        ConfigError: the study is wrong.
        SubmissionError: the job would fail on the cluster, or it holds a secret.
    """
    from memsweep import __version__
    from memsweep.sweep.worker.provenance import code_revision

    workspace, study = Path(args.workspace).resolve(), args.study
    words = [*args.overrides, *(["--results", args.results] if args.results else [])]
    words += [flag for flag, on in (("--no-reuse", args.no_reuse), ("--force", args.force)) if on]
    for name in ("hours", "trials", "failures"):
        if (limit := getattr(args, f"max_{name}")) is not None:
            words += [f"--max-{name}", str(limit)]
    env = runtime_env(workspace, _read_runtime_env(args.runtime_env) if args.runtime_env else {})
    Job("", shlex.join([study, *words]), env)  # refuses secrets before the study's problems can quote them
    metadata = {"study": study, "verb": args.do, "memsweep": __version__, "revision": code_revision(workspace)}
    if args.do in _WITH_STUDY_FILE:
        from memsweep.config.load import study_files
        from memsweep.config.load.study import load_study

        loaded = load_study(study, args.overrides, workspace, args.discover)
        metadata |= {"study": loaded.name, "trials": str(len(loaded.rows))}
        file = study_files.find(study, workspace).resolve()
        if file.parent == builtin.folder(builtin.STUDIES):  # goes along with the engine
            study = file.stem
        else:
            _check_uploaded(file, workspace, "search_spaces/ there")
            study = file.relative_to(workspace).as_posix() if study.endswith((".yaml", ".yml")) else study
        _check_files(loaded.rows, workspace)
    elif args.do == "measure":
        from memsweep.studies.measurement import settings

        settings(args.overrides, workspace)
    plain = re.sub(r"[^A-Za-z0-9]+", "-", metadata["study"]).strip("-")[:40] or "study"  # for a URL and a shell
    name = f"memsweep-{plain}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"
    return Job(name, shlex.join(["python", "-m", "memsweep", args.do, study, *words]), env, metadata)


def _check_uploaded(file: Path, workspace: Path, place: str) -> None:
    if not file.is_relative_to(workspace):
        raise SubmissionError(
            f"{file} lies outside of the workspace {workspace}, which is the folder that is uploaded. Copy it into "
            f"{place}, or give another folder with --workspace."
        )


def _check_files(trials: Sequence[TrialConfig], workspace: Path) -> None:
    """The users' files that these trials read, modules and weights, must be found in the uploaded folder."""
    from memsweep.models.module.config import ModuleConfig
    from memsweep.models.module.factory import resolve

    for target in dict.fromkeys(trial.model.factory for trial in trials if isinstance(trial.model, ModuleConfig)):
        factory = resolve(target)
        if factory.own and factory.file is not None:
            _check_uploaded(factory.file, workspace, "that folder")
        if Path(target.partition(":")[0]).is_absolute():
            raise _elsewhere("model.factory", target)
    for training in dict.fromkeys(trial.training for trial in trials):
        if (file := training.weights_file) is None:
            continue
        if not Path(training.weights).is_absolute():  # an absolute path may lie where all nodes see it
            _check_uploaded(file.resolve(), workspace, "that folder")
        elif file.resolve().is_relative_to(workspace):
            raise _elsewhere("training.weights", training.weights)


def _elsewhere(field: str, path: str) -> SubmissionError:
    return SubmissionError(
        f"{field} is {path!r}: the cluster has the workspace under another path. Write the file's path relative to the "
        "workspace."
    )


def _read_runtime_env(file: str) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        return dict(yaml.safe_load(Path(file).read_text("utf-8")))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
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
