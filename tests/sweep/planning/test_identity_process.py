"""Identity in a new process: a copy of memsweep that has grown gives the same identities, changed code gives others."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_identity_code import PACKAGE, mutants

from engine import trial
from memsweep import registry
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning.fingerprint import code_fingerprint, forget
from memsweep.sweep.planning.identity import identity_of
from paths import ROOT

SCRIPT = """
import json, sys
from pathlib import Path
from memsweep import registry
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning.identity import identity

registry.discover(Path(sys.argv[1]))
task = registry.get("task", "linear_functional").Config()
models = [registry.get("model", name).Config() for name in ("diagonal_rnn", "lru", "vanilla_rnn")]
identities = [identity(TrialConfig(task=task, model=model)) for model in models]
known = {"package": str(fingerprint.PACKAGE), "models": registry.names("model")}
spare = hasattr(TrialConfig(task=task, model=models[0]).training, "spare_setting")
print(json.dumps({"identities": identities, "spare": spare, **known}))
"""


def asked(platform: Path, workspace: Path) -> dict[str, Any]:
    """The identities of three trials, as a new process with a copy of memsweep computes them."""
    words = [sys.executable, "-c", SCRIPT, str(workspace)]
    environment = os.environ | {"PYTHONPATH": str(platform), "MEMSWEEP_KERNELS": "plain"}  # no compiler at work
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, cwd=workspace)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["package"] == str(platform / "memsweep")
    return answer


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the package and a workspace with one of its tasks."""
    shutil.copytree(PACKAGE, tmp_path / "platform" / "memsweep", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "workspace" / "tasks").mkdir(parents=True)
    shutil.copy(ROOT / "tasks" / "functionals" / "linear_functional.py", tmp_path / "workspace" / "tasks")
    (tmp_path / "workspace" / "tasks" / "_helper.py").write_text("FACTOR = 2.0\n")
    return tmp_path / "platform", tmp_path / "workspace"


UNUSED = {  # file -> class in it -> what is added to the end of the class
    "models/base.py": {
        "Model": "    def spare(self):\n        return 1\n",
        "LayerModel": "    @property\n    def spare_of_layers(self):\n        return self.spare()\n",
        "Traits": "    spare_trait: bool = False\n",
    },
    "data/task.py": {"Task": "    SPARE = 2\n    def spare_of_tasks(self):\n        return self.SPARE\n"},
    "config/schema/training.py": {
        "TrainingConfig": "    spare_setting: int = 0\n    spare_too: float = setting(1.5, 'unknown', at_least=0.0)\n"
    },
}


def with_members(file: Path, added: dict[str, str]) -> str:
    """The source of a file in which classes have further members at their end."""
    lines = file.read_text().splitlines(keepends=True)
    nodes = [node for node in ast.parse("".join(lines)).body if isinstance(node, ast.ClassDef) and node.name in added]
    assert len(nodes) == len(added), file
    for node in reversed(nodes):
        lines.insert(node.end_lineno or 0, added[node.name])
    return "".join(lines)


NEW_MODEL = """
from dataclasses import dataclass
from memsweep.models.modal.diagonal_rnn import DiagonalRNN
from memsweep.registry import register_model

@register_model("newcomer")
class Newcomer(DiagonalRNN):
    @dataclass(frozen=True, kw_only=True)
    class Config(DiagonalRNN.Config):
        "One more model."
"""


def test_new_parts_unused_members_and_moved_files_move_no_trial(copied: tuple[Path, Path]) -> None:
    """A new process each time, as after an upgrade."""
    platform, workspace = copied
    package = platform / "memsweep"
    here = asked(PACKAGE.parent, workspace)["identities"]
    assert len(set(here)) == 3
    for name, added in UNUSED.items():
        (package / name).write_text(with_members(package / name, added))
    (package / "models" / "newcomer.py").write_text(NEW_MODEL)
    (workspace / "tasks" / "newcomer.py").write_text("raise RuntimeError\n")
    (package / "report" / "style.py").write_text("raise RuntimeError\n")
    (package / "recurrence" / "compiled" / "built" / "kernels-double-x.so").write_bytes(b"of a wheel")
    (package / "recurrence" / "linear" / "gram.py").rename(package / "recurrence" / "quadratic_form.py")
    for path in package.rglob("*.py"):
        text = path.read_text()
        if "memsweep.recurrence.linear.gram" in text:
            path.write_text(text.replace("memsweep.recurrence.linear.gram", "memsweep.recurrence.quadratic_form"))
    answer = asked(platform, workspace)
    assert "newcomer" in answer["models"]
    assert answer["spare"]
    assert answer["identities"] == here


@pytest.mark.more
def test_changed_code_moves_its_trials_in_a_new_process(copied: tuple[Path, Path]) -> None:
    """Code of one model, of C++, of a helper beside a workspace's task; a comment in C++ is no code."""
    platform, workspace = copied
    package = platform / "memsweep"
    here = asked(platform, workspace)["identities"]
    header = min((package / "recurrence" / "compiled").rglob("*.h"))
    header.write_text("// a comment\n" + header.read_text())
    ring = package / "models" / "modal" / "lru.py"
    ring.write_bytes(dict(mutants(ring))["LRU"])
    one_model = asked(platform, workspace)["identities"]
    assert [one == other for one, other in zip(here, one_model, strict=True)] == [True, False, True]
    header.write_text(header.read_text() + "\nint another = 1;\n")
    compiled = asked(platform, workspace)["identities"]
    assert not {*one_model}.intersection(compiled)  # every model of memsweep runs kernels
    (workspace / "tasks" / "_helper.py").write_text("FACTOR = 3.0\n")
    assert not {*here, *one_model, *compiled}.intersection(asked(platform, workspace)["identities"])


@pytest.mark.more
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
        "    horizon = variance = weight_power = property(lambda self: 1)\n"
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
            file.write_bytes(content + b"Y = 1\n")
            forget(*fingerprint.GRAPH._modules)
            assert code_fingerprint(config) != before, name
            file.write_bytes(content)
        forget(*fingerprint.GRAPH._modules)
        assert code_fingerprint(config) == before
    finally:
        del registry._parts["task"]["borrower"]
