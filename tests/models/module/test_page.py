"""docs/your_model.md: its file, its study and its commands, in the folder of a stranger."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from memsweep.cli import main
from paths import ROOT

PAGE = (ROOT / "docs" / "your_model.md").read_text(encoding="utf-8")
ROWS = "[{task: {horizon: 6}, model: {width: 3}}, {task: {horizon: 8}, model: {width: 3}}]"
SHORT = ["training.steps=4", "training.validate_every=4", "training.seeds=2", f"grid.rows={ROWS}"]


def block(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.more
def test_every_line_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The study runs shorter than it is written; as written it is planned."""
    (code, *_), (study, *_) = block("python"), block("yaml")  # others are of a layer
    (tmp_path / "my_nets.py").write_text(code)
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "mine.yaml").write_text(study)
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    commands = [line for text in block("bash") for line in text.splitlines()]
    assert [command.split()[1] for command in commands] == ["describe", "plan", "sweep", "report"]
    shown = {}
    for command in commands:
        _, verb, *words = shlex.split(command)
        words += {"plan": ["--no-probe"], "sweep": [*SHORT, "--inline"]}.get(verb, [])
        assert main([verb, *words]) == 0, command
        shown[verb] = capsys.readouterr().out
    assert re.search(r"gate.weight +8 x 2 +recurrent +guessed: name of a gate", shown["describe"])
    assert "study mine: 7 trials" in shown["plan"]
    assert "trained on: task loss, adamw, cosine rate, no clip" in shown["plan"]
    assert "note: my_nets:MinGRU: seeds, and perturbed copies in a search, are computed together" in shown["plan"]
    assert "2/2 done" in shown["sweep"]
    assert "Trained on: task loss, adamw, cosine rate, no clip." in shown["report"]
    throughout = " ".join(re.findall(r"Throughout: [^.]*\.", shown["report"])[0].split())
    assert throughout.endswith("weight_power 2, factory my_nets:MinGRU.")  # and no field that is as it is by default
    (tmp_path / "my_nets.py").write_text(code.replace("1 - z[:, t]", "1.0 - z[:, t]"))
    main(["plan", "mine", *SHORT, "--no-probe"])
    assert "2 computed by other code" in capsys.readouterr().out


def test_every_field_of_the_table_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "module", "--workspace", str(ROOT)]) == 0
    text = capsys.readouterr().out
    for field in re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE):
        assert re.search(rf"^  {field}\b", text, re.MULTILINE), field
