"""A whole sweep whose results lie in a bucket: everything is killed in the middle, and ``resume`` finishes it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pandas as pd
import pytest
from test_crash_drills import all_continued, segments

from drill_study import CHECKPOINT_EVERY, STUDY, Drill, Outcome, study_text
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import TABLES
from s3_server import S3Server
from tally import Tally

HORIZONS = [1000, 1100, 1200]


def contents(place: Location, identity: str) -> list[bytes]:
    """A result's files."""
    return [place.read(f"records/{identity}.json"), *(place.read(f"{name}/{identity}.parquet") for name in TABLES)]


@pytest.mark.s3
@pytest.mark.drill
@pytest.mark.long
def test_a_sweep_into_a_bucket_survives_the_death_of_everything(s3: S3Server, tmp_path: Path, tally: Tally) -> None:
    quiet = Drill.make(tmp_path / "quiet", study_text(HORIZONS))
    ended = quiet.command("sweep", STUDY, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr

    results = f"s3://studies/{uuid.uuid4().hex}"
    drill, place = Drill.make(tmp_path / "drill", study_text(HORIZONS)), Location.at(results) / STUDY
    store = Store(place)
    with drill.running("sweep", STUDY, "--results", results) as process:
        drill.reach(process, store.identities)
        drill.slow()
        reached = len(drill.asked())
        drill.reach(process, lambda: len(drill.asked()) > reached + 2 * CHECKPOINT_EVERY)
        drill.kill_all()
    drill.quick()
    before = {identity: contents(place, identity) for identity in store.identities()}
    horizons = [store.record(identity)["config"]["task"]["horizon"] for identity in before]
    finished = {horizon for horizon in horizons if horizons.count(horizon) == 2}
    assert 0 < len(before) < 2 * len(HORIZONS)
    assert store.check(before) == {}

    reached = len(drill.asked())
    ended = drill.command("resume", STUDY, "--results", results)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    asked = drill.asked()
    assert all_continued(asked), segments(asked)

    lost = sum(contents(place, identity) != files for identity, files in before.items())
    equal = all_equal(store, quiet.store) and place.read("report/verdicts.csv") == Outcome.of(quiet).verdicts
    rerun = 2 * len(finished & {batch.horizon for batch in asked[reached:]})
    tally.record("everything killed (S3)", injected=1, lost=lost, rerun=rerun, equal=equal)
    assert (lost, rerun, equal) == (0, 0, True)
    assert (place / "checkpoints").names() == {}
    assert not (drill.folder / "results" / STUDY).exists()

    again = drill.command("sweep", STUDY, "--results", results)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{2 * len(HORIZONS)}/{2 * len(HORIZONS)} done" in again.stdout
    assert len(drill.asked()) == len(asked)
    said = drill.command("status", STUDY, "--results", results)
    assert said.returncode == 0, said.stdout + said.stderr


def all_equal(one: Store, two: Store) -> bool:
    """Whether two studies have the same tables, bit for bit."""
    try:
        for name in TABLES:
            pd.testing.assert_frame_equal(one.table(name), two.table(name), check_exact=True)
    except AssertionError:
        return False
    return True
