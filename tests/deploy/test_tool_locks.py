"""Tools that make installs beside the environment: with hashes alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from paths import ROOT

LOCKS = {"audit": "pip-audit", "dist": "twine", "site": "mkdocs-material", "swift": "swift"}
PIN = r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_the_tool_and_all_that_it_needs(name: str) -> None:
    text = (ROOT / "docker" / f"{name}.lock").read_text(encoding="utf-8")
    pins = re.findall(PIN, text, re.MULTILINE)
    assert len(pins) == len(re.findall("==", text))
    assert LOCKS[name] in {canonicalize_name(pin) for pin, _, _ in pins}
    pythons = {pin: len(hashes.split("--hash=")) - 1 for pin, _, hashes in pins}
    assert max(pythons.values()) >= 6  # a file for each of three Pythons and two processors


def test_pip_refuses_what_a_lock_does_not_know(tmp_path: Path) -> None:
    """As make calls it, with the hash of another file."""
    package = tmp_path / "package" / "swift"
    package.mkdir(parents=True)
    lock = (ROOT / "docker" / "swift.lock").read_text(encoding="utf-8")
    version = re.search(r"^swift==(\S+)", lock, re.MULTILINE)
    assert version is not None
    (package.parent / "setup.py").write_text(
        f"from setuptools import setup; setup(name='swift', version='{version[1]}')"
    )
    made = tmp_path / "wheels"
    words = ["wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={made}", package.parent]
    assert pip(*words).returncode == 0
    alone = tmp_path / "swift.lock"
    alone.write_text(
        "".join(f"{pin}=={is_}{hashes}\n" for pin, is_, hashes in re.findall(PIN, lock, re.M) if pin == "swift")
    )
    flags = ["--no-index", "--find-links", made, "--target", tmp_path / "there"]
    done = pip("install", "-q", "--require-hashes", "--no-deps", *flags, "-r", alone)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_make_installs_nothing_by_name_alone() -> None:
    """All that pip gets from an index has a hash, but for the editable engine, and torch, checked afterwards."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"(?:\$\(PIP\)|-m pip)[^;|&]* install ([^;|&]*)", recipe)
    assert len(installs) >= 6
    unhashed = [" ".join(words.split()) for words in installs if "--require-hashes" not in words]
    assert unhashed == [
        "--no-deps -c constraints.txt --report $(VENV)/torch.json torch",  # then check-files
        "-c constraints.txt pip setuptools",  # a Python that the lock file does not know
        "-c constraints.txt torch",  # what a GPU build adds
        "-c constraints.txt --no-build-isolation -e '.[cluster,dev]'",
    ]


def pip(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)
