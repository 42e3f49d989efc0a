"""The arguments of each command. Imports nothing heavy, so that help is quick."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from memsweep import __version__
from memsweep.cli import usage
from memsweep.cli.options import EXCLUSIVE, OPTIONS, Option
from memsweep.documents import Answer
from memsweep.documents.keys import DOCUMENTS
from memsweep.errors import ConfigError, did_you_mean, filled

STUDY_VERBS = (
    *("plan", "sweep", "decide", "resume", "extend", "retry", "status", "report", "sync", "submit", "weights"),
    *("measure", "upgrade", "atlas"),
)

Command = Callable[[argparse.Namespace], Answer]


class WrongCommandLine(SystemExit):
    """A word of the command line is wrong; usage and reason have been printed.

    Attributes:
        command: that was given; empty where none was.
        told: the reason.
    """

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(2)
        self.command, self.told = command, ConfigError([reason], "the command line")


class _Form(argparse.RawDescriptionHelpFormatter):
    """Fills paragraphs to the terminal's width; lines that are indented, such as examples, stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._paragraph(part, width) for part in text.strip("\n").split("\n\n"))

    def _paragraph(self, text: str, width: int) -> str:
        lines = text.splitlines()
        if not any(line.startswith(" ") for line in lines):
            return textwrap.fill(" ".join(lines), width, break_on_hyphens=False)
        return "\n".join(_filled(line, width) for line in lines)


def _filled(line: str, width: int) -> str:
    """A line at most so wide; what goes on stands below its explanation, where it has one; commands can be copied."""
    if line.lstrip().startswith("memsweep ") and len(line) > width and "  " not in line.strip():
        return textwrap.fill(line, width - 2, subsequent_indent=" " * 6, break_on_hyphens=False).replace("\n", " \\\n")
    columns = re.fullmatch(r"( +\S.*?  +)\S.*", line)
    hanging = len(columns[1]) if columns else 6
    return textwrap.fill(line, width, subsequent_indent=" " * hanging, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if wrong := re.fullmatch(r".*invalid choice: '(.*?)' \(choose from (.*)\)", message):
            choices = wrong[2].replace("'", "").split(", ")
            message += f".{did_you_mean(wrong[1], choices)}".rstrip(".")
        if "arguments are required" in message:
            message += f" (see: {self.prog} --help)"
        self.refuse(message, self.prog.partition(" ")[2])

    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]

    def refuse(self, message: str, command: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self._print_message(filled(f"{self.prog}: error: {message}\n", sys.stderr), sys.stderr)
        raise WrongCommandLine(command, message)


def parse(argv: Sequence[str] | None, handlers: Mapping[str, Command]) -> argparse.Namespace:
    """Parses the command line; ``run`` of the namespace is the command's handler.

    Words of which there may be several may stand before, between and after flags, which argparse alone does not allow.

    Args:
        argv: the words after the program's name (None: the process's own).
        handlers: command -> the function that runs it.

    Raises:
        SystemExit: help was asked for (0), or a word is wrong (2).
    """
    parser, commands = _parser(handlers)
    args, rest = parser.parse_known_args(argv)
    flags = [word for word in rest if word.startswith("-")]
    several = next((name for name in ("overrides", "words", "names", "others") if hasattr(args, name)), "")
    if flags or (rest and not several):
        known = [*parser.flags(), *commands[args.command].flags()]
        parser.refuse(_unrecognized(args.command, flags, rest, known), args.command)
    if rest:
        setattr(args, several, [*getattr(args, several), *rest])
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        logging.getLogger("memsweep").setLevel(logging.DEBUG)
    return args


def _unrecognized(command: str, flags: Sequence[str], rest: Sequence[str], known: Sequence[str]) -> str:
    """The answer to flags that a command does not know, or else to words: near flags, and Hydra's by our names."""
    near = dict.fromkeys(did_you_mean(_name(flag), known) for flag in flags)
    unknown = f"unrecognized arguments: {' '.join(flags or rest)} (see: memsweep {command} --help)"
    unknown = ".".join([unknown, *filter(None, near)])
    fields = [flag.lstrip("-") for flag in flags if re.match(r"--?[a-z_]+\.\w", flag)]
    if fields:
        told = [field if "=" in field else f"{field}=VALUE" for field in fields]
        unknown += f". Settings of the study have no dashes: write {' '.join(told)}"
    hydra = dict.fromkeys(name for flag in flags if (name := _name(flag)) in usage.HYDRA)
    return ". ".join([unknown, *(f"{name} of Hydra: {usage.HYDRA[name]}" for name in hydra)])


def _name(flag: str) -> str:
    """``--config-name`` of ``--config-name=quickstart``."""
    return flag.partition("=")[0]


def _parser(handlers: Mapping[str, Command]) -> tuple[_Parser, Mapping[str, _Parser]]:
    form = _Form
    parser = _Parser(
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
        _add_options(command, OPTIONS[name])
        command.set_defaults(run=handlers[name])
        if name in DOCUMENTS:
            command.add_argument("--json", action="store_true", help="print one JSON document (docs/json.md)")
        # May stand on either side of the command's name; here it must not reset the value from before it.
        command.add_argument(
            "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="as before COMMAND"
        )
    return parser, commands.choices


def _add_options(command: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    groups: dict[str, Any] = {}
    for flags in EXCLUSIVE:
        if flags <= {flag for flag, _ in options}:
            groups |= dict.fromkeys(flags, command.add_mutually_exclusive_group())
    for flag, settings in options:
        default = settings.get("default")
        now = {"default": default()} if callable(default) else {}  # the environment as it is when words are parsed
        groups.get(flag, command).add_argument(flag, **settings | now)
