"""The overrides in the examples of help name fields that exist: they are parsed and loaded, and nothing runs."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsweep import registry
from memsweep.cli import usage
from memsweep.cli.arguments import parse
from memsweep.commands.atlas import atlas_study
from memsweep.commands.module import module_fields
from memsweep.config.load.study import load_study, study_of
from paths import ROOT

STUDY = "quickstart"
"""Loaded in the place of a study that the reader is to make."""


def _examples() -> Iterator[str]:
    """The command lines of all help that set something, each as it is written."""
    texts = [usage.EXAMPLES, *(text.examples for text in usage.COMMANDS.values())]
    for line in (line.strip() for text in texts for line in text.splitlines()):
        command = line.partition("   ")[0]
        if command.startswith("memsweep ") and "=" in command:
            yield command
    for line in usage.OVERRIDES.splitlines()[1:]:
        yield f"memsweep sweep {STUDY} {line.strip().partition('   ')[0]}"


@pytest.mark.parametrize("example", dict.fromkeys(_examples()))
def test_the_overrides_of_an_example_name_fields(example: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/support/nets/min_gru.py", tmp_path / "my_nets.py")
    registry.discover(tmp_path)
    args = parse(shlex.split(example)[1:], dict.fromkeys(usage.COMMANDS, lambda _: pytest.fail("it runs")))
    _load(args, tmp_path)


def _load(args: argparse.Namespace, workspace: Path) -> None:
    """Loads what a command line sets, on the part that it names.

    Raises:
        ConfigError: a word names no field.
    """
    words = [word for word in getattr(args, "overrides", getattr(args, "words", [])) if "=" in word or word[0] == "~"]
    if args.command in ("audit", "describe"):
        module_fields(words, workspace)
    elif args.command == "atlas":
        atlas_study("my_nets:MinGRU", words, workspace)
    elif args.command == "measure" and args.task:
        model = {"name": "module", "factory": args.factory}
        study_of({"name": "checkpoint", "task": {"name": args.task}, "model": model}, words, workspace, "A checkpoint.")
    else:
        load_study(STUDY, words, ROOT)
