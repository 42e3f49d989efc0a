"""docs/tutorial.md: its study, its commands and its code, in an empty folder; verdicts and slopes as printed there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from memsweep.cli import main
from paths import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.more
def test_every_step_of_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tables, names = list[str](), dict[str, Any]()
    for language, text in BLOCKS:
        if language == "yaml":
            (tmp_path / "memory.yaml").write_text(text, encoding="utf-8")
        elif language == "bash":
            assert main(shlex.split(text)[1:]) == 0
            tables.append(capsys.readouterr().out)
        elif language == "python":
            exec(compile(text, "docs/tutorial.md", "exec"), names)
    further = [shlex.split(words)[1:] for words in re.findall(r"`(memsweep sweep [^`]*)`", PAGE)]
    assert len(further) == 2
    study = (tmp_path / "memory.yaml").read_text(encoding="utf-8")
    (tmp_path / "memory.yaml").write_text(study.replace("[12, 24, 48]", "[12, 24, 48, 96, 192]"), encoding="utf-8")
    for words in further:
        assert main([*words, "training.steps=50"] if "task.kernel=exponential" in words else words) == 0
    assert "▲ unstable" in capsys.readouterr().out.rsplit("When all weights move", 1)[1].split("exp", 1)[1]
    assert (tmp_path / "results" / "memory" / "report" / "index.html").is_file()
    swept, extended = tables[1], tables[2]
    assert swept.count("◇ inconclusive  not available") == 2
    headline, decide = re.search(r"```text\n(For T = .*?)\n(To decide: .*?)\n```", PAGE, re.DOTALL).groups()  # type: ignore[union-attr]
    assert " ".join(headline.split()) in " ".join(swept.split())
    assert decide in swept
    assert re.search(r"direct  ▲ unstable  −0\.6[4-8]", extended)
    assert re.search(r"exp     ● stable    [−+]?0\.0[0-3]", extended)
    median = names["radii"].groupby(["model.parameterization", "horizon"])["radius"].median()
    assert median["direct", 12] > 3 * median["direct", 192]
    assert median["exp", 192] > 20 * median["direct", 192]
