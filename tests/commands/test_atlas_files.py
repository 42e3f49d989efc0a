"""``memsweep atlas --export`` and ``--add``: a row goes to another folder, and is checked by identity there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memsweep import registry
from memsweep.cli import main
from memsweep.commands.atlas.row_file import KIND, SCHEMA
from memsweep.sweep.store.layout import ATLAS_ROWS
from paths import ROOT

LAYER = "own_mixer:Mixer"
MIXER = ROOT / "tests/support/nets/mixer.py"
CHANGED = ["training.steps=2", "training.seeds=1", "confirm.seeds=2", "search.trials=1", "search.batch=1"]
CHANGED += ["grid.task=[{name: parity, horizon: 4}]", "search.training.learning_rate={choice: [0.01]}"]

Json = dict[str, Any]
pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Json]:
    """The folder of a layer's author after a small run, and what the command printed."""
    folder = tmp_path_factory.mktemp("author")
    shutil.copyfile(MIXER, folder / "own_mixer.py")
    words = ["atlas", "--export", "row.json", LAYER, *CHANGED, "--inline", "--no-page", "--json"]
    told = subprocess.run(
        [sys.executable, "-m", "memsweep", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=300
    )
    return folder, json.loads(told.stdout)


@pytest.fixture
def reader(
    author: tuple[Path, Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, Json]]]:
    """An empty folder of somebody else, with the file; the function adds rows there."""
    shutil.copyfile(author[0] / "row.json", tmp_path / "row.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of somebody who trusts nothing yet
    monkeypatch.delitem(sys.modules, "own_mixer", raising=False)  # of another test
    before = list(sys.path), registry.folders()
    sys.path[:] = [place for place in sys.path if not (Path(place) / "own_mixer.py").exists()]

    def add(*words: str) -> tuple[int, Json]:
        code = main(["atlas", *(["--add"] if words else []), *words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    yield add
    sys.path[:], registry._folders[:] = before
    registry.discover(ROOT)


def changed_file(change: Callable[[Json], Any]) -> str:
    content = json.loads(Path("row.json").read_text())
    change(content)
    Path("other.json").write_text(json.dumps(content))
    return "other.json"


def added(document: Json) -> dict[str, Json]:
    return {item["task"]: item for item in document["atlas"] if item["file"]}


def test_the_row_of_a_run_and_its_file(author: tuple[Path, Json]) -> None:
    folder, document = author
    own = {item["task"]: item for item in document["atlas"] if item["own"]}
    assert own["parity"]["unit"] == LAYER
    assert own["parity"]["seeds"] == 2
    assert 0 <= own["parity"]["low"] <= own["parity"]["accuracy"] <= 1
    assert own["mqar"]["accuracy"] is None
    assert own["mqar"]["seeds"] == 0
    assert document["changed"] == own["parity"]["changed"] == CHANGED
    assert len(document["atlas"]) == 13 * 9
    assert document["exported"] == "row.json"
    file = json.loads((folder / "row.json").read_text())
    assert (file["kind"], file["schema"], file["layer"]) == (KIND, SCHEMA, LAYER)
    assert file["cells"]["parity"] == {name: own["parity"][name] for name in ("accuracy", "low", "high", "seeds")}
    (trial,) = file["trials"]
    record = json.loads(next((folder / "results").glob(f"*/records/{trial['identity']}.json")).read_text())
    assert trial["config"] == record["config"]
    assert trial["identity_of"] == record["provenance"]["identity_of"]
    assert str(folder) not in (folder / "row.json").read_text()


SAID = {"standing": "", "changed": []}
"""The keys in which the row of a run and that of its file differ."""


def test_a_row_is_checked_where_its_code_is(author: tuple[Path, Json], reader: Callable[..., tuple[int, Json]]) -> None:
    """Not without a word for the code, which is somebody else's; and not with another code."""
    code, document = reader("row.json")
    row = added(document)["parity"]
    assert (code, row["checked"]) == (0, False)
    assert "its code is not here" in row["standing"]
    assert document["trials"] == 0

    shutil.copyfile(MIXER, "own_mixer.py")
    with Path("own_mixer.py").open("a") as file:
        file.write("Path = __import__('pathlib').Path('RAN').touch()\n")
    row = added(reader("row.json")[1])["parity"]
    assert not row["checked"]
    assert "--trust" in row["standing"]
    assert not Path("RAN").exists()
    row = added(reader("row.json", "--trust")[1])["parity"]
    assert not row["checked"]
    assert "another one than that which was trained" in row["standing"]
    assert Path("RAN").exists()

    shutil.copyfile(MIXER, "own_mixer.py")
    code, document = reader("row.json", "--trust")
    rows = added(document)
    assert (code, rows["parity"]["checked"]) == (0, True)
    own = {item["task"]: item for item in author[1]["atlas"] if item["own"]}
    for task in ("parity", "parity, 4T"):
        assert {**rows[task], "own": True, "file": None} | SAID == {**own[task]} | SAID
    assert {*CHANGED, "task.horizon=4"} == {*rows["parity"]["changed"]}


def reidentified(content: Json) -> None:
    """A file of a person who knows how identities are made, with another code."""
    from memsweep.config.schema.canonical import trial_from_dict
    from memsweep.sweep.planning.identity import identity_from

    (trial,) = content["trials"]
    trial["identity_of"]["code"] = "0" * 16
    config = trial_from_dict(trial["config"])
    trial["identity"] = identity_from(config, trial["identity_of"], trial["training_code"])


def test_code_of_another_version_is_said(reader: Callable[..., tuple[int, Json]]) -> None:
    shutil.copyfile(MIXER, "own_mixer.py")
    row = added(reader(changed_file(reidentified), "--trust")[1])["parity"]
    assert not row["checked"]
    assert "the code of another version of memsweep" in row["standing"]


def later(content: Json) -> None:
    content["trials"][0]["config"]["training"]["of_a_later_version"] = 1


def test_settings_of_another_version_are_said(reader: Callable[..., tuple[int, Json]]) -> None:
    row = added(reader(changed_file(later))[1])["parity"]
    assert not row["checked"]
    assert "another version of memsweep" in row["standing"]


FAULTS: dict[str, tuple[Callable[[Json], Any], str]] = {
    "configuration": (
        lambda c: c["trials"][0]["config"]["training"].update(steps=1200),
        "does not follow from its conf",
    ),
    "code": (
        lambda c: c["trials"][0].update(training_code="0" * 16),
        "does not follow from its configuration and code",
    ),
    "versions": (lambda c: c["trials"][0]["identity_of"]["versions"].update(torch="1.0"), "does not follow"),
    "figures": (lambda c: c["cells"]["parity"].update(accuracy=1.0), "figures do not follow from the values"),
    "values": (lambda c: c["trials"][0]["values"].update(accuracy=[1.0]), "1 values for 2 seeds"),
    "more than all": (lambda c: c["trials"][0]["values"].update(accuracy=[1.5, 1.0]), "a value outside of 0 to 1"),
    "a column too many": (lambda c: c["cells"].update(mqar=c["cells"]["parity"]), "figures do not follow"),
    "task": (
        lambda c: c["trials"][0]["config"]["task"].update(name="adding"),
        "its task is 'adding', and the atlas has",
    ),
    "another layer": (lambda c: c.update(layer="my_nets:Best"), "call nothing else; it calls own_mixer:Mixer"),
    "twice": (lambda c: c["trials"].append(c["trials"][0]), "a trial twice"),
    "no trials": (lambda c: c["trials"].clear(), "no trials"),
    "form": (lambda c: c.update(schema=SCHEMA + 1), "written by a newer version of memsweep"),
    "kind": (lambda c: c.pop("kind"), "no row of the atlas"),
    "key": (lambda c: c.pop("cells"), "malformed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_was_changed_is_refused(reader: Callable[..., tuple[int, Json]], name: str) -> None:
    change, told = FAULTS[name]
    code, document = reader(changed_file(change))
    assert code == 2
    assert any(told in problem for problem in document["error"]["problems"])


def test_all_files_are_refused_at_once(reader: Callable[..., tuple[int, Json]]) -> None:
    Path("text.json").write_text("no JSON")
    code, document = reader("row.json", "text.json", "absent.json", changed_file(FAULTS["figures"][0]))
    assert code == 2
    assert [problem.partition(":")[0] for problem in document["error"]["problems"]] == [
        "text.json",
        "absent.json",
        "other.json",
    ]


def test_added_rows_stay_until_their_files_are_deleted(reader: Callable[..., tuple[int, Json]]) -> None:
    given = added(reader("row.json")[1])
    code, document = reader()
    kept = added(document)
    file = Path(kept["parity"]["file"])
    assert code == 0
    assert file.read_bytes() == Path("row.json").read_bytes()
    assert file.parent == Path(ATLAS_ROWS).absolute().parent / "results" / ATLAS_ROWS
    assert {task: row | {"file": ""} for task, row in kept.items()} == {
        task: row | {"file": ""} for task, row in given.items()
    }
    both = reader("row.json")[1]
    assert {item["file"] for item in both["atlas"]} == {None, "row.json"}  # once, though it was given and kept
    assert len([*file.parent.glob("*.json")]) == 1

    file.unlink()
    code, document = reader()
    assert (code, document["error"]["problems"][0][:17]) == (2, "there is no LAYER")


def test_no_row_is_kept_of_files_of_which_one_is_refused(reader: Callable[..., tuple[int, Json]]) -> None:
    assert reader("row.json", changed_file(FAULTS["figures"][0]))[0] == 2
    assert not Path("results").exists()


def test_a_word_for_added_code_is_not_for_that_of_kept_rows(reader: Callable[..., tuple[int, Json]]) -> None:
    reader("row.json")
    shutil.copyfile(MIXER, "own_mixer.py")
    with Path("own_mixer.py").open("a") as file:
        file.write("Path = __import__('pathlib').Path('RAN').touch()\n")
    assert main(["atlas", "--trust"]) == 0
    assert not Path("RAN").exists()


def test_a_kept_file_that_is_no_row_any_more_is_in_nobodys_way(
    reader: Callable[..., tuple[int, Json]], capsys: pytest.CaptureFixture[str]
) -> None:
    reader("row.json")
    (file,) = (Path("results") / ATLAS_ROWS).glob("*.json")
    file.write_text("no JSON")
    assert main(["atlas", "--add", "row.json"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "The row is left out: add it again, or delete the file." in told
    assert file.read_bytes() == Path("row.json").read_bytes()  # it was added again


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "there is no LAYER"),
        (["confirm.seeds=2"], "changes a setting"),
        (["--add", "row.json", "--export", "x.json"], "--export writes the row of a layer"),
        ([LAYER, "--export", "no/such/folder/x.json"], "cannot be written"),
    ],
)
def test_a_command_line_that_means_nothing(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["atlas", *words, "--json"]) == 2
    assert told in json.loads(capsys.readouterr().out)["error"]["message"]
