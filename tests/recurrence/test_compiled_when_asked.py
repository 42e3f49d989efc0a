"""Kernels are compiled when one is asked for: not by a command that looks at a module which has none over time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memsweep.recurrence.compiled import compiler
from paths import ROOT

SLOW = """#!/bin/sh
case "$*" in
  --version) echo "a compiler 1.0";;
  *) echo asked >> "$ASKED"; exit 1;;
esac
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a plain module, a compiler that notes what it is asked for, and nothing compiled."""
    (tmp_path / "my_nets.py").write_text((ROOT / "tests/support/nets/min_gru.py").read_text())
    (tmp_path / "cxx").write_text(SLOW)
    (tmp_path / "cxx").chmod(0o755)
    return tmp_path


def memsweep(place: Path, *words: str) -> str:
    env = os.environ | {
        "CXX": str(place / "cxx"),
        "MEMSWEEP_CACHE": str(place / "cache"),
        "ASKED": str(place / "ASKED"),
    }
    env |= {"XDG_STATE_HOME": str(place / "state"), "MEMSWEEP_KERNELS": ""}
    told = subprocess.run(
        [sys.executable, "-m", "memsweep", *words], cwd=place, env=env, capture_output=True, text=True, timeout=300
    )
    return f"{told.returncode}\n{told.stdout}\n{told.stderr}"


@pytest.mark.skipif(any((Path(compiler.__file__).parent / "built").glob("*.so")), reason="kernels are built in")
def test_a_plain_module_is_planned_without_a_compiler(place: Path) -> None:
    told = memsweep(place, "decide", "my_nets:MinGRU", "--kernel", "exponential", "--plan")
    assert told.startswith("0\n"), told
    assert not (place / "ASKED").exists()
    assert "slower" not in told  # nothing is said of loops that nobody runs


@pytest.mark.skipif(any((Path(compiler.__file__).parent / "built").glob("*.so")), reason="kernels are built in")
def test_a_model_with_kernels_asks_for_them(place: Path) -> None:
    assert memsweep(place, "plan", "quickstart", "--no-probe").startswith("0\n")
    assert (place / "ASKED").exists()


def test_a_compiler_that_takes_too_long_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setattr(compiler, "_TIME_LIMIT", 0.5)
    with pytest.raises(compiler.CannotBuildError) as raised:
        compiler.compile_to(tmp_path / "kernels.so", "double", "native", str(slow))
    told = str(raised.value)
    assert "did not end within 0.5 s" in told
    assert "could not be run" not in told
    for way in ("again when it is idle", "CXX", "MEMSWEEP_KERNELS=plain"):
        assert way in told
    with pytest.raises(compiler.CannotBuildError, match=r"could not be run: .*Name another with CXX"):
        compiler.compile_to(tmp_path / "kernels.so", "double", "native", str(tmp_path / "absent"))
