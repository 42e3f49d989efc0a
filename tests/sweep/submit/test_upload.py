"""Which files a job takes along: what it needs, and nothing else of a workspace."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from memsweep import registry
from memsweep.cli.arguments import parse
from memsweep.cli.options import OPTIONS
from memsweep.commands.submit import checked_job
from memsweep.sweep.submit.job import SubmissionError
from memsweep.sweep.submit.selection import ENGINE, INCLUDE, Selection, engine_files
from memsweep.sweep.submit.upload import Upload
from paths import ROOT
from plain_shell import PRIVATE_FILES, SECRET, clear_settings, small_workspace
from sweeping import BASE

NET = "from torch import nn\nimport parts.layers\nfrom . import unknown\nclass Net(nn.GRU):\n    pass\n"
OWN = (
    "task: {name: linear_functional, horizon: 8}\n"
    "model: {name: module, width: 1, factory: 'nets/gru.py:Net', inputs_argument: input_size, "
    "width_argument: hidden_size, arguments: {batch_first: true}}\n"
)
TASK = """
from dataclasses import dataclass
from pathlib import Path
import torch
from words import TABLE
from memsweep.data.api import LinearFunctionalTask
from memsweep.registry import register_task

@register_task("worded")
class Worded(LinearFunctionalTask):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        horizon: int = 8
        file: str = ""
    @classmethod
    def data_files(cls, config):
        return [Path(config.file).absolute()] if config.file else [Path(__file__).parent.parent / "texts"]
    @property
    def horizon(self):
        return self.config.horizon
    def kernel(self):
        return torch.ones(self.horizon, dtype=torch.float64)
"""


@pytest.fixture(autouse=True)
def _plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clear_settings(monkeypatch, tmp_path)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = small_workspace(tmp_path)
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def upload_of(workspace: Path, *words: str) -> Upload:
    args = parse(["submit", *words, "--workspace", str(workspace)], dict.fromkeys(OPTIONS))
    args.discover = registry.discover
    assert isinstance(args, argparse.Namespace)
    return checked_job(args)[1]


def packed(upload: Upload, target: Path, given: Mapping[str, object] | None = None) -> dict[str, set[str]]:
    """Folder -> the names in the package that Ray makes of it; no content of theirs holds a secret."""
    from ray._private.runtime_env.packaging import create_package

    found = {}
    with upload.laid_out(given or {}) as env:
        for folder in (env["working_dir"], *env["py_modules"]):
            package = target / f"{Path(folder).name}.zip"
            create_package(folder, package, include_gitignore=True, excludes=[])
            with zipfile.ZipFile(package) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
                assert not [name for name in names if SECRET.encode() in archive.read(name)]
            found[Path(folder).name] = set(names)
            package.unlink()
    return found


def test_of_a_workspace_full_of_secrets_and_results_the_study_and_its_code_go_along(
    workspace: Path, tmp_path: Path
) -> None:
    """As Ray packs it."""
    secret = [*PRIVATE_FILES, "results/big", "my results/x.parquet", "out.bin", "nets/id_rsa", "tasks/id_rsa"]
    secret += ["tasks/.env", "search_spaces/id_rsa", "parts/secrets.yaml", "nets/parts/credentials.json"]
    write(workspace, dict.fromkeys(secret, SECRET))
    write(tmp_path, {"elsewhere/id_rsa": SECRET, "elsewhere/x.yaml": SECRET, "elsewhere/py.py": f"# {SECRET}"})
    for place in ("", "nets", "tasks/_", "search_spaces", "nets/parts"):
        (workspace / place).mkdir(exist_ok=True, parents=True)
        for name, target in (("etc", Path("/etc")), ("else", tmp_path / "elsewhere")):
            (workspace / place / name).symlink_to(target)
    (workspace / "search_spaces" / "task").symlink_to(tmp_path / "elsewhere")
    needed = {
        "nets/gru.py": NET,
        "nets/parts/__init__.py": "",
        "nets/parts/layers.py": "import deeper",
        "nets/deeper.py": "",
    }
    write(workspace, {**needed, "nets/other.py": f"# {SECRET}", "unused.py": SECRET, "search_spaces/own.yaml": OWN})
    (workspace / "nets" / "gru.py").write_text(NET.replace("from . import unknown\n", ""))
    upload = upload_of(workspace, "own")
    assert packed(dataclasses.replace(upload, engine={}), tmp_path)["workspace"] == {*needed, "search_spaces/own.yaml"}
    assert upload.item()["files"] == sorted({*needed, "search_spaces/own.yaml"})
    assert sorted(upload.notes) == ["search_spaces/task/x.yaml leads out of the workspace and is not uploaded"]
    stored = upload_of(workspace, "own", "--do", "resume")
    assert set(stored.files) == set(needed)  # a stored plan needs no study


def test_tasks_go_along_with_what_they_import_and_the_data_that_they_declare(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(workspace))  # as python -m memsweep does
    write(workspace, {"tasks/worded.py": TASK, "words.py": "TABLE = 1", "tasks/_help.py": "", "tasks/a/b.py": ""})
    write(workspace, {"texts/one.txt": "1", "texts/deep/two.txt": "2", "texts/.env": SECRET, "tasks/notes.txt": SECRET})
    write(workspace, {"search_spaces/task/parts.yaml": "{}", "given.txt": "3", "words.pem": SECRET, "fast.cpp": ""})
    study = BASE.replace("linear_functional", "worded")
    assert study != BASE
    study = re.sub(r"task: \{.*?\}", "task: {name: worded, horizon: 8}", study, flags=re.S)
    write(workspace, {"search_spaces/worded.yaml": study})
    code = {"tasks/worded.py", "tasks/_help.py", "tasks/a/b.py", "words.py", "fast.cpp"}
    both = code | {"search_spaces/worded.yaml", "search_spaces/task/parts.yaml"}
    assert set(upload_of(workspace, "worded").files) == both | {"texts/one.txt", "texts/deep/two.txt"}
    assert set(upload_of(workspace, "worded", "task.file=given.txt").files) == both | {"given.txt"}
    with pytest.raises(SubmissionError, match="the cluster has the workspace under another path"):
        upload_of(workspace, "worded", f"task.file={workspace / 'given.txt'}")
    write(tmp_path, {"outside.txt": "4"})
    with pytest.raises(SubmissionError, match=r"outside.txt lies outside of the workspace.*Copy it into that folder"):
        upload_of(workspace, "worded", "task.file=../outside.txt")
    assert set(upload_of(workspace, "worded", f"task.file={tmp_path / 'outside.txt'}").files) == both  # as on all nodes
    (workspace / "given.txt").unlink()
    with pytest.raises(SubmissionError, match=r"a data file of worded: there is no file .*given.txt"):
        upload_of(workspace, "worded", "task.file=given.txt")


def test_code_from_outside_is_found_before_anything_is_sent(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"path/outer_words.py": "", "linked.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    write(workspace, {"tasks/one.py": "import numpy, os.path\nimport outer_words\nimport no_such_module"})
    with pytest.raises(
        SubmissionError, match=r"tasks/one.py imports it: .*outer_words.py lies outside of the workspace"
    ):
        upload_of(workspace, "small")
    (workspace / "tasks" / "one.py").unlink()
    (workspace / "tasks" / "linked.py").symlink_to(tmp_path / "linked.py")
    with pytest.raises(SubmissionError, match=r"linked.py lies outside of the workspace .*linked.py leads there"):
        upload_of(workspace, "small")
    (workspace / "linked.py").write_text("")
    (workspace / "tasks" / "linked.py").unlink()
    (workspace / "tasks" / "linked.py").symlink_to("../linked.py")
    assert set(upload_of(workspace, "small").files) == {"search_spaces/small.yaml", "tasks/linked.py", "linked.py"}


def test_a_study_in_a_room_takes_along_what_it_is_made_of(workspace: Path) -> None:
    """The studies that it includes, of whatever room, and the parts beside it and beside its room."""
    write(workspace, {"search_spaces/mine/last.yaml": "defaults: [quickstart, first, task: parts, _self_]\n"})
    write(workspace, {"search_spaces/other/first.yaml": BASE, "search_spaces/other/unused.yaml": OWN})
    parts = {"search_spaces/mine/task/parts.yaml", "search_spaces/training/long.yaml"}
    write(workspace, dict.fromkeys(parts, "horizon: 8"))
    parts |= {"search_spaces/other/first.yaml"}
    assert set(upload_of(workspace, "last").files) == {"search_spaces/mine/last.yaml", *parts}


@pytest.mark.parametrize(
    ("lines", "files", "said"),
    [
        ("# these\nextra/*.bin  # and no more\n\n./one.txt", {"extra/a.bin", "one.txt"}, None),
        ("extra", {"extra/a.bin", "extra/deep/b.txt"}, None),
        ("**/*.txt", {"one.txt", "extra/deep/b.txt"}, None),
        (".hidden/x", {".hidden/x"}, None),
        ("*", {"one.txt", "extra/a.bin", "extra/deep/b.txt"}, None),
        ("nothing*", set(), "names 'nothing\\*', and no file fits"),
        ("../x", set(), "names '../x'. Name files of the workspace"),
        ("/etc/passwd", set(), "Name files of the workspace"),
        ("etc/passwd", set(), "passwd lies outside of the workspace"),
    ],
)
def test_a_file_names_what_else_goes_along(workspace: Path, lines: str, files: set[str], said: str | None) -> None:
    write(workspace, {"one.txt": "", "extra/a.bin": "", "extra/deep/b.txt": "", "extra/.env": SECRET, ".hidden/x": ""})
    if "etc" in lines:
        (workspace / "etc").symlink_to("/etc")
    (workspace / INCLUDE).write_text(lines)
    selection = Selection(workspace)
    with pytest.raises(SubmissionError, match=said) if said else contextlib.nullcontext():
        selection.add_included()
        assert set(selection.files) - {"search_spaces/small.yaml"} == files


def test_a_checkout_takes_along_what_its_installation_reads_and_no_more(tmp_path: Path) -> None:
    """A clone of any name, with results of any name in it; without an installation the engine alone goes along."""
    clone = tmp_path / "memsweep"
    package = clone / "platform" / "memsweep"
    shutil.copytree(ROOT / "platform" / "memsweep" / "builtin", package / "builtin", symlinks=True)
    shutil.copy(ROOT / "platform" / "memsweep" / "trial.py", package)
    for name in ("pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone / name)
    write(
        clone, {"results/a": SECRET, "second results/b.parquet": SECRET, "id_rsa": SECRET, "tests/conftest.py": SECRET}
    )
    shipped = yaml.safe_load((ROOT / "deploy" / "runtime_env.yaml").read_text())
    selection = Selection(clone)
    selection.add_installation(shipped)
    names = set(selection.files)
    assert {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "platform/memsweep/trial.py"} <= names
    assert {name.partition("/")[0] for name in names} <= {path.name for path in clone.iterdir()} - {"tests", "results"}
    assert not [name for name in names if SECRET in (clone / name).read_text("utf-8")]
    (clone / "constraints.txt").unlink()
    with pytest.raises(SubmissionError, match=r"the runtime environment: there is no file .*constraints.txt"):
        Selection(clone).add_installation(shipped)
    engine = packed(Upload(ROOT, {}, engine_files()), tmp_path)["memsweep"]
    assert {"trial.py", "cli/__init__.py", "recurrence/compiled/cpp/kernels.cpp", "report/page/page.js"} <= engine
    assert {"builtin/tasks/classification/digits.py", "builtin/search_spaces/start/quickstart.yaml"} <= engine
    whole = {
        path.relative_to(ENGINE).as_posix()
        for path in ENGINE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".lock"
    }
    assert whole - engine == set()  # no file of the engine is of a kind that stays behind


def test_of_further_modules_their_code_goes_along(workspace: Path, tmp_path: Path) -> None:
    write(tmp_path, {"helpers/helpers/__init__.py": "", "helpers/id_rsa": SECRET, "helpers/.env": SECRET})
    names = packed(Upload(workspace, {}, {}), tmp_path, {"py_modules": [str(tmp_path / "helpers")]})
    assert names["helpers"] == {"helpers/__init__.py"}


def test_the_list_is_shown_before_and_folded_where_it_is_long(workspace: Path) -> None:
    upload = upload_of(workspace, "small")
    first, *rest = upload.lines()
    assert re.fullmatch(
        rf"upload: 1 file \(0\.\d KiB\) of {workspace}, and the engine \(\d+ files, \d\.\d MiB\)", first
    )
    assert rest == ["  search_spaces/small.yaml"]
    write(workspace, {f"tasks/task_{number}.py": "" for number in range(40)})
    many = upload_of(workspace, "small")
    assert many.lines()[1:] == ["  search_spaces/ (1 file)", "  tasks/ (40 files)"]
    item = json.loads(json.dumps(many.item()))
    assert len(item["files"]) == 41
    assert item["bytes"] == os.path.getsize(workspace / "search_spaces" / "small.yaml")
