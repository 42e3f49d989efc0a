"""Names and errors of others reach the terminal without control characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.commands.answers.status import print_status
from memsweep.errors import StoreError
from memsweep.studies.status import status_document
from memsweep.sweep.planning.plan_file import StoredPlan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.lease import Holder

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\ud800"


def test_status_shows_foreign_text_without_its_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = StoredPlan(f"s{HOSTILE}", "", {"a": {}, "b": {}}, "", None, {}, {}, {}, {}, 0)
    who = Holder(f"host{HOSTILE}", 1, "", "", HOSTILE, f"memsweep {HOSTILE}")
    failures = {"a": {"outcome": f"failed{HOSTILE}", "error": f"ValueError: {HOSTILE}"}}
    print_status(
        status_document(plan, {}, who, failures, {"b": StoreError(f"{HOSTILE} is damaged")}), Location.at(tmp_path)
    )
    shown = capsys.readouterr().out
    assert shown.count(r"\x1b[2J") == 6
    assert all(sign.isprintable() for sign in shown.replace("\n", ""))


@pytest.mark.parametrize("words", [(), ("-v",)])
def test_an_error_shows_foreign_text_without_its_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert main(["status", "\x1b[2Jstudy", "--results", str(tmp_path), *words]) == 2
    shown = capsys.readouterr().err
    assert "study" in shown
    assert "\x1b" not in shown
