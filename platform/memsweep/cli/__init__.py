"""The command line: parses the words and calls the command, whose module is imported then, so that help is quick."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from memsweep.cli.arguments import STUDY_VERBS, WrongCommandLine, parse
from memsweep.cli.usage import PLUS, STUDY_SCHEMA
from memsweep.documents import Answer, error_document, to_json
from memsweep.errors import MemsweepError, filled, listed, printable
from memsweep.gate import each_text, let_through, streams
from memsweep.redaction import without_secrets

INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell reports for a program that SIGINT or SIGPIPE ended
_MOST_NAMED = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. With ``--json`` standard output gets one document alone; everything else goes to stderr.

    Args:
        argv: the words after the program's name (None: the process's own).

    Returns:
        The exit code: 0 done, 1 some trials failed, 2 a configuration or command line that cannot run, 3 stopped at
        a limit, 130 stopped.
    """
    with streams():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = parse(
            argv,
            {"list": _list, "describe": _describe, "schema": _schema, "init": _init, "data": _data, "audit": _command}
            | dict.fromkeys(STUDY_VERBS, _command),
        )
    except WrongCommandLine as error:
        if "--json" in (sys.argv[1:] if argv is None else argv):
            _print_document(error.command, 2, error_document(error.told))
        raise
    json = getattr(args, "json", False)
    try:
        answer = _answer(args, json)
        if json:
            _print_document(args.command, answer.code, answer.document)
        elif answer.text:
            sys.stdout.write(f"{answer.text}\n")
        sys.stdout.flush()
        return answer.code
    except BrokenPipeError:
        # The reader has left (memsweep list tasks | head -1); without this Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _answer(args: argparse.Namespace, json: bool) -> Answer:
    """Run a command; an error that is meant for the person becomes its answer."""
    try:
        with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
            answer: Answer = args.run(args)
            return answer
    except MemsweepError as error:
        told = traceback.format_exc().rstrip("\n") if args.verbose else str(error)
        sys.stderr.write(f"{printable(told) if args.verbose else filled(told, sys.stderr)}\n")
        return Answer(error_document(error), error.exit_code)
    except KeyboardInterrupt as error:
        return Answer(error_document(error), INTERRUPTED)


def _print_document(verb: str, code: int, document: Mapping[str, Any]) -> None:
    text = f"{to_json(verb, code, each_text(document, without_secrets))}\n"
    let_through(sys.stdout, text)
    sys.stdout.flush()


def _command(args: argparse.Namespace) -> Answer:
    from memsweep.commands import command

    args.discover = partial(_discover, args)
    if any(word.startswith("+") for word in getattr(args, "overrides", ())):
        sys.stderr.write(filled(f"note: {PLUS}.\n", sys.stderr))
    answer: Answer = command(args.command)(args)
    return answer


def _list(args: argparse.Namespace) -> Answer:
    from memsweep.config.describe import LISTED, listing, listing_text

    if args.what != "studies":
        _discover(args, args.workspace)
    else:
        _say_replaced(args)
    items = listing(LISTED[args.what], args.workspace)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None  # a pipe gets one line for each
    return Answer({"what": args.what, "items": items}, text=listing_text(items, columns))


def _describe(args: argparse.Namespace) -> Answer:
    from memsweep.config.describe import describe, description_text

    _discover(args, args.workspace)
    if ":" in args.name:
        from memsweep.commands.module import describe_module

        return describe_module(args)
    described = describe(args.name, args.workspace)
    return Answer({"name": args.name, "described": described}, text=description_text(args.name, described))


def _schema(args: argparse.Namespace) -> Answer:
    import json

    if args.what == STUDY_SCHEMA:
        from memsweep.config.study_schema import study_schema

        _discover(args, args.workspace)
        return Answer({}, text=json.dumps(study_schema(), indent=1))

    from memsweep.documents.schema import document_schema

    return Answer({}, text=json.dumps(document_schema(args.what), indent=1))


def _init(args: argparse.Namespace) -> Answer:
    from memsweep.project.init import init

    return init(args)


def _data(args: argparse.Namespace) -> Answer:
    from memsweep.project.data import data

    return data(args)


def _discover(args: argparse.Namespace, workspace: Path) -> None:
    """Register every task, model and parameterization; say what cannot be imported, and what is no longer built in."""
    from memsweep import registry

    for sentence in registry.discover(workspace):
        sys.stderr.write(filled(f"warning: {sentence}\n", sys.stderr))
    _say_replaced(args)


def _say_replaced(args: argparse.Namespace) -> None:
    from memsweep import registry
    from memsweep.config.load import study_files

    words = vars(args)
    asked = {words.get("study"), words.get("name")}
    parts = [("task", name, file) for name, file in registry.replaced_tasks().items()]
    parts += [
        ("study", name, file)
        for name, file in study_files.replaced(args.workspace).items()
        if name in asked or words.get("what") == "studies"
    ]
    if parts:
        told = listed([f"{kind} {name!r} ({file.name})" for kind, name, file in parts], _MOST_NAMED)
        sys.stderr.write(filled(f"note: of this workspace, in the place of the built-in: {told}\n", sys.stderr))
