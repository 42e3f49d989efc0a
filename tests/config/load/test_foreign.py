"""Whose code has failed: the user's file is named. Compiled code and absent files are no user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsweep.config.load.foreign import _users_file, in_one_line, users_faults
from memsweep.errors import ModuleError

ELSEWHERE = ["python/ray/includes/metric.pxi", "/not/there/metric.pxi", "<string>"]


def failing(file: str) -> None:
    """Code that a compiler says to be of this file, called by this one."""
    exec(compile("1 / 0", file, "exec"), {})


@pytest.fixture(autouse=True)
def deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no path can be made absolute."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()


@pytest.mark.parametrize("inner", ELSEWHERE)
def test_the_users_file_is_the_one_that_is_there(inner: str) -> None:
    told = rf"^{__file__} failed: ZeroDivisionError \(test_foreign.py, line \d+\)"
    with pytest.raises(ModuleError, match=told), users_faults():
        failing(inner)


@pytest.mark.parametrize("inner", ELSEWHERE)
def test_code_of_others_is_nobodys_file(inner: str) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        failing(inner)
    inside = raised.value.__traceback__.tb_next.tb_next  # type: ignore[union-attr]  # without this file
    error = raised.value.with_traceback(inside)
    assert in_one_line(error).endswith(": division by zero")
    assert _users_file(error) is None
