"""The workflow and the hook that a user copies: their commands run as they are written, and a fault fails them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paths import ROOT

WORKFLOW = ROOT / "docs" / "ci" / "memsweep-audit.yml"
PAGE = ROOT / "docs" / "audit.md"
NETS = """
from torch import nn


class MinGRU(nn.Module):
    def __init__(self, width=4, inputs=1, outputs=1):
        super().__init__()
        self.layer, self.readout = nn.GRU(inputs, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, x):
        return self.readout(self.layer(x)[0])


class Reversed(MinGRU):
    def forward(self, x):
        return self.readout(self.layer(x.flip(1))[0]).flip(1)
"""


def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return found


def hook() -> dict[str, Any]:
    """The hook that the page's example names, as pre-commit joins both: the arguments are the user's."""
    (text,) = re.findall(r"```yaml\n(repos:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (asked,) = yaml.safe_load(text)["repos"][0]["hooks"]
    offered = {each["id"]: each for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}
    return {**offered[asked["id"]], **asked}


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a line as GitHub does, with the programs of this environment."""
    (folder / "my_nets.py").write_text(NETS)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **environment, "PATH": path}
    words = ["bash", "-eo", "pipefail", "-c", command]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_the_page_names_the_files_and_the_hook_names_a_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"(ci/{WORKFLOW.name})" in text
    assert hook()["entry"] == "memsweep audit"
    assert not hook()["pass_filenames"]
    steps = workflow()["jobs"]["audit"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [
        'pip install "${MEMSWEEP:?name in this file what pip installs}"',
        "memsweep audit $AUDIT --page audit.html",
    ]


def test_the_workflow_runs_nothing_by_a_name_that_another_may_take(tmp_path: Path) -> None:
    steps = workflow()["jobs"]["audit"]["steps"]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    (install,) = [step["run"] for step in steps if step.get("run", "").startswith("pip")]
    assert workflow()["env"]["MEMSWEEP"] == ""
    done = run(install, tmp_path, MEMSWEEP="")
    assert done.returncode != 0
    assert "name in this file what pip installs" in done.stderr


@pytest.mark.more
def test_the_workflow_audits_a_module_and_keeps_the_page(tmp_path: Path) -> None:
    steps = workflow()["jobs"]["audit"]["steps"]
    (audit,) = [step["run"] for step in steps if step.get("name") == "Audit"]
    asked = workflow()["env"]["AUDIT"].replace("--horizon 256", "--horizon 32")
    done = run(audit, tmp_path, AUDIT=asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / steps[-1]["with"]["path"]).is_file()


@pytest.mark.more
def test_the_hook_refuses_a_module_that_sees_the_future(tmp_path: Path) -> None:
    words = [str(word).replace(":MinGRU", ":Reversed").replace("256", "32") for word in hook()["args"]]
    done = run(" ".join([hook()["entry"], *words]), tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 fault (causality)" in done.stdout
