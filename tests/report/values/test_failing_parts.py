"""A part of others whose code for reports fails is left out of the report, which says so and is written."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import memsweep as ms
from memsweep import registry
from memsweep.errors import MemsweepError
from memsweep.report.values.analysis import Analysis, left_out_where_it_fails

STUDY: dict[str, Any] = {
    "name": "broken",
    "task": {"name": "linear_functional", "horizon": 6, "kernel": "exponential"},
    "model": {"name": "diagonal_rnn", "width": 2},
    "training": {"seeds": 2, "steps": 4, "validate_every": 4},
    "perturbation": {"balls": []},
}
PARTS = """
from memsweep.errors import ConfigError
from memsweep.report.values.section import Glance, Section
from memsweep.report.values.table import Column, Table


def section(contents, letters=()):
    return contents.nothing


def refuses(contents, letters=()):
    raise ConfigError(["no."], "a part")


def column(contents, letters=()):
    return Section("Broken", "words", Table("broken", "Broken", [1], [Column("a", lambda row: row / 0, key="a")]))


def number(contents, letters=()):
    return Section("Broken", "words", charts=[{"rows": [1]}], glance=[Glance("a", "a", "It.", lambda row: row.nothing)])


def bare(contents, letters=()):
    return Section("Broken", "words", charts=[{}], glance=[Glance("a", "a", "It.", lambda row: 1.0)])
"""


@pytest.mark.parametrize(
    "place",
    [
        "no_such_module:section",
        "memsweep.outcome:nope",
        "failing_report_parts:section",
        "failing_report_parts:refuses",
        "failing_report_parts:column",
        "failing_report_parts:number",
        "failing_report_parts:bare",
    ],
)
def test_a_report_is_written_without_a_section_that_fails(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "failing_report_parts.py").write_text(PARTS)
    monkeypatch.setitem(sys.modules, "failing_report_parts", ModuleType("for the end"))  # so that it is removed then
    del sys.modules["failing_report_parts"]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    class Broken(Analysis):
        """A section that never comes."""

        section = place
        studies = place

    with registry.lent(registry.ANALYSIS, "broken", Broken), caplog.at_level(logging.WARNING):
        results = ms.sweep(STUDY, inline=True, progress=False)
        ms.compare(results, ms.sweep(STUDY | {"name": "other"}, inline=True, progress=False))
    assert (tmp_path / "results" / "broken" / "report" / "index.html").exists()
    said = {record.getMessage() for record in caplog.records if "left out of the report" in record.getMessage()}
    assert any(text.startswith("the section of the analysis broken failed") for text in said), said
    assert all("Correct its code." in text for text in said)


def test_a_fault_of_the_engine_stays_one() -> None:
    with pytest.raises(ZeroDivisionError), left_out_where_it_fails(Analysis, "this"):
        raise ZeroDivisionError


def test_a_stored_table_of_an_unknown_measure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = ms.sweep(STUDY, inline=True, progress=False)
    for record in results._contents.study.records.values():
        record["files"]["of_others"] = next(iter(record["files"].values()))
    with pytest.raises(MemsweepError, match="is stored, and the measure that made it is not loaded"):
        results.table("of_others")
    with pytest.raises(MemsweepError, match="has no table 'nothing'"):
        results.table("nothing")
