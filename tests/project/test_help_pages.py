"""docs/help: the pages' commands run one after the other in an empty folder, and what the pages say of them is so."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from memsweep.cli import main
from memsweep.config.load.study import study_of
from memsweep.config.load.study_files import names
from memsweep.errors import Exit
from paths import ROOT

PAGES = {path.stem: path.read_text("utf-8") for path in sorted((ROOT / "docs" / "help").glob("*.md"))}
SMALL = [
    *("training.seeds=2", "training.steps=60", "task.horizon=8"),
    *("perturbation.radii.count=4", "perturbation.starts=0", "perturbation.ascent_steps=1"),
]


def column(page: str, number: int) -> list[str]:
    """The cells of a column of all tables of a page, without headings."""
    rows = re.findall(r"^\| (?!-)(.*) \|$", PAGES[page], re.MULTILINE)
    return [re.split(r"(?<!\\) \| ", row)[number] for row in rows]


def test_every_study_to_start_from_is_there() -> None:
    named = [name for cell in column("choose", 1) for name in re.findall(r"`([a-z_]+)`", cell)]
    assert len(named) >= 17
    assert set(named) <= set(names(ROOT))


def test_the_exit_codes_of_a_program_are_all_there() -> None:
    told = [int(cell) for cell in column("agents", 0) if cell.isdigit()]
    assert told == [code for code in Exit if code != Exit.UNREAD]  # its reader is gone


def test_what_a_reason_is_quoted_as_is_what_it_says() -> None:
    source = "".join((ROOT / "platform/memsweep/stability/verdict/reasons.py").read_text("utf-8").split())
    for quoted in ("lies between", "the seeds do not differ, which is no evidence", "horizon-limited"):
        assert quoted in PAGES["inconclusive"]
        assert quoted.replace(" ", "") in source


def test_a_claim_of_a_study_without_a_search_is_in_order() -> None:
    (claims,) = re.findall(r"```yaml\n(.*?)```", PAGES["agents"], re.DOTALL)
    study = {"name": "mine", "task": "linear_functional", "model": "diagonal_rnn", **yaml.safe_load(claims)}
    study["grid"] = {"model.parameterization": ["exp", "direct"]}
    loaded = study_of(study, [], ROOT, "")
    assert loaded.claims
    assert loaded.search is None


@pytest.mark.more
def test_every_command_says_what_its_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown: dict[str, str] = {}
    for page in PAGES.values():
        for line in "".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL)).splitlines():
            verb, *arguments = shlex.split(line)[1:]
            if "my_nets:" in line:  # of the reader; docs/audit.md has it, and a test that runs it
                continue
            arguments += [*SMALL, "--no-page"] if verb == "sweep" else ["--no-probe"] if verb == "plan" else []
            assert main([verb, *arguments]) == 0, line
            shown[line] = capsys.readouterr().out
    said = {line.partition("memsweep ")[2]: text for line, text in shown.items()}
    headline = " ".join(said["report short"].split())
    for lacking in (
        "2 seeds: a verdict needs 5",
        "1 horizon: a slope in the horizon needs 4",
        "2 widths: stable needs 4",
    ):
        assert f"`{lacking}`" in PAGES["inconclusive"]
        assert lacking in headline
    assert "recurrent" in said["decide short --plan"]
    assert re.search(r"1 diverged +At least one replica's loss became infinite or NaN", said["status hot"])
    assert "0.01" in said["report hot --table ceilings"]
    assert json.loads(said["status first --json"])["complete"] is True
    assert json.loads(said["status first --json"])["running"] is None
    found = json.loads(said["report first --json"])["report"]
    assert found["answers"]
    assert {"slope_horizon_low", "reasons", "rule_version"} <= found["verdicts"][0].keys()
    assert json.loads(said["report first second --json"])["comparison"]
