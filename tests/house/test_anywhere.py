"""Nothing holds on one machine, for one user or in one folder alone: no file, no wheel, no identity, no test.

``.ci/newcomer`` shows the same from outside: the everyday tests as a new user, in a home and a clone of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.recurrence.compiled.build import CACHE, library_path
from memsweep.sweep.planning.plan import identified
from paths import ROOT, committed, private

STUDIES = ("quickstart", "char_text_small", "own")
OWN = """
task: {name: linear_functional, horizon: 8}
model: {name: module, width: 2, factory: "my_nets:MinGRU"}
"""
IDENTITIES = f"""
import os
from pathlib import Path
os.umask(0o077)
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.sweep.planning.plan import identified
registry.discover(Path.cwd())
for study in {STUDIES}:
    print(*(trial.identity for trial in identified(load_study(study, (), Path.cwd()))))
"""


def test_nothing_names_the_place_where_it_was_written() -> None:
    files = [ROOT / name for name in committed() if (ROOT / name).is_file()]
    assert len(files) > 20
    found = {str(path.relative_to(ROOT)): places for path in files if (places := private(path.read_bytes()))}
    assert not found


def workspace(folder: Path) -> Path:
    """A clone under another name, as far as a study needs it, with a module of its own."""
    for name in ("platform", "tasks", "search_spaces"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests/support/nets/min_gru.py", folder / "my_nets.py")
    (folder / "search_spaces" / "own.yaml").write_text(OWN)
    return folder


@pytest.mark.more
def test_identities_are_those_of_another_user_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another HOME, working folder, name of the clone, locale, time zone, umask, hash seed, data folder, one core."""
    here, there = workspace(tmp_path / "here"), workspace(tmp_path / "memsweep")
    place = {"HOME": str(tmp_path), "MEMSWEEP_DATA": str(tmp_path / "data"), "PYTHONPATH": str(there / "platform")}
    place |= {CACHE: str(library_path("double").parent)}  # compiled once
    foreign = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "Pacific/Apia", "PYTHONHASHSEED": "1", **place}
    done = subprocess.run(
        [sys.executable, "-c", IDENTITIES], cwd=there, env=foreign, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(here)
    registry.discover(here)
    ours = [[trial.identity for trial in identified(load_study(study, (), here))] for study in STUDIES]
    assert [line.split() for line in done.stdout.splitlines()] == ours


LEAVES = """
import os
from pathlib import Path

def test_tidy(tmp_path):
    (tmp_path / "file").touch()

def test_home():
    Path("~/left").expanduser().touch()

def test_checkout():
    Path("results").mkdir()
"""


@pytest.mark.more
def test_what_a_test_leaves_elsewhere_fails_it(tmp_path: Path) -> None:
    home, checkout = tmp_path / "home", tmp_path / "checkout"
    for folder in (home, checkout):
        folder.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", checkout)
    (checkout / "pytest.ini").write_text("[pytest]\nmarkers = browser\n")
    (checkout / "test_leaves.py").write_text(LEAVES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--basetemp={tmp_path / 'base'}"],
        cwd=checkout,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "3 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    for left in (home / "left", checkout / "results"):
        assert f"while this test ran, there came {left}: use tmp_path" in done.stdout
