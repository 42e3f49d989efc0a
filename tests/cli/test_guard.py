"""Whatever happens in a command becomes a sentence, an exit code and, with --json, a document."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from memsweep.cli import arguments, main
from memsweep.cli.guard import as_meant, guarded_output
from memsweep.cli.usage import COMMANDS
from memsweep.documents import Answer
from memsweep.documents.keys import DOCUMENTS
from memsweep.errors import BlockedError, ConfigError, Exit, MemsweepError, ModuleError, StorageError
from paths import ROOT

WORDS: dict[str, tuple[str, ...]] = {
    "measure": ("s",),
    "init": ("folder",),
    "data": ("list",),
    "list": ("tasks",),
    "schema": (),
    "describe": ("training",),
    "audit": ("lru",),
}
"""The words that a command needs besides its name; the others need a study."""

FULL = OSError(errno.ENOSPC, "No space left on device")
ENDS: list[tuple[BaseException, Exit, str]] = [
    (ConfigError(["one"], "the study"), Exit.REFUSED, "1 problem in the study"),
    (ModuleError("my_nets.py:3 raises"), Exit.REFUSED, "my_nets.py:3 raises"),
    (MemsweepError("there is none"), Exit.REFUSED, "there is none"),
    (BlockedError("held"), Exit.BLOCKED, "held"),
    (StorageError("it is away", "Wait."), Exit.BLOCKED, "it is away. Wait."),
    (FULL, Exit.BLOCKED, "No space left on device. Free some space there"),
    (PermissionError(errno.EACCES, "Permission denied", "/a/b"), Exit.BLOCKED, "/a/b: Permission denied"),
    (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000), Exit.REFUSED, "File name too long"),
    (MemoryError("Unable to allocate 3 TiB"), Exit.BLOCKED, "not enough memory for it (Unable to allocate 3 TiB)"),
    (RecursionError("maximum recursion depth exceeded"), Exit.FAULT, "memsweep itself failed: RecursionError"),
    (ValueError("embedded null byte"), Exit.FAULT, "memsweep itself failed: ValueError: embedded null byte (at "),
    (SystemExit(0), Exit.REFUSED, "called sys.exit(0)"),
    (KeyboardInterrupt(), Exit.INTERRUPTED, "Run the same command again"),
]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tracebacks go."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "memsweep" / "faults"


def ending(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every command end with this error."""

    def run(args: argparse.Namespace) -> Answer:
        raise error

    def parse(argv: Sequence[str], handlers: Mapping[str, arguments.Command]) -> argparse.Namespace:
        return arguments.parse(argv, dict.fromkeys(handlers, run))

    monkeypatch.setattr("memsweep.cli.parse", parse)


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_error_of_every_verb_is_a_sentence_a_code_and_a_document(
    verb: str, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code, told in ENDS:
        with monkeypatch.context() as patch:
            ending(error, patch)
            for flags in [(), ("--json",)] if verb in DOCUMENTS else [()]:
                assert main([verb, *WORDS.get(verb, ("s",)), *flags]) == code, error
                out, err = capsys.readouterr()
                assert told in err
                assert "Traceback" not in err
                assert len(err) < 1000, "a sentence, not a page"
                if flags:
                    document = json.loads(out)
                    assert document["exit_code"] == code != Exit.UNMET, "1 is no error: the command did its work"
                    assert document["error"]["message"]
                else:
                    assert out == ""


def test_a_fault_of_memsweep_leaves_its_traceback_without_secrets(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ending(ZeroDivisionError("at s3://key:hunter2@host/x"), monkeypatch)
    assert main(["list", "tasks"]) == Exit.FAULT
    (file,) = state.iterdir()
    told = capsys.readouterr().err
    assert str(file) in told
    assert "Traceback" in file.read_text()
    assert "hunter2" not in told + file.read_text()
    assert main(["--verbose", "list", "tasks"]) == Exit.FAULT
    assert "Traceback" in capsys.readouterr().err


def test_a_nul_is_refused_with_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "a\0b", "--json"]) == Exit.REFUSED
    out, err = capsys.readouterr()
    assert "'a\\x00b' holds a NUL character" in err
    assert json.loads(out)["error"]["kind"] == "ConfigError"


def test_a_path_that_is_too_long_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("report", "status", "sync", "weights"):
        assert main([verb, "s", "--results", "/tmp/" + "x" * 5000]) == Exit.REFUSED
        told = capsys.readouterr().err
        assert "too long" in told
        assert len(told) < 1000


OUTPUTS = {
    "full": ("> /dev/full", Exit.BLOCKED, "standard output took not all"),
    "closed": (">&-", Exit.REFUSED, "standard output is closed"),
    "no reader": ("| (exec <&-; sleep 3)", Exit.UNREAD, ""),
    "stderr full": ("> /dev/null 2> /dev/full", Exit.DONE, ""),
    "stderr closed": ("> /dev/null 2>&-", Exit.DONE, ""),
}


@pytest.mark.more
@pytest.mark.parametrize(
    "words", ["list tasks", "schema", "plan quickstart --no-probe", "plan quickstart --no-probe --json"]
)
@pytest.mark.parametrize("how", OUTPUTS)
def test_an_output_that_takes_nothing(how: str, words: str) -> None:
    redirected, code, told = OUTPUTS[how]
    command = f"{sys.executable} -m memsweep {words} --workspace {ROOT} {redirected}; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == code, ended.stderr
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert len(ended.stderr) < 500


@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "surrogatepass"])
def test_a_letter_that_an_output_lacks_costs_no_result(errors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``surrogateescape`` is that of LC_ALL=C."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", errors=errors))
    with guarded_output():
        sys.stdout.write("10 % of L₀\n")
        sys.stdout.flush()
    assert written.getvalue() == b"10 % of L?\n"
    assert sys.stdout.errors == errors


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bytes_that_are_no_text_are_refused_in_words(locale: str, tmp_path: Path) -> None:
    """In a word of the command line, and in the name of the folder in which it is typed."""
    folder = os.fsencode(tmp_path) + b"/b\xe9"
    os.mkdir(folder)
    variables = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "memsweep", "status"]
    for place, word in ((tmp_path, b"b\xe9"), (folder, b"b")):
        ended = subprocess.run(
            [*command, word], cwd=place, env={**os.environ, **variables}, capture_output=True, check=False
        )
        told = ended.stderr.decode("ascii")
        assert ended.returncode == Exit.REFUSED, told
        assert r"b\udce9" in told
        assert "holds bytes that are no text in this shell's encoding" in told
        assert ("set LC_ALL=C.UTF-8" in told) == (locale == "C")


@pytest.mark.skipif(sys.getfilesystemencoding() != "utf-8", reason="of a shell in UTF-8")
def test_only_an_encoding_of_the_shell_is_its_fault(state: Path) -> None:
    for text, encoding, told in (("ü", "ascii", "itself failed"), ("b\udce9", "utf-8", "take another name")):
        with pytest.raises(UnicodeEncodeError) as raised:
            text.encode(encoding)
        assert told in str(as_meant(raised.value))


@pytest.mark.parametrize("where", ["ftp://x", "s3://", "s3:///x", "sqlite:///x"])
def test_a_place_that_can_hold_no_results_is_wrong_on_the_command_line(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 4 would say that the same command goes on later."""
    assert main(["status", "quickstart", "--results", where]) == Exit.REFUSED
    assert "allowed are a folder and s3://bucket/prefix" in capsys.readouterr().err


def test_the_table_of_exit_codes_is_the_one_that_commands_use() -> None:
    table = (ROOT / "docs" / "json.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == [*Exit]
