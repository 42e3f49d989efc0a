"""``--json``: one document on standard output, by the schema that memsweep gives for it, whatever happens."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft7Validator, ValidationError
from safetensors.torch import load_file

from memsweep.cli import main
from memsweep.cli.usage import COMMANDS
from memsweep.documents import to_json
from memsweep.documents.keys import DOCUMENTS
from memsweep.documents.schema import document_schema
from paths import ROOT
from sweeping import BASE, ready


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0, folder: Path = ROOT) -> dict[str, Any]:
    """The document of a command line; it fits the schema of the verb, and nothing else is on standard output."""
    capsys.readouterr()
    try:
        ended = main([*words, "--json", "--workspace", str(folder)])
    except SystemExit as error:
        ended = int(str(error.code))
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    schema = document_schema(words[0])
    Draft7Validator.check_schema(schema)
    Draft7Validator(schema).validate(document)
    assert (ended, document["exit_code"], document["verb"]) == (code, code, words[0])
    return document


def test_lists_and_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    rooms = {item["name"]: item["room"] for item in told(capsys, "list", "studies")["items"]}
    assert (rooms["quickstart"], rooms["table3"]) == ("start", "cluster")
    assert {item["room"] for item in told(capsys, "list", "rules")["items"]} == {None}
    (training,) = told(capsys, "describe", "training")["described"]
    fields = {field["path"]: field for field in training["fields"]}
    assert (fields["learning_rate"]["default"], fields["learning_rate"]["limits"]) == (
        0.01,
        {"above": 0, "at_most": 1e4},
    )
    assert fields["rule"]["choices"][0] == "bptt"
    (mine,) = told(capsys, "describe", f"{ROOT}/tests/support/nets/min_gru.py:MinGRU", "arguments.layers=2")[
        "described"
    ]
    assert {"name", "shape", "role", "reason", "guessed", "frozen", "growth"} == set(mine["tensors"][0])


STUDY = f"""# Eight small trials.
{BASE}
grid: {{model.parameterization: [exp, direct], model.width: [2, 3], task.horizon: [8, 10]}}
claims:
  - {{metric: radius, direction: greater, left: {{model.parameterization: exp}},
     right: {{model.parameterization: direct}}, at: {{model.width: 2}}}}
"""


@pytest.mark.more
def test_every_verb_of_a_study_answers_with_a_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real study from its plan to its weights; the figures of the documents are those of the files, unrounded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(STUDY)
    ready(tmp_path / "results")

    planned = told(capsys, "plan", "small.yaml", "--no-probe")
    identities = [trial["identity"] for trial in planned["trials"]]
    assert planned["not_reused"] == {"never computed": len(identities)} == {"never computed": 8}
    assert planned["trials"][0]["fields"] == {"task.horizon": 8, "model.width": 2, "model.parameterization": "exp"}
    assert sum(pack["share"] for pack in planned["packs"]) == pytest.approx(1)
    assert planned["expected"]["seconds"] > 0

    swept = told(capsys, "sweep", "small.yaml", "--inline", "--max-trials", "3", code=3)
    assert 3 <= len(swept["finished"]) < 8 == swept["trials"]
    assert swept["stopped"].startswith("stopped at a limit")
    half = told(capsys, "status", "small")
    assert (half["states"]["done"], half["left"], half["complete"]) == (half["done"], 8 - half["done"], False)
    resumed = told(capsys, "resume", "small", "--inline")
    assert {*swept["finished"], *resumed["finished"]} == {*identities}
    assert resumed["reused"] == len(swept["finished"])

    report = told(capsys, "report", "small")["report"]
    table = pd.read_csv(Path(report["folder"]) / "verdicts.csv")
    for key in ("threshold", "found_share"):  # JSON has no nan
        assert [row[key] for row in report["verdicts"]] == [None if math.isnan(x) else x for x in table[key]]
    assert report["verdicts"][0]["threshold"] > 0
    assert [row["condition"]["model.parameterization"] for row in report["verdicts"]] == ["exp", "direct"]
    assert report["verdicts"][0]["slope_horizon"] is None
    tested = pd.read_csv(Path(report["folder"]) / "compared.csv")
    assert [(row["left_identity"], row["effect"]) for row in report["claims"]] == [
        *zip(tested["left_identity"], tested["effect"], strict=True)
    ]
    assert report["claims"][0]["left_identity"] in identities
    assert {"slopes"} <= set(report["tables"])

    assert {trial["state"] for trial in told(capsys, "plan", "small.yaml", "--no-probe")["trials"]} == {"done"}
    assert told(capsys, "extend", "small.yaml", "training.seeds=3", "--inline")["trials"] == 16
    assert told(capsys, "retry", "small", "--inline")["finished"] == {}
    assert told(capsys, "sync", "small")["complete"]
    listed = told(capsys, "weights", "small")["trials"]
    assert {trial["identity"] for trial in listed} >= {*identities}
    written = told(capsys, "weights", "small", identities[0], "--seed", "1", "out.safetensors")["written"]
    tensors = load_file("out.safetensors")
    assert {each["name"]: each["shape"] for each in written["tensors"]} == {
        name: [*value.shape] for name, value in tensors.items()
    }
    wider = told(capsys, "measure", "small", "perturbation.radii.to=2", "model.width=2", code=2)["error"]
    assert "model.width" in wider["problems"][0]
    again = told(capsys, "measure", "small", "perturbation.radii.to=2", "--inline")
    assert (again["left"], again["failed"], len(again["finished"])) == (0, [], 16)
    away = told(capsys, "submit", "small.yaml", "--address", "http://127.0.0.1:9", code=2)["error"]
    assert away["message"]


def test_errors_are_documents_too(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = told(capsys, "describe", "trainin", code=2)["error"]
    assert (wrong["kind"], wrong["source"], len(wrong["problems"])) == ("ConfigError", "the command line", 1)
    assert "Did you mean 'training'?" in wrong["problems"][0]
    assert (
        "unrecognized arguments: --nonsense" in told(capsys, "list", "tasks", "--nonsense", code=2)["error"]["message"]
    )


def test_numbers_are_whole_and_json_can_hold_them() -> None:
    values = {"a": math.nan, "b": [math.inf, -np.float64(math.inf)], "c": np.float64(1 / 3), "d": np.int64(2), 3: {"e"}}
    document = json.loads(to_json("list", 0, values))
    assert {key: document[key] for key in ("a", "b", "c", "d", "3")} == {
        "a": None,
        "b": ["inf", "-inf"],
        "c": 1 / 3,
        "d": 2,
        "3": ["e"],
    }
    to_json("list", 0, {"a": "half a pair \ud800"}).encode("ascii")


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_a_document_with_a_strange_or_a_missing_key_is_refused(verb: str) -> None:
    check = Draft7Validator(document_schema(verb))
    whole = json.loads(to_json(verb, 2, {"error": {"kind": "", "message": "", "source": "", "problems": []}}))
    check.validate(whole)
    for wrong in ({**whole, "more": 1}, {key: value for key, value in whole.items() if key != "error"}):
        with pytest.raises(ValidationError):
            check.validate(wrong)


def rows(schema: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Iterator[str]:
    """The keys of a document as rows of the page: those of lists as ``trials[].identity``."""
    for key, value in schema["properties"].items():
        here, parts = f"{path}{key}", [value, *value.get("allOf", []), *value.get("anyOf", [])]
        if path or key not in ("format", "memsweep", "verb", "exit_code"):
            part_of = definitions.get(value.get("$ref", "").rpartition("/")[2], {})
            yield f"| `{here}` | {value.get('description') or part_of.get('description', '')} |"
        for part in parts:
            below = f"{here}." if part.get("type") != "array" else f"{here}[]."
            inner = part.get("items", part.get("additionalProperties") or part)
            inner = inner.get("items", inner) if isinstance(inner, dict) else {}
            if (name := inner.get("$ref", "").rpartition("/")[2]) not in ("", "number"):
                yield from rows(definitions[name], definitions, below)


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_the_page_names_every_key(verb: str) -> None:
    page = (ROOT / "docs" / "json_keys.md").read_text(encoding="utf-8")
    schema = document_schema(verb)
    missing = [row for row in rows(schema["anyOf"][0], schema["definitions"]) if row not in page]
    assert not missing, "docs/json_keys.md lacks rows:\n" + "\n".join(missing)


def test_every_command_has_a_document() -> None:
    """A command that prints for a person prints for a program; what is JSON already needs no flag for it."""
    assert set(COMMANDS) - {"schema"} == set(DOCUMENTS)
