"""``--json``: one document on standard output, by the schema that memsweep gives for it, whatever happens."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft7Validator, ValidationError

from memsweep.cli import main
from memsweep.documents import to_json
from memsweep.documents.keys import DOCUMENTS
from memsweep.documents.schema import document_schema
from paths import ROOT


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    """The document of a command line; it fits the schema of the verb, and nothing else is on standard output."""
    capsys.readouterr()
    try:
        ended = main([*words, "--json", "--workspace", str(ROOT)])
    except SystemExit as error:
        ended = int(str(error.code))
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    schema = document_schema(words[0])
    Draft7Validator.check_schema(schema)
    Draft7Validator(schema).validate(document)
    assert (ended, document["exit_code"], document["verb"]) == (code, code, words[0])
    assert ("error" in document) == (code == 2)
    return document


def test_lists_and_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    names = [item["name"] for item in told(capsys, "list", "studies")["items"]]
    assert "quickstart" in names
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
    assert {"name", "shape", "role", "reason", "guessed"} == set(mine["tensors"][0])


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
