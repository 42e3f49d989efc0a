"""The words that each command takes. Imports nothing heavy: help has to be quick."""

from __future__ import annotations

import argparse
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memsweep import __version__
from memsweep.cli import usage

STUDY_VERBS = ("plan", "sweep", "resume", "extend", "retry", "status", "report", "sync", "submit")
DISCOVERING = ("plan", "sweep", "resume", "extend", "retry", "submit")
"""Verbs that name tasks and models, so that a file that cannot be imported is worth a warning."""
JOBS = ("sweep", "resume", "extend", "retry", "sync", "report")
"""Verbs that a job may run."""
LISTS = ("tasks", "models", "parameterizations", "units", "rules", "studies")


def parse(argv: Sequence[str] | None, handlers: Mapping[str, Any]) -> argparse.Namespace:
    """The command line as a namespace; ``run`` is the command's handler.

    Overrides may stand before, between and after flags, which argparse alone does not allow.

    Args:
        argv: the words after the program's name (None: the process's own).
        handlers: command -> the function that runs it.

    Raises:
        SystemExit: help was asked for (0), or a word is wrong (2).
    """
    parser = _parser(handlers)
    args, rest = parser.parse_known_args(argv)
    flags = [word for word in rest if word.startswith("-")]
    if flags or (rest and not hasattr(args, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(flags or rest)} (see: memsweep {args.command} --help)")
    if rest:
        args.overrides = [*args.overrides, *rest]
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        logging.getLogger("memsweep").setLevel(logging.DEBUG)
    return args


def _parser(handlers: Mapping[str, Any]) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "memsweep", description=usage.MAIN, epilog=usage.EXAMPLES, formatter_class=form, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"memsweep {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what happens; show tracebacks of errors")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in usage.COMMANDS.items():
        command = commands.add_parser(
            name,
            help=text.short,
            description=text.long,
            epilog=text.examples,
            formatter_class=form,
            allow_abbrev=False,
        )
        _ADD[name](command)
        command.set_defaults(run=handlers[name])
        # May stand on either side of the command's name; here it must not reset what was said before.
        command.add_argument(
            "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="as before COMMAND"
        )
    return parser


def _add_plan(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", metavar="STUDY", help="a name in search_spaces/, or the path of a YAML file")
    command.add_argument("overrides", metavar="OVERRIDE", nargs="*", help="key=value; see below")
    _add_places(command)
    _add_no_reuse(command)
    command.add_argument(
        "--no-probe", action="store_true", help="measure nothing: hours by the cost model, memory and disk unknown"
    )


def _add_sweep(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", metavar="STUDY", help="a name in search_spaces/, or the path of a YAML file")
    command.add_argument("overrides", metavar="OVERRIDE", nargs="*", help="key=value; see below")
    _add_places(command)
    _add_no_reuse(command)
    _add_launch(command)


def _add_no_reuse(command: argparse.ArgumentParser) -> None:
    command.add_argument("--no-reuse", action="store_true", help="compute every row anew, whatever is stored")


def _add_extend(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", metavar="STUDY", help="a name in search_spaces/, or the path of a YAML file")
    command.add_argument("overrides", metavar="OVERRIDE", nargs="*", help="key=value; see below")
    _add_places(command)
    _add_launch(command)


def _add_resume(command: argparse.ArgumentParser) -> None:
    _add_stored(command)
    _add_launch(command)


def _add_retry(command: argparse.ArgumentParser) -> None:
    _add_resume(command)
    command.add_argument("--force", action="store_true", help="also rows that failed three times in the same way")


def _add_launch(command: argparse.ArgumentParser) -> None:
    how = command.add_mutually_exclusive_group()
    how.add_argument("--inline", action="store_true", help="run in this process, without Ray; the same numbers")
    how.add_argument(
        "--address",
        metavar="ADDR",
        help="join a running Ray cluster: auto, or host:port (in a Ray job: the job's cluster, by itself)",
    )
    command.add_argument("--dashboard", action="store_true", help="start Ray's dashboard on 127.0.0.1")
    command.add_argument(
        "--optuna",
        metavar="URL",
        default=os.environ.get("MEMSWEEP_OPTUNA") or None,
        help="show a search in this Optuna storage: sqlite:///search.db, postgresql://... ($MEMSWEEP_OPTUNA)",
    )
    _add_limits(command)


def _add_limits(command: argparse.ArgumentParser) -> None:
    command.add_argument("--max-hours", metavar="H", type=_hours, help="stop after so many hours; exit code 3")
    command.add_argument("--max-trials", metavar="N", type=_count, help="stop after N rows got a result; exit code 3")
    command.add_argument(
        "--max-failures", metavar="N", type=_count, help="stop once N rows have failed for good; exit code 3"
    )


def _hours(word: str) -> float:
    try:
        hours = float(word)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise argparse.ArgumentTypeError(f"hours are a number above 0 (0.5 is half an hour), got {word!r}")
    return hours


def _count(word: str) -> int:
    try:
        count = int(word)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 is expected, got {word!r}")
    return count


def _add_stored(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", metavar="STUDY|FOLDER", help="a study's name, or the folder of its results")
    _add_places(command)


def _add_submit(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", metavar="STUDY", nargs="?", help="as for memsweep sweep; see --do for the others")
    command.add_argument("overrides", metavar="OVERRIDE", nargs="*", help="key=value; see below")
    command.add_argument("--do", metavar="|".join(JOBS), choices=JOBS, default="sweep", help="what to run (sweep)")
    command.add_argument(
        "--address", metavar="URL", help="the cluster's dashboard (RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265)"
    )
    command.add_argument(
        "--results", metavar="DIR", help="s3://bucket/x, or a folder all nodes share (the nodes' MEMSWEEP_RESULTS)"
    )
    command.add_argument("--runtime-env", metavar="FILE", help="Ray's runtime environment (deploy/runtime_env.yaml)")
    command.add_argument("--no-reuse", action="store_true", help="as for sweep")
    command.add_argument("--force", action="store_true", help="as for retry")
    _add_limits(command)
    until = command.add_mutually_exclusive_group()
    until.add_argument("--detach", action="store_true", help="come back once the job is handed in")
    until.add_argument("--wait", action="store_true", help="wait for the end without showing the log")
    command.add_argument("--attach", metavar="ID", help="follow a job that was submitted before")
    _add_workspace(command)


def _add_list(command: argparse.ArgumentParser) -> None:
    command.add_argument("what", metavar="|".join(LISTS), choices=LISTS, help="what to list")
    _add_workspace(command)


def _add_describe(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="a task, model, parameterization, unit, rule, section or study")
    _add_workspace(command)


def _add_places(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--results",
        metavar="DIR",
        default=os.environ.get("MEMSWEEP_RESULTS") or "results",
        help="where results are kept: a folder, s3://bucket/x ($MEMSWEEP_RESULTS, else results); in a Ray job and on "
        "several nodes no relative folder, which each node would have for itself",
    )
    _add_workspace(command)


def _add_workspace(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workspace", metavar="DIR", type=Path, default=Path(), help="folder of tasks/ and search_spaces/ (here)"
    )


_ADD = {
    "plan": _add_plan,
    "sweep": _add_sweep,
    "resume": _add_resume,
    "extend": _add_extend,
    "retry": _add_retry,
    "status": _add_stored,
    "report": _add_stored,
    "sync": _add_stored,
    "submit": _add_submit,
    "list": _add_list,
    "describe": _add_describe,
}
