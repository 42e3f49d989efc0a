"""The light core: with what pyproject.toml asks for and no extra, all but Ray, searches, MLflow and figures works."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from memsweep import extras
from memsweep.errors import MemsweepError
from paths import ROOT, docker_program

SMALL = (
    *("model.activation=linear", "model.width=2", "model.parameterization=exp", "task.kernel=exponential"),
    *("task.horizon=8", "training.steps=3", "training.seeds=2", "training.batch_size=8"),
    *("training.validation_size=16", "perturbation.starts=0", "perturbation.ascent_steps=1"),
    "perturbation.radii.count=4",
)
NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4, inputs=1, outputs=1):
        super().__init__()
        self.layer, self.readout = nn.GRU(inputs, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, x):
        return self.readout(self.layer(x)[0])
"""
NOT_INSTALLED = {
    "sweep": ("sweep", "quickstart", *SMALL, "--ray"),
    "a search": ("sweep", "asha_demo", "--inline"),
    "submit": ("submit", "quickstart"),
    "data": ("data", "fetch", "mnist", "--folder", "data"),
    "figures": ("report", "quickstart", "--figures", "pdf"),
}


def test_extras_name_what_the_project_asks_for() -> None:
    """By the names under which packages are imported; what the core asks for is in no extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    homes = {
        module: {canonicalize_name(name) for name in names}
        for module, names in importlib.metadata.packages_distributions().items()
    }
    for extra, packages in extras.EXTRAS.items():
        asked = {canonicalize_name(Requirement(line).name) for line in project["optional-dependencies"][extra]}
        assert all(homes[package] & asked for package in packages)
        assert len(packages) == len(asked)


def test_the_core_is_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(extras.CORE.values()) == [Requirement(line).name for line in project["dependencies"]]
    homes = importlib.metadata.packages_distributions()
    for package, name in extras.CORE.items():
        assert canonicalize_name(name) in {canonicalize_name(home) for home in homes[package]}


@pytest.mark.parametrize("words", ["plan quickstart", "list tasks", "init here", "status x"])
def test_a_python_without_the_core_is_named_with_all_that_it_lacks(words: str, tmp_path: Path) -> None:
    """As of a job on a cluster where memsweep is not installed, and nothing of it is called a fault of memsweep."""
    command = [sys.executable, "-S", "-m", "memsweep", *words.split(), "--json"]  # without installed packages
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "platform"), "HOME": str(tmp_path)}, capture_output=True
    )
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "MemsweepError"
    lacking = f"this Python ({sys.executable}) lacks {', '.join(sorted(extras.CORE.values()))}: install "
    assert lacking in error["message"]
    assert [*tmp_path.iterdir()] == []


def test_a_module_of_a_user_that_is_missing_is_no_package_of_the_core() -> None:
    assert extras.core_told() == ""
    assert extras.told(ModuleNotFoundError("x", name="a_package_of_theirs")) == ""
    assert extras.told(ModuleNotFoundError("a part that numpy lacks", name="numpy.absent")) == ""


def test_a_package_that_is_missing_is_named_with_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "absent_here").mkdir()  # a folder of that name is no package
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(extras, "EXTRAS", {"sweep": ("absent_here",), "plots": ("numpy",)})
    with pytest.raises(MemsweepError, match=r"^--ray needs absent_here, .*: pip install 'memsweep\[sweep\]'$"):
        extras.need("absent_here", "--ray")
    extras.need("numpy", "a figure")
    assert extras.told(ImportError("x", name="absent_here.part")).startswith("absent_here is not installed: pip ")
    assert extras.told(ImportError("a package that is there and broken", name="numpy.core")) == ""
    assert extras.told(ImportError("a user's own", name="my_nets")) == ""


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the core's packages alone, and memsweep from this checkout."""
    folder = tmp_path_factory.mktemp("light") / "environment"
    venv.create(folder, symlinks=True)
    site = folder / Path(sysconfig.get_path("purelib")).relative_to(Path(sysconfig.get_path("data")))
    (site / "memsweep.pth").write_text(f"{ROOT / 'platform'}\n")
    for name in _closure(docker_program("requirements").requirements(ROOT / "pyproject.toml")):
        found = importlib.metadata.distribution(name)
        tops = {Path(file).parts[0] for file in found.files or () if ".." not in Path(file).parts}
        for top in tops - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))
    return folder / "bin" / "python"


def _closure(lines: list[str]) -> set[str]:
    """The installed distributions that some requirements need."""
    found, waiting = set[str](), [Requirement(line) for line in lines]
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if name not in found and (need.marker is None or need.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += [Requirement(line) for line in importlib.metadata.distribution(name).requires or ()]
    return found


def _run(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    command = [python, "-P", "-m", "memsweep", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.more
def test_the_core_lists_plans_sweeps_judges_and_audits(light: Path, tmp_path: Path) -> None:
    seen = subprocess.run([light, "-c", "import ray"], capture_output=True, text=True)
    assert "No module named 'ray'" in seen.stderr, "the environment has an extra: the test would prove nothing"
    for words in (("list", "studies"), ("list", "tasks"), ("describe", "exp"), ("plan", "quickstart", *SMALL)):
        done = _run(light, tmp_path / "any", *words)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr

    swept = _run(light, tmp_path / "any", "sweep", "quickstart", *SMALL, "--json")
    answer = json.loads(swept.stdout)
    assert swept.returncode == 0, swept.stderr
    assert "runs in this process" in swept.stderr
    assert answer["trials"] == 1
    told = f"{swept.stderr}{answer}"
    assert "mlflow is not installed: pip install 'memsweep[sweep]'" in told
    page = (tmp_path / "any" / "results" / "quickstart" / "report" / "index.html").read_text(encoding="utf-8")
    assert "data-charts" in page  # the page draws its charts itself
    again = _run(light, tmp_path / "any", "report", "quickstart")
    assert again.returncode == 0, again.stderr
    decided = _run(light, tmp_path / "any", "decide", "quickstart", *SMALL, "--plan")
    assert decided.returncode == 0, decided.stderr
    measured = _run(light, tmp_path / "any", "measure", "quickstart", "perturbation.norm=entrywise", "name=moved")
    assert measured.returncode == 0, measured.stderr
    decided = _run(light, tmp_path / "any", "decide", "quickstart", *SMALL, "name=open", "--max-trials", "2")
    assert decided.returncode in (0, 3), decided.stderr  # hopeless, or at its limit
    (tmp_path / "any" / "nets.py").write_text(NET)
    audited = _run(light, tmp_path / "any", "audit", "nets:Net", "--horizon", "32", "--page", "net.html")
    assert audited.returncode == 0, audited.stdout + audited.stderr


@pytest.mark.more
@pytest.mark.parametrize("words", NOT_INSTALLED.values(), ids=NOT_INSTALLED)
def test_what_needs_an_extra_says_so_before_anything_starts(
    light: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = _run(light, tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert "is not installed: pip install 'memsweep[" in done.stderr
    assert not [*tmp_path.rglob("plan.json")]
