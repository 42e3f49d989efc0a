"""docs/gallery.md is what its command writes, in the words of the pages that it links."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from benchmarks.published import gallery
from memsweep.config.load.study_files import names
from memsweep.errors import MemsweepError
from paths import ROOT

TOLD = yaml.safe_load(gallery.TOLD.read_text("utf-8"))
STORED = ROOT / "tests" / "sweep" / "store" / "written_by" / "8b96c54" / "grid"


def plain(text: str) -> str:
    return " ".join(text.replace("*", "").split())


@pytest.mark.more  # reads every study: seconds
def test_the_page_is_what_the_command_writes() -> None:
    assert gallery.PAGE.read_text("utf-8") == gallery.page()


@pytest.mark.parametrize("study", [name for name, entry in TOLD.items() if "page" in entry])
def test_a_sentence_stands_on_the_page_that_it_links(study: str) -> None:
    name, _, anchor = TOLD[study]["page"].partition("#")
    text = (ROOT / "docs" / name).read_text("utf-8")
    if anchor:
        sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
        found = {re.sub(r"[^\w -]", "", each.splitlines()[0][3:].lower()).replace(" ", "-"): each for each in sections}
        text = found[anchor]
    assert plain(TOLD[study]["found"]) in plain(text)
    assert study in text
    assert "picture" not in TOLD[study] or (gallery.PICTURES / TOLD[study]["picture"]).is_file()


def test_every_study_that_was_run_links_its_result() -> None:
    """In the catalogue, whose first column has every study; what came out of it has a section of its own."""
    rows = re.findall(r"^\| (.+?) \| ", (ROOT / "docs" / "catalogue.md").read_text("utf-8"), re.MULTILINE)
    linked = dict(link for row in rows for link in re.findall(r"\[`(\w+)`\]\(([\w./#-]+)\)", row))
    assert {name: linked.get(name) for name in TOLD} == {name: f"gallery.md#{name}" for name in TOLD}
    heads = re.findall(r"^## (.*?):", (ROOT / "docs" / "evidence" / "studies.md").read_text("utf-8"), re.MULTILINE)
    sections = {name for head in heads for name in head.split(", ") if name in names(ROOT)}
    assert sections
    assert sections <= {*linked}


def test_a_stored_study_is_added_with_its_headline_and_an_unfinished_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "gallery.yaml"
    told.write_text("# of what\n\nquickstart: {found: before, page: findings.md}\n", encoding="utf-8")
    monkeypatch.setattr(gallery, "TOLD", told)
    monkeypatch.setattr(gallery, "PICTURES", tmp_path)
    study = tmp_path / "quickstart"
    shutil.copytree(STORED, study)
    (study / "report" / "figures").mkdir(parents=True)
    shutil.copyfile(ROOT / "docs" / "pictures" / "scale.png", study / "report" / "figures" / "radius.png")
    with pytest.raises(MemsweepError, match="has 4 trials, and the study's file 120"):
        gallery.add(study)
    assert yaml.safe_load(told.read_text("utf-8"))["quickstart"]["found"] == "before"
    words = ["task.kernel=polynomial", "task.horizon=8", "model.width=2,3", "model.parameterization=direct,exp"]
    of_file = gallery.load_study
    monkeypatch.setattr(gallery, "load_study", lambda name, _, root: of_file(name, words, root))
    gallery.add(study)
    page = gallery.page()
    assert "4 trials of 5 seeds" in page
    assert "polynomial memory is undecided" in page
    assert "![figure of quickstart](pictures/quickstart.png)" in page
    assert "The headline of its report." in page
    assert told.read_text("utf-8").startswith("# of what\n")
    next((study / "records").glob("*.json")).unlink()
    with pytest.raises(MemsweepError, match="have no result"):
        gallery.add(study)
