"""Claims of a grid study, over all seeds of a cell, and the command that brings the seeds that they lack."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from memsweep.cli import main
from sweeping import BASE

SIDES = "left: {training.steps: 30}, right: {training.steps: 1}, at: {model.width: 2}"
STUDY = f"""{BASE}
grid: {{model.width: [2, 3], training.steps: [1, 30]}}
claims:
  - {{metric: error, direction: less, {SIDES}}}
  - {{metric: error, direction: greater, {SIDES}}}
"""
IDENTITIES = ["left_identity", "right_identity"]


def test_the_printed_command_decides_a_claim_as_a_sweep_of_so_many_seeds_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--inline", "--no-page")

    def run(*words: str) -> str:
        assert main([*words, *options]) == 0
        return capsys.readouterr().out

    def compared(name: str) -> pd.DataFrame:
        return pd.read_csv(tmp_path / "results" / name / "report" / "compared.csv")

    for name in ("grown", "whole"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{STUDY}")
    told = run("sweep", "grown.yaml", "training.seeds=5")
    assert "1 is not supported and 1 is undecided for lack of seeds" in told
    (command,) = re.findall(r"^To decide the claims: memsweep (.*)$", told, re.MULTILINE)
    assert command.endswith("training.seeds=6")
    assert f"decide adds no seeds for them: memsweep {command}" in run("decide", "grown.yaml", "training.seeds=5")
    told = run(*shlex.split(command))
    assert "Of 2 claims, 1 is supported and 1 is contradicted." in told
    assert "To decide the claims" not in told
    run("sweep", "whole.yaml", "training.seeds=6")
    grown, whole = compared("grown"), compared("whole")
    assert grown["left_identity"].str.split().map(len).tolist() == [2, 2]
    pd.testing.assert_frame_equal(grown.drop(columns=IDENTITIES), whole.drop(columns=IDENTITIES))
    assert main(["report", "grown", "whole", "--json"]) == 0
    assert "training.seeds" not in capsys.readouterr().out


def test_an_extension_leaves_a_claim_what_its_measured_cells_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One trial of a new width has a result on one side alone: there, and only there, nothing is measured."""
    monkeypatch.chdir(tmp_path)
    claims = STUDY[STUDY.index("claims:") :].replace(", at: {model.width: 2}", "")
    (tmp_path / "grown.yaml").write_text(f"name: grown\n{BASE}\ngrid: {{training.steps: [1, 30]}}\n{claims}")
    assert main(["sweep", "grown.yaml", "training.seeds=6", "model.width=2", "--inline", "--no-page"]) == 0
    assert "Of 2 claims, 1 is supported and 1 is contradicted." in capsys.readouterr().out
    main(["extend", "grown.yaml", "training.seeds=6", "model.width=2,3", "--max-trials", "1", "--inline"])
    told = " ".join(capsys.readouterr().out.split())
    said = "Of 2 claims, 1 is supported where measured and 1 is contradicted."
    assert f"{said} Of 2 of these, cells are not measured: width=3." in told
    assert main(["report", "grown", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)["report"]["claims"]
    table = pd.read_csv(tmp_path / "results" / "grown" / "report" / "compared.csv")
    for verdicts in ([claim["verdict"] for claim in claims], table["verdict"].tolist()):
        assert verdicts == ["supported where measured"] * 2 + ["contradicted"] * 2
    conclusions = ("✓ supported at width=2", "✗ contradicted at width=2", "– not measured at width=3")
    page = (tmp_path / "results" / "grown" / "report" / "index.html").read_text()
    assert "if none of the claims held where it was measured, the chance that any one is called supported" in page
    for shown in (told, page):
        assert [shown.count(text) > 0 for text in conclusions] == [True, True, True]
        assert "– not measured<" not in shown
        assert "– not measured error" not in shown
