"""The command line: parses the words and calls the command, whose module is imported then, so that help is quick."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from memsweep.cli.arguments import DISCOVERING, STUDY_VERBS, parse
from memsweep.errors import MemsweepError, printable

INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell reports for a program that SIGINT or SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after the program's name (None: the process's own).

    Returns:
        The exit code: 0 done, 1 some trials failed, 2 a configuration or command line that cannot run, 3 stopped at
        a limit, 130 stopped.
    """
    args = parse(argv, {"list": _list, "describe": _describe, "audit": _command} | dict.fromkeys(STUDY_VERBS, _command))
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except MemsweepError as error:
        told = traceback.format_exc().rstrip("\n") if args.verbose else str(error)
        sys.stderr.write(f"{printable(told)}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left (memsweep list tasks | head -1); without this Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _command(args: argparse.Namespace) -> int:
    from memsweep import commands

    if args.command in DISCOVERING:
        _discover(args)
    command: Callable[[argparse.Namespace], int] = getattr(commands, args.command)
    return command(args)


def _list(args: argparse.Namespace) -> int:
    from memsweep.config.describe import LISTED, listing

    _discover(args)
    sys.stdout.write(listing(LISTED[args.what], args.workspace) + "\n")
    return 0


def _describe(args: argparse.Namespace) -> int:
    from memsweep.config.describe import describe

    _discover(args)
    if ":" in args.name:
        from memsweep.commands.module import describe_module

        sys.stdout.write(describe_module(args) + "\n")
        return 0
    sys.stdout.write(describe(args.name, args.workspace) + "\n")
    return 0


def _discover(args: argparse.Namespace) -> None:
    """Register every task, model and parameterization; say which files and plugins cannot be imported."""
    from memsweep import registry

    for sentence in registry.discover(args.workspace):
        sys.stderr.write(f"warning: {sentence}\n")
