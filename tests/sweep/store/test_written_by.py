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
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning.identity import identity, training_of
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from paths import ROOT
from sweeping import ready, sweep

WRITTEN = Path(__file__).parent / "written_by"
STUDIES = sorted(plan.parent for plan in WRITTEN.glob("*/*/plan.json"))
MEASURED_AGAIN = frozenset({"capacity", "grid", "mixed"})
"""Names of these studies whose trials are measured otherwise since then, from the weights of then: a replica of a pack
that may mix models is measured with the model of its own config."""
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
    """Its tables, verdicts among them, byte for byte."""
    study = tmp_path / folder.name
    shutil.copytree(folder, study, ignore=shutil.ignore_patterns("report"))
    report.build(study)
    said = sorted(path.name for path in (folder / "report").glob("*.csv"))
    assert "verdicts.csv" in said
    for name in said:
        assert _measured(study / "report" / name) == _measured(folder / "report" / name), name


def _measured(file: Path) -> str:
    """A table of the report without the columns of what nobody measured, which a report leaves out since then."""
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    empty = [column for column in table if file.name == "cells.csv" and not table[column].any()]
    return table.drop(columns=empty).to_csv(index=False)


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

    registry.discover(ROOT)
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
