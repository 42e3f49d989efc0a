"""A command that ends in the middle of a round says of no question of its trials that it is decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.studies.decide.reading import Subject
from memsweep.sweep.store.layout import record_file
from sweeping import BASE

STUDY = f"""# Two conditions.
{BASE}
grid: {{model.parameterization: [exp, direct], model.width: [2, 3], task.horizon: [8, 10]}}
"""


def test_what_has_trials_left_is_open_whatever_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(STUDY)
    assert main(["sweep", "small.yaml", "--inline", "--no-page"]) == 0
    monkeypatch.setattr(Subject, "is_open", property(lambda subject: False))  # of so small ones no verdict is known
    assert stand(capsys) == {"exp": "decided", "direct": "decided"}
    plan = json.loads((tmp_path / "results/small/plan.json").read_text())
    last = next(row for row in plan["trials"] if "direct" in str(row["config"]["model"]))
    (tmp_path / "results/small" / record_file(last["identity"])).unlink()
    assert stand(capsys) == {"exp": "decided", "direct": "open"}


def stand(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """How the questions stand, by their parameterization."""
    capsys.readouterr()
    assert main(["decide", "small.yaml", "--plan", "--json"]) == 0
    decisions = json.loads(capsys.readouterr().out)["decisions"]
    return {"direct" if "direct" in one["name"] else "exp": one["state"] for one in decisions}
