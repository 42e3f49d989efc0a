"""Well-sealed files with foreign values: a command says what is wrong in a sentence, and never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreign_values import cases, studies


@pytest.mark.more
def test_no_foreign_value_in_a_stored_file_gives_a_traceback(tmp_path: Path) -> None:
    wrong = [case for case in cases(7, 56, studies(tmp_path)) if not case.is_right]
    assert not wrong, "\n\n".join(f"{case.text}\n{case.command}: {case.code}\n{case.output[-1000:]}" for case in wrong)
