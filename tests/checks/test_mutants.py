"""Mutants of layers: faults that are put in are found, what changes nothing is equivalent."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.layers.known import WIDTH, Layer, layers
from benchmarks.mutants.__main__ import END, HELD_OUT, LAYERS, MUTANTS, START, write
from benchmarks.mutants.mutations import MUTATIONS, Between, Changed, equivalent
from memsweep.checks.part import checks
from memsweep.checks.subject import Subject
from memsweep.models.training_mode import seeded
from paths import ROOT


@pytest.fixture(scope="module")
def gru() -> Layer:
    (found,), _ = layers(["torch:GRU"])
    return found


def test_a_mutant_that_changes_nothing_is_equivalent(gru: Layer) -> None:
    base = Between(gru.build())
    assert equivalent("leak", base, Changed(copy.deepcopy(base), "layer", lambda y: y + 0))
    assert equivalent("detach", base, Changed(copy.deepcopy(base), "layer", lambda y: y.clone()))
    assert not equivalent("leak", base, Changed(copy.deepcopy(base), "layer", lambda y: y.roll(-1, 1)))
    assert not equivalent("detach", base, Changed(copy.deepcopy(base), "layer", torch.Tensor.detach))


@pytest.mark.parametrize("kind", ["reseed", "tie", "clamp"])
def test_a_mutant_is_found_by_the_check_of_its_kind(gru: Layer, kind: str) -> None:
    mutation, found = MUTATIONS[kind], []
    (check,) = [each for each in checks() if each.name == mutation.checks[0]]
    for put in (False, True):

        def build(put: bool = put) -> torch.nn.Module:
            with seeded(0):
                made = (
                    mutation.put(Between(gru.build()), np.random.default_rng(3))
                    if put
                    else (mutation.base(Between(gru.build())), "")
                )
            assert made is not None
            return made[0]

        found.append(check.look(Subject(build, WIDTH, 300), 3600.0))
    assert found[0].status.value == "pass"
    assert found[1].status.value in ("note", "fault"), found[1].sentence


def test_the_page_is_that_of_thirty_stored_layers_ten_of_them_held_out(tmp_path: Path) -> None:
    page = tmp_path / "layers.md"
    text = (ROOT / "docs" / "evidence" / "layers.md").read_text(encoding="utf-8")
    head, tail = text.split(START)[0], text.split(END)[1]
    page.write_text(f"{head}{START}\nanother table\n{END}{tail}", encoding="utf-8")
    write(MUTANTS, 11, page)
    assert page.read_text(encoding="utf-8") == text
    rows = [json.loads(line) for line in MUTANTS.read_text(encoding="utf-8").splitlines()]
    drawn = {row["layer"]: row["held_out"] for row in rows}
    assert (len(drawn), sum(drawn.values())) == (LAYERS, HELD_OUT)
    assert {row["kind"] for row in rows} == {*MUTATIONS}
    for kind in MUTATIONS:
        found = [row["found"] for row in rows if row["kind"] == kind and row["found"] in ("found", "missed")]
        assert found.count("found") >= 0.95 * len(found)
