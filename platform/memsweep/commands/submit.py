"""The verb that hands a study to a cluster: check, weigh, upload, follow."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.commands.follow import Follower
from memsweep.sweep.driver.limits import LIMIT_REACHED
from memsweep.sweep.submit.client import Job, JobServer, State, SubmissionError, server_address
from memsweep.sweep.submit.secrets import refuse_secrets

if TYPE_CHECKING:
    from memsweep.sweep.submit.package import Parcel

WITH_FILE = ("sweep", "extend")
"""What reads a study file; the others go by the results that are stored."""

INTERRUPTED = 130


def submit(args: argparse.Namespace) -> int:
    """Run a verb as a job of a Ray cluster; its exit code, when it is waited for."""
    address = server_address(args.address)
    if args.attach:
        _refuse_beside_attach(args)
        server = JobServer(address)
        state = server.state(args.attach)
        return _watch(server, args.attach, state.study or args.attach, quiet=args.wait)
    if args.study is None:
        raise SubmissionError("which study? Write memsweep submit STUDY, or --attach ID to return to a job.")
    _refuse_misplaced(args)
    job, parcel, what = _prepared(args)
    server = JobServer(address)
    print(f"study: {what}")
    print(f"upload: {parcel}")
    try:
        server.submit(job)
    except KeyboardInterrupt:
        print(f"\ninterrupted: whether the job was taken, memsweep submit --attach {job.name} tells")
        return INTERRUPTED
    print(f"job: {job.name} at {server.address}", flush=True)
    study = job.metadata["study"]
    if args.detach:
        print(_ways(server, job.name, study))
        return 0
    return _watch(server, job.name, study, quiet=args.wait)


def _prepared(args: argparse.Namespace) -> tuple[Job, Parcel, str]:
    """The job, what it takes along and a line about it; everything that can be wrong here has been looked at."""
    from memsweep import __version__
    from memsweep.sweep.submit.package import Parcel
    from memsweep.sweep.worker.provenance import code_revision

    workspace = Path(args.workspace).resolve()
    told = [word for word in (args.study, *args.overrides, args.results) if word]
    refuse_secrets("the command line", told)
    given = _read_runtime_env(args.runtime_env) if args.runtime_env else None
    refuse_secrets(f"the runtime environment {args.runtime_env}", given)
    metadata = {"study": args.study, "verb": args.do, "memsweep": __version__, "revision": code_revision(workspace)}
    study, what = args.study, f"{args.study}, {args.do} of what is stored"
    if args.do in WITH_FILE:
        from memsweep.config.load import study_files
        from memsweep.config.load.study import load_study

        loaded = load_study(args.study, args.overrides, workspace)
        metadata |= {"study": loaded.name, "rows": str(len(loaded.rows))}
        what = f"{loaded.name}, {len(loaded.rows)} rows"
    parcel = Parcel.of(workspace)
    if args.do in WITH_FILE:
        name = parcel.refuse_without(study_files.find(args.study, workspace))
        study = name if args.study.endswith((".yaml", ".yml")) else args.study
    parcel.refuse_too_large()
    words = ["python", "-m", "memsweep", args.do, study, *args.overrides]
    words += ["--results", args.results] if args.results else []
    words += [flag for flag, on in (("--no-reuse", args.no_reuse), ("--force", args.force)) if on]
    words += [word for flag, limit in _limits(args).items() if limit is not None for word in (flag, str(limit))]
    name = _job_name(metadata["study"])
    return Job(name, shlex.join(words), parcel.runtime_env(given), metadata), parcel, what


def _limits(args: argparse.Namespace) -> dict[str, float | None]:
    return {f"--max-{name}": getattr(args, f"max_{name}") for name in ("hours", "trials", "failures")}


def _job_name(study: str) -> str:
    """Readable, unique, and safe in a URL and a shell."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", study).strip("-")[:40] or "study"
    return f"memsweep-{plain}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"


def _watch(server: JobServer, name: str, study: str, *, quiet: bool) -> int:
    """Follow a job to its end, or until Ctrl-C, which leaves it running."""
    try:
        if quiet:
            state = server.follow(name, lambda text: None)
        else:
            with Follower(study) as follower:
                state = server.follow(name, follower.text)
    except KeyboardInterrupt:
        print(f"\ndetached: the job goes on.\n{_ways(server, name, study)}")
        return INTERRUPTED
    return _ended(state, name, quiet=quiet)


def _ended(state: State, name: str, *, quiet: bool) -> int:
    code = state.exit_code
    go_on = f"what was finished is kept. Go on: memsweep submit {state.study or 'STUDY'} --do resume"
    if state.status == "STOPPED":
        print(f"{name}: stopped; {go_on}")
        return INTERRUPTED
    if code == LIMIT_REACHED:
        print(f"{name}: stopped at a limit; {go_on}")
        return LIMIT_REACHED
    if state.status == "SUCCEEDED":
        print(f"{name}: done")
        return 0
    if code is None or quiet:  # it never ran, or nobody has seen its log
        print(state.message, file=sys.stderr)
    print(f"{name}: failed" + (f" with exit code {code}" if code is not None else ""), file=sys.stderr)
    return code or 1


def _ways(server: JobServer, name: str, study: str) -> str:
    where = f"--address {server.address}"
    return "\n".join(
        [
            f"  follow: memsweep submit --attach {name} {where}",
            f"  look:   {server.address}/#/jobs/{name}, or memsweep status {shlex.quote(study)} with its --results",
            f"  stop:   ray job stop {name} {where} (what is finished is kept)",
        ]
    )


def _read_runtime_env(file: str) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.safe_load(Path(file).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SubmissionError(
            f"the runtime environment {file} cannot be read: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(found, dict):
        raise SubmissionError(
            f"{file} is no runtime environment: a mapping of Ray's fields (pip, env_vars) is expected."
        )
    return found


def _refuse_beside_attach(args: argparse.Namespace) -> None:
    if args.study is not None or args.detach:
        raise SubmissionError("--attach returns to a job that is there: give no STUDY and no --detach beside it.")


def _refuse_misplaced(args: argparse.Namespace) -> None:
    """What the verb on the other side would refuse after the upload."""
    if args.overrides and args.do not in WITH_FILE:
        raise SubmissionError(
            f"--do {args.do} goes by the stored plan and takes no overrides; got {' '.join(args.overrides)}. Overrides "
            "go with --do sweep and --do extend."
        )
    if args.no_reuse and args.do != "sweep":
        raise SubmissionError("--no-reuse goes with --do sweep alone.")
    if args.force and args.do != "retry":
        raise SubmissionError("--force goes with --do retry alone.")
    if args.do in ("sync", "report") and (
        given := [flag for flag, limit in _limits(args).items() if limit is not None]
    ):
        raise SubmissionError(f"{given[0]} limits what is computed, and --do {args.do} computes nothing.")
    if args.results and "://" not in args.results and not os.path.isabs(args.results):
        raise SubmissionError(
            f"results would go to {args.results!r} in the job's own folder, which the cluster deletes. Give a bucket "
            "(--results s3://bucket/prefix) or the absolute path of a folder that all nodes share."
        )
