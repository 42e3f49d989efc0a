"""The wheel is whole: installed, memsweep lists, trains and judges from any folder, without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from memsweep.cli import main
from memsweep.config.load.study import load_study
from memsweep.recurrence.compiled import compiler
from memsweep.sweep.planning.plan import identified
from paths import ROOT, private

SOURCE = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "platform", "tasks", "search_spaces")
OVERRIDES = (
    *("model.activation=tanh", "model.width=2", "model.parameterization=exp", "task.kernel=exponential"),
    *("task.horizon=8", "training.steps=3", "training.seeds=2", "training.batch_size=8"),
    *("training.validation_size=16", "perturbation.starts=0", "perturbation.ascent_steps=1"),
    "perturbation.radii.count=4",
)
WITHOUT_COMPILER = {"CXX": "no-such-compiler", "MEMSWEEP_KERNELS": "compiled"}


def copied(folder: Path) -> Path:
    """A copy of what a wheel of this checkout is made of."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in SOURCE:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, source)
        else:
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    return source


def wheel(folder: Path, cxx: str) -> Path:
    """The wheel of this checkout."""
    source = copied(folder)
    words = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    run(Path(sys.executable), *words, cwd=folder, CXX=cxx)
    (made,) = folder.glob("*.whl")
    return made


def install(made: Path, folder: Path) -> Path:
    """The Python of a new environment that has the wheel, and beside it the packages of this one but memsweep."""
    venv.create(folder)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (site / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    run(
        *(Path(sys.executable), "-m", "pip", "-q", "--python", python, "install"),
        *("--no-deps", "--no-index", "--ignore-installed", made),
        cwd=folder,
    )
    return python


def run(program: Path, *words: str | Path, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MEMSWEEP_KERNELS")}
    done = subprocess.run(
        [program, *words], cwd=cwd, env=clean | environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiler that does not optimize: how fast its kernels are is nothing to these tests."""
    path = tmp_path_factory.mktemp("compiler") / "c++"
    path.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
    path.chmod(0o755)
    return path


@pytest.mark.more
def test_a_wheel_runs_from_an_empty_folder_without_a_compiler(quick: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path / "made", str(quick))
    kernels = [Path(name) for name in zipfile.ZipFile(made).namelist() if name.endswith(".so")]
    assert len(kernels) == len(compiler.REALS) * len(compiler.levels())
    with zipfile.ZipFile(made) as content:
        assert not {name: found for name in content.namelist() if (found := private(content.read(name)))}
    assert made.stem.endswith(f"-{sysconfig.get_platform().replace('-', '_')}") == bool(kernels)
    python, empty = install(made, tmp_path / "environment"), tmp_path / "empty"
    empty.mkdir()
    cache = tmp_path / "cache"
    place = {"MEMSWEEP_CACHE": str(cache)} | (WITHOUT_COMPILER if kernels else {})
    assert ROOT not in Path(run(python, "-c", "import memsweep; print(memsweep.__file__)", cwd=empty)).parents

    for what, folder in (("tasks", "tasks"), ("studies", "search_spaces")):
        told = {line.split()[0] for line in run(python, "-m", "memsweep", "list", what, cwd=empty).splitlines()}
        assert len(told) >= len([path for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".yaml")])
    rows = "from memsweep.commands.atlas.rows import stored_rows; print(len(stored_rows()))"
    assert run(python, "-c", rows, cwd=empty).split() == ["12"]
    told = run(python, "-m", "memsweep", "sweep", "quickstart", "--inline", *OVERRIDES, cwd=empty, **place)
    assert "inconclusive" in told
    ours = {trial.identity for trial in identified(load_study("quickstart", OVERRIDES, ROOT))}
    records = empty / "results" / "quickstart" / "records"
    assert {path.stem for path in records.iterdir()} == ours
    if not kernels:
        return
    made_there = {path.suffix for path in cache.rglob("*") if path.is_file()}
    assert made_there <= {".db", ".pickle"}, (
        "something was compiled"
    )  # beside MLflow's empty database, and read sources
    record: dict[str, Any] = json.loads(next(records.iterdir()).read_text())
    assert record["provenance"]["kernel_build"] in {path.stem.rpartition("-")[2] for path in kernels}
    # at first use, the same compiler makes the same file
    real, level = "float", compiler.target()
    name = compiler.library_name(real, level, str(quick))
    compiler.compile_to(tmp_path / name, real, level, str(quick))
    with zipfile.ZipFile(made) as content:
        (built,) = [each for each in content.namelist() if each.endswith(name)]
        assert content.read(built) == (tmp_path / name).read_bytes()


@pytest.mark.more
def test_a_wheel_that_was_made_without_a_compiler_fits_every_machine(tmp_path: Path) -> None:
    made = wheel(tmp_path / "made", "no-such-compiler")
    assert made.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(made).namelist() if name.endswith(".so")]
    python, empty = install(made, tmp_path / "environment"), tmp_path / "empty"
    empty.mkdir()
    script = "import torch; from memsweep.recurrence.compiled.library import library; print(library(torch.float64))"
    assert run(python, "-c", script, cwd=empty, CXX="no-such-compiler") == "None\n"  # torch's loop runs
    assert "quickstart" in run(python, "-m", "memsweep", "list", "studies", cwd=empty)


@pytest.mark.more
def test_the_word_for_kernels_decides_what_a_build_has(tmp_path: Path) -> None:
    source = copied(tmp_path)

    def build(word: str, cxx: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / word)]
        environment = {**os.environ, "MEMSWEEP_KERNELS": word, "CXX": cxx}
        return subprocess.run(words, cwd=source, env=environment, capture_output=True, text=True, timeout=900)

    plain = build("plain", "c++")
    assert plain.returncode == 0, plain.stderr
    assert (tmp_path / "plain" / "memsweep" / "cli" / "__init__.py").is_file()
    assert not [*(tmp_path / "plain").rglob("*.so")]
    compiled = build("compiled", "no-such-compiler")
    assert compiled.returncode != 0
    assert "no C++ compiler was found" in compiled.stderr


def test_a_workspace_adds_to_what_is_built_in_and_replaces_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("tasks", "search_spaces"):
        (tmp_path / folder).mkdir()
    task = (ROOT / "tasks" / "recall" / "copying_memory.py").read_text()
    (tmp_path / "tasks" / "mine.py").write_text(task.replace('"copying_memory"', '"mine"'))
    (tmp_path / "tasks" / "filter.py").write_bytes(
        (ROOT / "tasks" / "functionals" / "filter.py").read_bytes()
    )  # an equal copy
    (tmp_path / "tasks" / "kept").mkdir()
    (tmp_path / "tasks" / "kept" / "deeper.py").write_text(task.replace('"copying_memory"', '"deeper"'))
    study = (ROOT / "search_spaces" / "start" / "quickstart.yaml").read_text()
    (tmp_path / "search_spaces" / "mine.yaml").write_text("defaults: [quickstart, _self_]\ngrid: {model.width: [3]}\n")
    assert len(load_study("mine", workspace=tmp_path).rows) == 24

    def listed(*words: str, workspace: Path = tmp_path) -> tuple[set[str], str]:
        assert main([*words, "--workspace", str(workspace)]) == 0
        told = capsys.readouterr()
        return {line.split()[0] for line in told.out.splitlines()}, told.err

    built_in, _ = listed("list", "tasks", workspace=ROOT)
    assert listed("list", "tasks") == (built_in | {"mine", "deeper"}, "")
    studies, told = listed("list", "studies")
    assert {"mine", "quickstart", "lr_width"} <= studies
    assert not told

    (tmp_path / "tasks" / "other.py").write_text(task + "\n# another one\n")
    recall = (ROOT / "tasks" / "recall" / "mqar.py").read_text()
    (tmp_path / "tasks" / "kept" / "recall.py").write_text(recall + "\n# another one\n")
    (tmp_path / "search_spaces" / "quickstart.yaml").write_text("# Another one.\n" + study)
    _, told = listed("describe", "quickstart")
    assert told == (
        "note: of this workspace, in the place of the built-in: task 'copying_memory' (other.py), task 'mqar' "
        "(recall.py), study 'quickstart' "
        "(quickstart.yaml)\n"
    )
    assert load_study("quickstart", workspace=tmp_path).description.startswith("Another one.")
    assert not listed("list", "tasks", workspace=ROOT)[1]  # the built-in one is back
    assert "other.py" in listed("list", "tasks")[1]
    listed("list", "tasks", workspace=ROOT)
