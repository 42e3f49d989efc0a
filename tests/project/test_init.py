"""``memsweep init``: the folder that it makes works at once, is clean, and takes the place of nothing."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from memsweep.cli import main
from paths import ROOT
from sweeping import environment, memsweep

STUDY = "first"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my-project"
    assert main(["init", str(folder)]) == 0
    return folder


def run(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, words)], cwd=cwd, env=env or environment(), capture_output=True, text=True, timeout=600
    )


def test_ruff_finds_nothing_and_no_template_is_left(project: Path) -> None:
    for words in (["check"], ["format", "--check"]):
        ended = run(sys.executable, "-m", "ruff", *words, "--no-cache", ".", cwd=project)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    files = [path for path in project.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"pyproject.toml", "README.md", ".gitignore", "my_nets.py", "first.yaml"}
    assert not [path for path in files if path.suffix == ".j2" or "{{" in path.read_text("utf-8")]
    settings = (ROOT / ".vscode" / "settings.json").read_text("utf-8")  # by which an editor finds the schema
    assert (project / ".vscode" / "settings.json").read_text("utf-8") == settings
    assert 'my_project = "my_project.fading_sum"' in (project / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("full/note.txt", "is not empty (it holds note.txt)"),
        ("full", "is a file"),
        (None, "is no name for a project"),
    ],
)
def test_what_cannot_become_a_project_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str | None, said: str
) -> None:
    target = tmp_path / ("full" if made else "json")
    if made:
        (tmp_path / made).parent.mkdir(exist_ok=True)
        (tmp_path / made).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    assert main(["init", str(target)]) == 2
    assert said in (message := capsys.readouterr().err)
    assert message.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.more
def test_its_study_ends_in_a_verdict_and_its_commands_work(project: Path) -> None:
    planned = memsweep("plan", STUDY, "--no-probe", cwd=project)
    assert planned.returncode == 0, planned.stderr
    assert "guessed" not in planned.stdout  # the study names the roles of the module's weights
    assert "fading_sum" in memsweep("list", "tasks", cwd=project).stdout
    swept = memsweep("sweep", STUDY, "--inline", cwd=project)
    assert swept.returncode == 0, swept.stdout + swept.stderr
    assert "● stable" in swept.stdout
    audited = memsweep("audit", "my_nets:MinGRU", "--width", "8", "--horizon", "64", "--seconds", "600", cwd=project)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    tested = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert not {"failed", "skipped"} & {*tested.stdout.split()}


@pytest.mark.more
@pytest.mark.parametrize("how", [[], ["--editable"]], ids=["installed", "editable"])
def test_its_entry_point_gives_the_task_to_every_folder(project: Path, tmp_path: Path, how: list[str]) -> None:
    """In an environment of its own, which sees the libraries of this one."""
    venv, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    (elsewhere / "search_spaces").mkdir(parents=True)
    assert run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path).returncode == 0
    python, site = venv / "bin" / "python", next(venv.glob("lib/python*/site-packages"))
    (site / "shared.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n{ROOT / 'platform'}\n")
    install = ["install", "--no-index", "--no-deps", "--no-build-isolation", *how, project]
    installed = run(sys.executable, "-m", "pip", "--python", python, *install, cwd=tmp_path)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    (project / "search_spaces" / "first.yaml").rename(elsewhere / "search_spaces" / "first.yaml")
    planned = run(python, "-m", "memsweep", "plan", STUDY, "--no-probe", cwd=elsewhere)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "7 trials, 0 done or reused, 7 to run" in planned.stdout
    assert not planned.stderr
