"""Why rows are not reused: exactly what is different, from what the records say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import trial
from memsweep.commands import console
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.studies.preview import preview
from memsweep.studies.reasons import Reason, Why, by_reason, examples, reasons
from memsweep.sweep.planning.fingerprint import kernels_of
from memsweep.sweep.planning.identity import identity, identity_of
from memsweep.sweep.planning.plan import PlannedTrial, identified
from memsweep.sweep.planning.reuse import find_reusable, interpolated
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import State, TrialStatus
from memsweep.sweep.store.record import sealed
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.unwritable import fallback_folder
from memsweep.sweep.worker import provenance
from memsweep.sweep.worker.execute import PackJob, execute_pack
from paths import ROOT


def rows_of(*widths: int, **training: Any) -> list[TrialConfig]:
    return [trial(model={"width": width}, training={"seeds": 1, "steps": 10} | training) for width in widths]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder whose study ``old`` holds the widths 2 and 3, as a worker writes them."""
    folder = tmp_path_factory.mktemp("results")
    members = tuple((identity(config), to_dict(config)) for config in rows_of(2, 3))
    job = PackJob("p", "old", str(folder / "old"), str(ROOT), members)
    assert len(execute_pack(job, lambda *_: None).finished) == 2
    return folder


@pytest.fixture
def results(computed: Path, tmp_path: Path) -> Path:
    shutil.copytree(computed, tmp_path, dirs_exist_ok=True)
    return tmp_path


def change(results: Path, width: int, **fields: Any) -> None:
    """Make the stored result of a width one of another identity, with other provenance."""
    old = results / "old"
    name = identity(rows_of(width)[0])
    file = old / "records" / f"{name}.json"
    record = json.loads(file.read_text())
    record["provenance"] |= fields
    other = f"{width:032x}"
    file.unlink()
    (old / "records" / f"{other}.json").write_text(json.dumps(sealed(record | {"identity": other})))


def why(
    results: Path, configs: list[TrialConfig], study: str = "new", rows: dict[str, TrialStatus] | None = None
) -> list[Reason | None]:
    trials = identified(SweepConfig(name=study, rows=tuple(configs), grid={}, resources=ResourcesConfig()))
    store, place = Store(results / study), Location.at(results)
    reuse = find_reusable(trials, store, place)
    found = reasons(trials, reuse.all, store, place, reuse.damaged, rows or {})
    return [found.get(trial.identity) for trial in trials]


def made_from(**changes: Any) -> dict[str, Any]:
    return identity_of(rows_of(2)[0]) | changes


def test_records_say_what_their_identity_was_made_from(results: Path) -> None:
    for record in Store(results / "old").records():
        assert record["provenance"]["identity_of"] == made_from()
        assert record["provenance"]["code_fingerprint"] == made_from()["code"]


def test_what_is_stored_is_reused_and_the_rest_was_never_computed(results: Path) -> None:
    assert why(results, rows_of(2, 3, 4)) == [None, None, Reason(Why.NEVER)]
    assert why(results, rows_of(2, checkpoint_every=7)) == [None]
    assert [reason.why for reason in why(results, rows_of(2, steps=11))] == [Why.NEVER]


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"code": "beef"}, Why.CODE, ["code beef, now"]),
        ({"data": "beef"}, Why.DATA, ["data beef, now none"]),
        ({"device": "cuda"}, Why.DEVICE, ["device cuda, now cpu"]),
        ({"kernels": "beef"}, Why.KERNELS, ["kernels beef, now"]),
        ({"versions": {"torch": "1.0", "numpy": "0.1"}}, Why.VERSIONS, ["torch 1.0, now 2", "numpy 0.1, now"]),
        ({"code": "beef", "device": "cuda"}, Why.CODE, ["code beef", "device cuda"]),
        ({}, Why.IDENTITY, ["the same code and versions"]),
    ],
)
def test_the_reason_is_what_is_different(results: Path, changes: dict, reason: Why, words: list[str]) -> None:
    change(results, 2, identity_of=made_from(**changes))
    found, kept = why(results, rows_of(2, 3))
    assert kept is None
    assert found.why is reason
    assert all(word in found.text for word in [*words, "in old"])


def test_the_nearest_record_is_the_one_that_explains(results: Path) -> None:
    shutil.copytree(results / "old", results / "older")
    change(results, 2, identity_of=made_from(code="beef", device="cuda"))
    (results / "old").rename(results / "first")
    (results / "older").rename(results / "old")
    change(results, 2, identity_of=made_from(device="cuda"))
    assert why(results, rows_of(2))[0].why is Why.DEVICE


def test_damaged_failed_and_set_aside_rows_say_so(results: Path) -> None:
    configs = rows_of(2, 3, 4, 5)
    names = [identity(config) for config in configs]
    store = Store(results / "old")
    (results / "old" / "curves" / f"{names[0]}.parquet").write_bytes(b"PAR1")
    store.set_aside(names[1])
    store.fail(names[2], {"outcome": "failed", "error": "ValueError: no\nmore", "traceback": ""})
    store.fail(names[3], {"outcome": "out_of_memory", "error": "MemoryError: 4 TiB", "traceback": ""})
    found = why(results, configs, "old", {names[3]: TrialStatus(State.OUT_OF_MEMORY, failures=3)})
    assert [reason.why for reason in found] == [Why.DAMAGED, Why.ASIDE, Why.FAILED, Why.FAILED]
    assert "curves" in found[0].text
    assert ".set-aside" in found[1].text
    assert found[2].text == "failed: ValueError: no"
    assert found[3].text == "3 times in the same way, out_of_memory: MemoryError: 4 TiB"
    assert why(results, configs[:1], "new")[0] == Reason(Why.DAMAGED, "its result in old is not what was written")
    named = dict(zip(names, found, strict=True))
    assert by_reason(named) == "2 failed before, 1 damaged, 1 set aside"
    assert len(examples(named, each=1)) == 3


def test_the_plan_prints_counts_and_with_verbose_examples(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, 2, identity_of=made_from(code="beef"))
    sweep = SweepConfig(name="new", rows=tuple(rows_of(2, 3, 4)), grid={}, resources=ResourcesConfig())
    made = preview(sweep, Location.at(results))
    console.print_plan(made)
    short = capsys.readouterr().out
    assert "not reused: 1 computed by other code, 1 never computed" in short
    assert "reused from old" in short
    assert "code beef" not in short
    console.print_plan(made, verbose=True)
    assert f"{identified(sweep)[0].identity[:12]} computed by other code: code beef, now " in capsys.readouterr().out


def test_what_an_earlier_run_left_on_this_machine_is_found_wherever_the_study_lies_now(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the trials' identities: the study's folder was copied from a full disk, or another one has its name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    configs = rows_of(2, 3, 4)
    whole, damaged, _ = map(identity, configs)
    trials = identified(SweepConfig(name="old", rows=tuple(configs), grid={}, resources=ResourcesConfig()))
    left = fallback_folder(Location.at("/mnt/full/old"))
    assert left.local is not None
    shutil.copytree(results / "old", left.local)
    (left.local / "curves" / f"{damaged}.parquet").write_bytes(b"PAR1")
    store = Store(tmp_path / "moved" / "old")
    reuse = find_reusable(trials, store, store.location.parent)
    assert (reuse.elsewhere, reuse.left_here) == ({whole: left}, {whole})
    reuse.apply(store)
    assert store.identities() == {whole}
    assert store.result(whole)[0] == Store(results / "old").result(whole)[0]
    assert find_reusable(trials, store, None).all == {whole}
    assert Store(left).has(whole)  # the study that it was left for may still be there


def test_of_trial_names_the_kernels_where_they_compute() -> None:
    for activation in ("linear", "tanh"):
        told = provenance.of_trial(trial(model={"activation": activation}))
        assert bool(told["kernel_build"]) is (told["identity_of"]["kernels"] == "compiled")
    assert kernels_of(trial(), "cuda") == ""  # torch computes the closed form there


WRITTEN = ROOT / "tests" / "sweep" / "store" / "written_by" / "8b96c54" / "grid"
"""A study whose radii of the recurrent weights were interpolated, with errors by bits, which have no radii."""


@pytest.mark.parametrize(("balls", "counted"), [(("recurrent",), True), (("all",), False), ((), False)])
def test_interpolated_radii_are_counted_of_the_balls_that_are_asked(balls: tuple[str, ...], counted: bool) -> None:
    store = Store(WRITTEN)
    name = min(store.identities())
    config = trial_from_dict(store.record(name)["config"])
    asked = replace(config, perturbation=replace(config.perturbation, balls=balls))
    assert "fixed_recurrent" in set(store.tables(name)["curves"]["ball"])
    assert interpolated([PlannedTrial("new", asked, trained=(str(WRITTEN), name))]) == counted


@pytest.mark.parametrize("break_it", [lambda file: file.write_bytes(b"PAR1"), Path.unlink], ids=["damaged", "missing"])
def test_curves_that_cannot_be_read_stop_no_plan(results: Path, break_it: Callable[[Path], Any]) -> None:
    rows = tuple(replace(row, perturbation=replace(row.perturbation, starts=2)) for row in rows_of(2, 3))
    break_it(results / "old" / "curves" / f"{identity(rows_of(2)[0])}.parquet")
    made = preview(SweepConfig(name="new", rows=rows, grid={}, resources=ResourcesConfig()), Location.at(results))
    assert "to measure only: 2 trials, whose trained weights are stored" in made.lines()
    assert made.interpolated == 0
