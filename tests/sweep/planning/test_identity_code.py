"""Identity: every file of code that makes numbers counts, and no other does."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memsweep
from engine import trial
from memsweep import registry
from memsweep.config.schema.trial import ChainConfig, TrialConfig
from memsweep.sweep.planning import fingerprint, imports
from memsweep.sweep.planning.fingerprint import EXEMPT, NUMBER_FOLDERS, code_fingerprint, engine_files
from memsweep.sweep.planning.identity import identity, identity_of
from paths import ROOT

PACKAGE = Path(memsweep.__file__).parent


def test_a_chained_trial_counts_the_code_of_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a number from them, and their parts may be others than its own."""
    chain = ChainConfig(along="model.parameterization", first=1.0, earlier=("direct", "softplus"))
    config = dataclasses.replace(trial(), chain=chain)
    before, alone = identity(config), identity(trial())
    own = fingerprint._own_files

    def moved(part: type) -> Any:
        direct = registry.get("parameterization", "direct")
        return (frozenset({("direct.py", Path(__file__))}), frozenset()) if part is direct else own(part)

    monkeypatch.setattr(fingerprint, "_own_files", moved)
    assert identity(config) != before
    assert identity(trial()) == alone


def imported(name: str) -> set[str]:
    """The modules of memsweep that a module imports, at its top or within functions, their packages included."""
    file = PACKAGE / name
    package = ["memsweep", *Path(name).parent.parts]
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            words = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            stem = ".".join(filter(None, (base, node.module)))
            words = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
        else:
            continue
        for word in words:
            parts = word.split(".")
            if parts[0] == "memsweep":
                found |= {place for n in range(1, len(parts) + 1) if (place := module_file(parts[1:n]))}
    return found


def module_file(parts: list[str]) -> str | None:
    for place in ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"])):
        if (PACKAGE / place).is_file():
            return place
    return None


def test_every_module_that_a_trial_imports_is_hashed_or_cannot_change_a_number() -> None:
    models = {f"models/{path.name}" for path in (PACKAGE / "models").glob("*.py")}  # found by discovery
    waiting, seen = ["trial.py", "sweep/carry.py", *models], set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            # the store, from which a chained trial takes a number, gives back what it was given
            waiting += imported(name) if name != "sweep/carry.py" else []
    hashed = {name.removeprefix("memsweep/") for name in engine_files()}
    assert seen - hashed - EXEMPT.keys() == set(), "hash it, or say in EXEMPT why it cannot change a number"
    assert len(seen & hashed) > 50
    below = {str(path.relative_to(PACKAGE)) for folder in NUMBER_FOLDERS for path in (PACKAGE / folder).rglob("*.py")}
    assert EXEMPT.keys() <= seen | below, "an exemption that nothing needs"
    assert not EXEMPT.keys() & hashed
    assert all(len(reason) > 15 for reason in EXEMPT.values())


def test_all_code_in_the_folders_that_make_numbers_is_of_a_known_kind() -> None:
    unknown = {
        path.name
        for folder in NUMBER_FOLDERS
        for path in (PACKAGE / folder).rglob("*")
        if path.is_file() and path.suffix not in imports.CODE and "__pycache__" not in path.parts
    }
    assert unknown == set()


SCRIPT = """
import json, sys
from pathlib import Path
from memsweep import registry
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning import imports
from memsweep.sweep.planning.identity import identity

workspace, touch = Path(sys.argv[1]), sys.argv[2:]
registry.discover(workspace)
config = TrialConfig(
    task=registry.get("task", "linear_functional").Config(), model=registry.get("model", "diagonal_rnn").Config()
)
before, moved = identity(config), {}
for place in touch:
    file = Path(place)
    content = file.read_bytes()
    file.write_bytes(content + b" ")
    fingerprint._hash_files.cache_clear()
    moved[place] = identity(config) != before
    file.write_bytes(content)
fingerprint._hash_files.cache_clear()
assert identity(config) == before
print(json.dumps({"identity": before, "moved": moved, "package": str(fingerprint.PACKAGE)}))
"""


def asked(platform: Path, workspace: Path, *touch: Path) -> dict[str, Any]:
    """What a copy of memsweep says of a trial's identity, and of files that are touched one after the other."""
    words = [sys.executable, "-c", SCRIPT, str(workspace), *map(str, touch)]
    done = subprocess.run(
        words,
        env=os.environ | {"PYTHONPATH": str(platform)},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=workspace,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["package"] == str(platform / "memsweep")
    return answer


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A copy of the package and a workspace with one of its tasks."""
    shutil.copytree(PACKAGE, tmp_path / "platform" / "memsweep", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "workspace" / "tasks").mkdir(parents=True)
    shutil.copy(ROOT / "tasks" / "linear_functional.py", tmp_path / "workspace" / "tasks")
    (tmp_path / "workspace" / "tasks" / "_helper.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "workspace" / "search_spaces").mkdir()
    (tmp_path / "workspace" / "search_spaces" / "s.yaml").write_text("# a study\n")
    return tmp_path / "platform", tmp_path / "workspace"


def test_each_file_that_makes_numbers_counts_and_no_other(copied: tuple[Path, Path]) -> None:
    platform, workspace = copied
    package = platform / "memsweep"
    files = [path for path in sorted((*package.rglob("*"), *workspace.rglob("*"))) if path.is_file()]
    answer = asked(platform, workspace, *(path for path in files if "__pycache__" not in path.parts))
    moved = {Path(place) for place, counts in answer["moved"].items() if counts}
    folders = [package / name for name in NUMBER_FOLDERS]
    expected = {path for path in files if any(path.is_relative_to(folder) for folder in folders)}
    expected -= {package / name for name in EXEMPT}
    expected |= {package / name for name in ("streams.py", "trial.py", "sweep/carry.py")}
    expected |= {package / "config" / f"{name}.py" for name in ("schema", "chain", "canonical", "merge")}
    expected |= {workspace / "tasks" / name for name in ("linear_functional.py", "_helper.py")}
    assert moved == expected
    others = {path.relative_to(package).parts[0] for path in set(files) - moved if path.is_relative_to(package)}
    assert {"report", "cli", "commands", "sweep", "testing", "console.py", "errors.py"} <= others


@pytest.mark.drill
def test_changed_code_is_another_identity_to_a_new_process(copied: tuple[Path, Path]) -> None:
    """Nothing but the file differs: no cache is cleared, and the place of the copy does not count."""
    platform, workspace = copied
    here = asked(PACKAGE.parent, workspace)["identity"]
    before = asked(platform, workspace)["identity"]
    assert before == here
    (platform / "memsweep" / "report" / "view.py").write_text("raise RuntimeError\n")
    assert asked(platform, workspace)["identity"] == before
    kernel = platform / "memsweep" / "recurrence" / "gram.py"
    kernel.write_text(kernel.read_text() + "\n# another thought\n")
    changed = asked(platform, workspace)["identity"]
    assert changed != before
    task = workspace / "tasks" / "linear_functional.py"
    task.write_text(task.read_text().replace("def ", "def  ", 1))
    assert len({before, changed, asked(platform, workspace)["identity"]}) == 3


def test_what_a_part_imports_from_outside_of_libraries_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may be one file and its mathematics another: lazily imported, in a package, or through one more file."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "borrower.py").write_text(
        "from dataclasses import dataclass\n"
        "import scipy.special\n"
        "import lender\n"
        "from memsweep.data.api import KernelConfig, LinearFunctionalTask\n"
        "from memsweep.registry import register_task\n"
        "@register_task('borrower')\n"
        "class Borrower(LinearFunctionalTask):\n"
        "    @dataclass(frozen=True, kw_only=True)\n"
        "    class Config(KernelConfig):\n"
        "        '''Borrowed.'''\n"
        "    def kernel(self):\n"
        "        import lender_package.deep\n"
    )
    (tmp_path / "lender.py").write_text("import lender_of_lender\n")
    (tmp_path / "lender_of_lender.py").write_text("import lender\nimport yaml\n")
    (tmp_path / "lender_package").mkdir()
    for name in ("__init__", "deep"):
        (tmp_path / "lender_package" / f"{name}.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.discover(tmp_path) == []
    try:
        config = TrialConfig(task=registry.get("task", "borrower").Config(), model=trial().model)
        before = code_fingerprint(config)
        assert set(identity_of(config)["versions"]) == {"torch", "numpy", "scipy", "PyYAML"}
        for name in ("lender.py", "lender_of_lender.py", "lender_package/deep.py", "tasks/borrower.py"):
            file = tmp_path / name
            content = file.read_bytes()
            file.write_bytes(content + b"#\n")
            fingerprint._hash_files.cache_clear()
            assert code_fingerprint(config) != before, name
            file.write_bytes(content)
        fingerprint._hash_files.cache_clear()
        assert code_fingerprint(config) == before
    finally:
        del registry._parts["task"]["borrower"]
