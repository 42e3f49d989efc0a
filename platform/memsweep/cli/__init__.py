"""The command line: parses the words and calls the command, whose module is imported then, so that help is quick."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from memsweep.cli.arguments import STUDY_VERBS, WrongCommandLine, parse
from memsweep.cli.guard import (
    as_meant,
    check_words,
    guarded_output,
    occupy_standard_streams,
    output_error,
    reader_left,
    traceback_text,
)
from memsweep.cli.usage import PLUS, STUDY_SCHEMA
from memsweep.documents import Answer, error_document, to_json
from memsweep.errors import ConfigError, Exit, MemsweepError, filled, listed, printable
from memsweep.extras import core_told
from memsweep.gate import each_text, let_through, streams
from memsweep.imports import importing
from memsweep.redaction import without_secrets

_MOST_NAMED = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. With ``--json`` standard output gets one document alone; everything else goes to stderr.

    Args:
        argv: the words after the program's name (None: the process's own).

    Returns:
        The exit code, one of ``memsweep.errors.Exit``.

    Raises:
        SystemExit: help was asked for (0), or a word is wrong (2).
    """
    closed = occupy_standard_streams()
    words = [*(sys.argv[1:] if argv is None else argv)]
    with guarded_output() as output, streams():
        try:
            code = _run(words, closed=closed)
            output.flush()
        except BrokenPipeError:
            output.discard()
            return Exit.UNREAD
        except SystemExit:
            output.flush()
            if output.error is None:
                raise
            code = Exit.DONE
        except KeyboardInterrupt:  # while the answer is printed
            code = Exit.INTERRUPTED
        except Exception as error:
            code = _failed(error, verbose="--verbose" in words).code
        if output.error is not None:
            unprinted = output_error(output.error)
            sys.stderr.write(f"{filled(str(unprinted), sys.stderr)}\n")
            code = code or unprinted.exit_code
        return int(code)


def _run(words: list[str], *, closed: bool) -> int:
    """Parses the words, runs the command, and prints its answer."""
    json = "--json" in words
    args = argparse.Namespace(command="", verbose=bool({"-v", "--verbose"} & {*words}))
    try:
        check_words(words, closed=closed)
        args = parse(
            words,
            {"list": _list, "describe": _describe, "schema": _schema, "init": _init, "data": _data, "audit": _command}
            | dict.fromkeys(STUDY_VERBS, _command),
        )
    except WrongCommandLine as error:
        if json:
            _print_document(error.command, Exit.REFUSED, error_document(error.told))
        raise
    except Exception as error:
        answer = _failed(error, verbose=args.verbose)
    else:
        json = getattr(args, "json", False)
        answer = _answer(args, json)
    if json:
        _print_document(args.command, answer.code, answer.document)
    elif answer.text:
        sys.stdout.write(f"{answer.text}\n")
    return answer.code


def _answer(args: argparse.Namespace, json: bool) -> Answer:
    """Run a command; whatever ends it becomes its answer."""
    try:
        with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
            answer: Answer = args.run(args)
            return answer
    except KeyboardInterrupt as error:
        sys.stderr.write(
            filled("interrupted: what is stored stays. Run the same command again to go on.\n", sys.stderr)
        )
        return Answer(error_document(error), Exit.INTERRUPTED)
    except (Exception, SystemExit) as error:
        # rich ends the process by SystemExit where a reader has left
        if isinstance(error, BrokenPipeError | SystemExit) and reader_left():
            raise BrokenPipeError from error
        return _failed(error, verbose=args.verbose)


def _failed(error: BaseException, *, verbose: bool) -> Answer:
    """Says an error on standard error; it is the command's answer."""
    meant = as_meant(error)
    sys.stderr.write(f"{printable(traceback_text(error)) if verbose else filled(str(meant), sys.stderr)}\n")
    return Answer(error_document(meant), meant.exit_code)


def _print_document(verb: str, code: int, document: Mapping[str, Any]) -> None:
    let_through(sys.stdout, f"{to_json(verb, code, each_text(document, without_secrets))}\n")


def _command(args: argparse.Namespace) -> Answer:
    with importing(own_process=True):
        from memsweep.commands import command

        run = command(args.command)
    args.discover = partial(_discover, args)
    from memsweep.config.load.slips import given_twice

    words = getattr(args, "overrides", ())
    for note in [*([PLUS] if any(word.startswith("+") for word in words) else []), *given_twice(words)]:
        sys.stderr.write(filled(f"note: {note}.\n", sys.stderr))
    answer: Answer = run(args)
    return answer


def _list(args: argparse.Namespace) -> Answer:
    from memsweep.reference.describe import LISTED, listing, listing_text

    if args.what != "studies":
        _discover(args, args.workspace)
    else:
        _say_replaced(args)
    items = listing(LISTED[args.what], args.workspace)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None  # a pipe gets one line for each
    return Answer({"what": args.what, "items": items}, text=listing_text(items, columns))


def _describe(args: argparse.Namespace) -> Answer:
    from memsweep.reference.describe import describe, description_text

    _discover(args, args.workspace)
    if ":" in args.name:
        from memsweep.commands.module import describe_module

        return describe_module(args)
    described = describe(args.name, args.workspace)
    if args.overrides:
        rule = f"{args.overrides[0]} changes nothing of {args.name}: a field is set for a module alone (my_nets:MinGRU)"
        raise ConfigError([f"{rule}. Leave it out."], "the command line")
    return Answer({"name": args.name, "described": described}, text=description_text(args.name, described))


def _schema(args: argparse.Namespace) -> Answer:
    import json

    if args.what == STUDY_SCHEMA:
        from memsweep.reference.study_schema import study_schema

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


def _discover(args: argparse.Namespace, workspace: Path) -> list[str]:
    """Finds every task, model and other part; says, and returns, what cannot be imported, and what is replaced."""
    from memsweep import registry

    with importing(own_process=True):
        missing = registry.discover(workspace)
    if missing and (lacking := core_told()):  # without numpy hardly a task is left
        raise MemsweepError(f"this command cannot go on: {lacking}.")
    for sentence in missing:
        sys.stderr.write(filled(f"warning: {sentence}\n", sys.stderr))
    _say_replaced(args)
    return missing


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
