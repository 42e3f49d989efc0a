"""Results that an earlier version wrote: they open, their numbers stay equal, and their report is as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from memsweep import report
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import TABLES

WRITTEN = Path(__file__).parent / "written_by"
STUDIES = sorted(plan.parent for plan in WRITTEN.glob("*/*/plan.json"))


def of_version(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


@pytest.mark.parametrize("folder", STUDIES, ids=of_version)
def test_stored_numbers_are_read_as_they_were_written(folder: Path) -> None:
    store, plan = Store(folder), read_plan(folder)
    assert plan is not None
    assert store.identities() == plan.rows.keys()
    assert store.check(store.identities()) == {}
    filled = [name for name in TABLES if (folder / name).is_dir()]
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
        assert (study / "report" / name).read_text() == (folder / "report" / name).read_text(), name
