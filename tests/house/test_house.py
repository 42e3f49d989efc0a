"""Properties of the project as a whole: a light command line, pinned packages, and Python's own ``platform``."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from memsweep import __version__
from paths import ROOT, committed, docker_program
from tests import slow

ENGINE = ROOT / "platform" / "memsweep"


def sources() -> list[Path]:
    return sorted([*ENGINE.rglob("*.py"), *(ROOT / "tasks").rglob("*.py")])


def python(*arguments: str, path: Path | None = None, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter in the repository's root, ``path`` first on its module path."""
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else dict(os.environ)
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout
    )


def test_no_page_that_a_command_writes_lies_in_git() -> None:
    """A code host shows its source, and a later report leaves it behind."""
    pages = [name for name in committed() if name.endswith(".html") and not name.startswith("platform/")]
    assert not pages


def test_platform_is_no_package() -> None:
    strays = [path.name for path in (ROOT / "platform").glob("*.py")]
    assert not strays, f"platform/ is a source root; these files would shadow Python's own platform module: {strays}"


@pytest.mark.parametrize("path", [None, ROOT], ids=["cwd", "PYTHONPATH"])
def test_import_platform_gives_the_standard_library(path: Path | None) -> None:
    done = python("-c", "import platform; print(platform.system(), platform.__file__)", path=path)
    assert done.returncode == 0, done.stderr
    system, file = done.stdout.split()
    assert system == "Linux" or sys.platform != "linux"
    assert Path(file).is_file()
    assert ROOT / "platform" not in Path(file).parents


RAY_SCRIPT = """
import os, ray
ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

@ray.remote
def look():
    import platform, sys
    return platform.system(), platform.__file__, os.getcwd(), sys.path

print(*ray.get(look.remote(), timeout=600), sep="\\n")
ray.shutdown()
"""


@pytest.mark.more
def test_import_platform_in_a_ray_worker() -> None:
    done = python("-c", RAY_SCRIPT, path=ROOT)
    assert done.returncode == 0, done.stderr
    system, file, folder, search_path = done.stdout.splitlines()[-4:]
    assert folder == str(ROOT)
    assert repr(str(ROOT)) in search_path, "the worker does not have the root on its path: the test would prove nothing"
    assert system
    assert ROOT / "platform" not in Path(file).parents


def test_the_citation_is_of_this_version_and_names_the_works() -> None:
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert about["version"] == __version__
    assert about["license"] == _about()["license"]
    assert all(one["authors"] and one["title"] for one in about["references"])
    assert len({one["url"] for one in about["references"]}) == 5


def _about() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


HEAVY = {
    "hydra",
    "jinja2",
    "matplotlib",
    "mlflow",
    "numpy",
    "omegaconf",
    "optuna",
    "pandas",
    "pyarrow",
    "ray",
    "rich",
    "torch",
}


def test_help_imports_nothing_heavy() -> None:
    done = python("-X", "importtime", "-m", "memsweep", "--help")
    assert done.returncode == 0, done.stderr
    assert "sweep" in done.stdout
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "argparse" in imported, "no import was seen: the test would prove nothing"
    assert not imported & HEAVY
    assert sum("memsweep" in line for line in done.stderr.splitlines()) <= 20  # modules, of nearly 400


WITH_TORCH = {"triton"}
"""Torch's builds for GPUs bring it, each in the version that it needs; it is imported on a GPU alone."""


def test_every_import_is_a_declared_dependency() -> None:
    """A package that is only there because another one brought it may go away with the next release of that one."""
    declared = {canonicalize_name(Requirement(text).name) for text in _asked("sweep", "plots")}
    homes = importlib.metadata.packages_distributions()
    undeclared: dict[str, set[str]] = {}
    for path in sources():
        for module in _imported(path) - set(sys.stdlib_module_names) - {"memsweep"} - WITH_TORCH:
            distributions = {canonicalize_name(name) for name in homes.get(module, [])}
            if not distributions & declared:
                undeclared.setdefault(module, set()).add(str(path.relative_to(ROOT)))
    assert not undeclared, f"imported, but not among pyproject's dependencies: {undeclared}"


def _asked(*extras: str) -> list[str]:
    """The requirements of pyproject.toml, and those of these extras."""
    found: list[str] = docker_program("requirements").requirements(ROOT / "pyproject.toml", *extras)
    return found


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


GPU_PACKAGES = ("nvidia-", "cuda-", "triton")  # what torch's own GPU build brings: not pinned here


def test_every_installed_package_is_pinned() -> None:
    """All that memsweep and its ``dev`` extra pull in stands in constraints.txt at the version that is installed."""
    pins = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            pins[canonicalize_name(requirement.name)] = requirement.specifier
    assert str(pins["torch"]) == "==2.13.0"
    wrong = {
        name: version
        for name, version in _closure().items()
        if not name.startswith(GPU_PACKAGES)
        and (name not in pins or not pins[name].contains(version, prereleases=True))
    }
    assert not wrong, f"installed at versions that constraints.txt does not pin (make env): {wrong}"


def test_the_lock_has_hashes_for_every_pin_and_for_no_other() -> None:
    pins = re.findall(r"^[\w.-]+==\S+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^([\w.-]+==\S+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", lock, flags=re.MULTILINE)
    assert sorted(locked) == sorted(pins)
    assert re.findall(r"^## (\w+)$", lock, flags=re.MULTILINE) == ["pip", "torch", "cluster", "dev"]


def test_the_lock_has_the_files_of_every_python_that_is_promised() -> None:
    """For x86-64 and 64-bit Arm: as many hashes, of packages with a wheel for each; ``make env`` looks at them."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = re.findall(r":: 3\.(\d+)$", "\n".join(about["classifiers"]), flags=re.MULTILINE)
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    known = {
        pin.partition("==")[0]: pin.count("--hash=")
        for pin in re.findall(r"^[\w.-]+==(?:.*\\\n)+.*$", lock, re.MULTILINE)
    }
    for name in ("torch", "numpy", "scipy", "pandas", "pyarrow", "ray", "grpcio", "matplotlib", "mypy"):
        assert known[name] >= 2 * len(pythons), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"(3, {pythons[0]}) <= sys.version_info[:2] <= (3, {pythons[-1]})" in makefile


def _closure() -> dict[str, str]:
    """Canonical name -> public version of every distribution that memsweep[dev,ui] pulls in here, itself left out."""
    found: dict[str, str] = {}
    todo = [(Requirement(text), "") for text in _asked("dev", "ui", "plots")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        distribution = importlib.metadata.distribution(name)
        found[name] = Version(distribution.version).public
        for text in distribution.requires or []:
            todo += [(Requirement(text), wanted) for wanted in ("", *requirement.extras)]
    return found


SKIPPERS = """
import pytest

@pytest.mark.browser
def test_marked():
    pass

def test_fixture(chromium):
    pass

@pytest.mark.browser
def test_skips_by_itself():
    pytest.skip("a reason of its own")
"""


LATE = """
import conftest
import pytest
def test_early():
    conftest._UNTIL = 1
@pytest.mark.browser
def test_late():
    assert False
"""


def test_after_the_time_of_a_run_no_test_starts_and_another_file_comes_first_each_day(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    browser\n    other\n")
    for number in range(20):  # files of which nothing is asked for take no turn
        other = "import pytest\n@pytest.mark.other\ndef test_other(): pass\n"
        (tmp_path / f"test_{number}.py").write_text(other)
    until = int(time.time()) + 3600
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(LATE)
    first = []
    for day in (0, 1):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", "-m", "not other"],
            cwd=tmp_path,
            env={**os.environ, "MEMSWEEP_REQUIRE": "browser", "MEMSWEEP_UNTIL": str(until - 86400 * day)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        ran = re.findall(r"^(test_[ab]).py::(\w+) (PASSED|SKIPPED)", done.stdout, re.MULTILINE)
        assert done.returncode == 0, done.stdout
        assert "the time of this run is over" in done.stdout
        assert [name for _, name, end in ran if end == "PASSED"] == (["test_early"] if day == 0 else [])
        assert len(ran) == 4
        first.append(ran[0][0])
    assert sorted(first) == ["test_a", "test_b"]


@pytest.mark.parametrize("day", [0, 1])
def test_the_gate_runs_drills_and_combinations_on_every_day(tmp_path: Path, day: int) -> None:
    """The first of the two has half of the time that is left, and the failure of either ends the gate."""
    (tmp_path / ".ci").mkdir()
    gate = shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    now = 86400 * (20_000 + day)
    programs = {
        "bin/date": f"echo {now}",
        "bin/id": "echo 0",
        "bin/make": 'echo "make $1 ${MEMSWEEP_UNTIL:-}"; [ "$1" != "${FAILS:-}" ]',
        ".ci/newcomer": "echo newcomer",
    }
    for name, lines in programs.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/bash\n{lines}\n")
        (tmp_path / name).chmod(0o755)

    def run(fails: str = "") -> tuple[int, list[str]]:
        env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path), "FAILS": fails}
        done = subprocess.run([gate], env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.splitlines()

    base = ["make ci-deps ", "make check ", "newcomer", "make test "]
    first, second = ("drill", "test-all") if day == 0 else ("test-all", "drill")
    assert run() == (0, [*base, f"make {first} {now + 1200}", f"make {second} {now + 2400}"])
    assert run(first) == (1, [*base, f"make {first} {now + 1200}"])
    assert run(second)[0] == 1


def test_every_slow_test_exists() -> None:
    """A name that nothing has would hide that its test is a quick one since it was renamed."""
    paths = [*(ROOT / "tests").rglob("*.py"), *(ENGINE / "testing").rglob("*.py")]
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    functions = {name for text in files.values() for name in re.findall(r"^ *def (test_\w+)", text, re.MULTILINE)}
    for name in slow.NAMES.read_text().split():
        file, *names = name.split("::")  # a class may have its functions from another file
        assert file in files, name
        assert not names or names[-1] in functions, name


def test_slow_are_long_functions_and_files_whose_fixtures_are_long() -> None:
    times = """
        3.00s setup    tests/a/test_fixture.py::test_first
        0.01s call     tests/a/test_fixture.py::test_second
        0.50s call     tests/test_long.py::test_long
        0.10s call     tests/test_long.py::test_short[a-b]
        0.30s call     tests/test_many.py::test_many[a]
        0.10s call     tests/test_many.py::test_many[b]
        0.90s call     tests/test_many.py::test_all[a]
        0.90s setup    tests/test_many.py::test_all[b]
        ====== 9 passed in 6.00s ======"""
    found = sorted(slow.slow(line.strip() for line in times.splitlines()))
    assert found == ["tests/a/test_fixture.py", "tests/test_long.py::test_long", "tests/test_many.py::test_all"]


def test_what_is_named_is_left_out_of_the_quick_tests(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    more\n")
    (tmp_path / "slow.txt").write_text("test_whole.py\ntest_part.py::test_long\n")
    cases = "import pytest\n@pytest.mark.parametrize('x', [1, 2])\ndef test_long(x): pass\ndef test_short(): pass\n"
    for name in ("test_whole.py", "test_part.py"):
        (tmp_path / name).write_text(cases)
    words = ["-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", "not slow"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert re.findall(r"^test_.*$", done.stdout, re.MULTILINE) == ["test_part.py::test_short"], done.stdout


@pytest.mark.more
@pytest.mark.parametrize(
    ("required", "browser", "expected", "words"),
    [
        ("", "no-such-browser", {"skipped": 3}, "no-such-browser is not on PATH"),
        ("browser", "no-such-browser", {"error": 3}, "is not on PATH"),
        ("browser", "true", {"passed": 2, "failed": 1}, "skipped, but MEMSWEEP_REQUIRE asks for browser"),
        ("brwoser", "true", {}, "MEMSWEEP_REQUIRE names brwoser"),
    ],
    ids=["missing", "missing-required", "there-required", "misspelt"],
)
def test_what_is_missing_skips_unless_it_is_required(
    tmp_path: Path, required: str, browser: str, expected: dict[str, int], words: str
) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser\n")
    (tmp_path / "test_skippers.py").write_text(SKIPPERS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "MEMSWEEP_REQUIRE": required, "MEMSWEEP_CHROMIUM": browser},
        capture_output=True,
        text=True,
        timeout=600,
    )
    closing = done.stdout.strip().rpartition("\n")[2]
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (skipped|failed|passed|error)", closing)}
    assert counts == expected, done.stdout + done.stderr
    assert words in done.stdout + done.stderr
    assert (done.returncode == 0) == (expected == {"skipped": 3})
