"""Results that an earlier version wrote: they open, their numbers stay equal, and their report is as it was."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from memsweep import registry, report
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.redaction import redacted
from memsweep.report.tracked import verdicts_of
from memsweep.stability.verdict import judgement, rule
from memsweep.stability.verdict.judgement import RULE_VERSION, Verdict
from memsweep.studies.ending import note, noted
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning.identity import identity, training_of
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from memsweep.sweep.tracking.uri import default_uri, mend
from paths import ROOT
from sweeping import ready, sweep

registry.discover(ROOT)
WRITTEN = Path(__file__).parent / "written_by"
JUDGED = "judged/rule={}"
"""Folder of what a later rule gives, by its version."""
STUDIES = sorted(plan.parent for plan in WRITTEN.glob("*/*/plan.json"))
MEASURED_AGAIN = frozenset({"capacity", "grid", "mixed", "search"})
"""Names of these studies whose trials are measured otherwise since then, from the weights of then: radii are found on
the distance from the model's own outputs, not read off a curve of errors, and a replica of a pack that may mix models
is measured with the model of its own config."""
TRAINED_AGAIN = frozenset({"module"})
"""Names of those whose trials are trained otherwise since then: a module is looked at in training, and its frozen
weights stay."""


def of_version(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


@pytest.mark.parametrize("folder", STUDIES, ids=of_version)
def test_stored_numbers_are_read_as_they_were_written(folder: Path) -> None:
    store, plan = Store(folder), read_plan(folder)
    assert plan is not None
    assert store.identities() == plan.rows.keys()
    assert store.check(store.identities()) == {}
    filled = [name for name in table_names() if (folder / name).is_dir()]
    assert len(filled) >= 4
    for name in filled:
        files = sorted((folder / name).glob("*.parquet"))
        written = pd.concat([pq.read_table(file, partitioning=None).to_pandas() for file in files], ignore_index=True)
        pd.testing.assert_frame_equal(store.table(name)[list(written)], written, check_exact=True)


USUAL = [folder if folder.name == "grid" else pytest.param(folder, marks=pytest.mark.more) for folder in STUDIES]


@pytest.mark.parametrize("folder", USUAL, ids=of_version)
def test_the_report_says_what_it_said(folder: Path, tmp_path: Path) -> None:
    """Its tables, verdicts among them, byte for byte; those of verdicts as the rule of today gives them.

    ``write.py`` writes what a later rule is expected to give, beside what the first one gave.
    """
    study = tmp_path / folder.name
    shutil.copytree(folder, study, ignore=shutil.ignore_patterns("report"))
    report.build(study)
    said = sorted(path.name for path in (folder / "report").glob("*.csv"))
    assert "verdicts.csv" in said
    for name in said:
        assert _measured(study / "report" / name) == _measured(_expected(folder, name)), name
    verdicts = pd.read_csv(study / "report" / "verdicts.csv")
    assert (verdicts["rule_version"] == RULE_VERSION).all()
    assert (verdicts["reference"] == "target").all()
    assert verdicts["reasons"].str.contains("radii: interpolated").all()
    assert verdicts["reasons"].str.contains("radii: read from the error, that of the fit included").all()
    radii = pd.read_csv(study / "report" / "radii.csv")
    assert (radii["how"] == "interpolated").all()
    assert (radii["reading"] == "error").all()


def _expected(folder: Path, name: str) -> Path:
    """The table that the latest rule gave which gives another one than the rule of then."""
    by_rule = (folder / JUDGED.format(version) / name for version in range(RULE_VERSION, 0, -1))
    return next(filter(Path.is_file, by_rule), folder / "report" / name)


def _measured(file: Path) -> str:
    """A table of the report without the columns of what nobody measured, which a report leaves out since then.

    Nor with the version of the rule, how a radius is known and from what, and the reference, which tables of the first
    one lack.
    """
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    empty = [column for column in table if file.name == "cells.csv" and not table[column].any()]
    return (
        table.drop(columns=empty)
        .drop(columns=["rule_version", "how", "reading", "reference"], errors="ignore")
        .to_csv(index=False)
    )


@pytest.mark.more
def test_a_later_rule_judges_stored_results_again_and_says_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a verdict is handed on; and a finished study whose report is of another version gets a new one."""
    (folder,) = [folder for folder in STUDIES if of_version(folder) == "8b96c54-grid"]
    results = ready(tmp_path / "results")
    study, place = results / "grid", Location.at(results)
    shutil.copytree(folder, study)
    (study / "report" / "index.html").touch()
    mend(default_uri(place), place)
    complete = note((redacted(default_uri(place)), None, ""), place)
    assert noted(complete, study, place) is not None
    monkeypatch.setattr(judgement, "RULE_VERSION", RULE_VERSION + 1)
    monkeypatch.setattr(rule, "decide", lambda *_: Verdict.STABLE)
    assert noted(complete, study, place) is None
    contents = report.build(study).contents
    written = pd.read_csv(study / "report" / "verdicts.csv")
    assert {*zip(written["verdict"], written["rule_version"], strict=True)} == {("stable", RULE_VERSION + 1)}
    of_trials = verdicts_of(contents).values()
    assert {of_trial.tags["ball_recurrent/rule_version"] for of_trial in of_trials} == {f"{RULE_VERSION + 1}"}
    assert f"<dd>version {RULE_VERSION + 1}</dd>" in (study / "report" / "index.html").read_text()


@pytest.fixture
def as_then(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives a study's trials the versions of libraries and the kernels with which they were computed."""
    monkeypatch.setenv("MEMSWEEP_KERNELS", "plain")
    monkeypatch.syspath_prepend(str(WRITTEN / "workspace"))
    hidden = sys.modules.pop("nets", None)

    def set_versions(folder: Path) -> None:
        known = {name: value for each in records(folder) for name, value in each["versions"].items()}
        monkeypatch.setattr(fingerprint, "_version", lambda name: known.get(name, ""))
        fingerprint.forget()

    yield set_versions
    monkeypatch.undo()
    fingerprint.forget()
    sys.modules.pop("nets", None)
    sys.modules.update({"nets": hidden} if hidden is not None else {})


def records(folder: Path) -> list[dict[str, Any]]:
    return [record["provenance"]["identity_of"] for record in Store(folder).records()]


@pytest.mark.parametrize("folder", STUDIES, ids=of_version)
def test_trials_have_the_identities_that_they_had(folder: Path, as_then: Callable[[Path], None]) -> None:
    """So that their results are found: none is trained again, and none is measured but in the place of a wrong one."""
    as_then(folder)
    for record in Store(folder).records():
        now = identity(trial_from_dict(record["config"]))
        assert (training_of(now) == training_of(record["identity"])) is (folder.name not in TRAINED_AGAIN)
        assert (now == record["identity"]) is (folder.name not in MEASURED_AGAIN | TRAINED_AGAIN)


@pytest.mark.more
@pytest.mark.parametrize("folder", [f for f in STUDIES if f.name not in TRAINED_AGAIN], ids=of_version)
def test_a_sweep_trains_and_measures_nothing_that_is_stored(
    folder: Path, as_then: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_then(folder)
    results = ready(tmp_path / "results")
    shutil.copytree(folder, results / folder.name, ignore=shutil.ignore_patterns("report"))
    monkeypatch.setattr("memsweep.learning.loop._step", None)  # a training step fails
    if folder.name not in MEASURED_AGAIN:
        monkeypatch.setattr("memsweep.trial.run_replicas", None)  # a measurement fails
    before = Store(results / folder.name).identities()
    assert sweep(WRITTEN / "workspace" / "search_spaces" / f"{folder.name}.yaml", results, "--inline") == 0
    assert (Store(results / folder.name).identities() == before) is (folder.name not in MEASURED_AGAIN)
