"""Reports of what a store holds: from a disk or a bucket, and of studies some of whose results are damaged."""

from __future__ import annotations

import uuid
from pathlib import Path

import pandas as pd
import pytest

from memsweep import report
from memsweep.errors import StoreError
from memsweep.sweep.store.filesystem import Location, s3_filesystem
from memsweep.sweep.store.results import Store
from report_study import Condition, write_study
from s3_proxy import refusing
from s3_server import S3Server

CONDITION = Condition(exact=True, metric="accuracy", criterion=1.0)


def stored(place: Location, made: Path) -> list[str]:
    """A small study in a store, as a sweep of this version writes it; the identities of its rows."""
    identities = write_study(made, [CONDITION], widths=(2, 4, 8), horizons=(20, 40), seeds=1, balls=["recurrent"])
    for identity in identities:
        assert Store(place).copy_from(Store(made), identity)
    place.write("plan.json", (made / "plan.json").read_bytes())
    return identities


@pytest.fixture(params=["disk", pytest.param("bucket", marks=[pytest.mark.s3, pytest.mark.more])])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A study's folder on each kind of storage."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "disk":
        return Location.at(tmp_path / "results" / "synthetic")
    request.getfixturevalue("s3")
    return Location.at(f"s3://studies/{uuid.uuid4().hex}/synthetic")


@pytest.mark.drill
@pytest.mark.s3
def test_a_report_of_a_bucket_is_that_of_a_disk(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    disk, bucket = (
        Location.at(tmp_path / "results" / "synthetic"),
        Location.at(f"s3://studies/{uuid.uuid4().hex}/synthetic"),
    )
    for each in (disk, bucket):
        stored(each, tmp_path / f"made{len(each.uri)}")
    bucket.write("report/figures/of-an-older-report.png", b"old")
    here, there = report.build(disk), report.build(bucket)
    assert (here.uri, there.uri) == (f"{disk}/report", f"{bucket}/report")
    assert there.folder.is_relative_to(tmp_path / "cache")
    names = sorted(path.relative_to(here.folder).as_posix() for path in here.folder.rglob("*") if path.is_file())
    assert {"index.html", "verdicts.csv"} < set(names)
    assert {*(bucket / "report").names(), *(f"figures/{name}" for name in (bucket / "report").names("figures"))} == {
        *names
    }
    # the commands that it advises name the place of the results
    places = [(each.parent.uri.encode(), b"RESULTS") for each in (disk, bucket)]
    for name in names:
        own, other = ((of.folder / name).read_bytes() for of in (here, there))
        assert bucket.read(f"report/{name}") == other
        assert own.replace(*places[0]) == other.replace(*places[1])
    own, other = (" ".join(of.text().split()).encode() for of in (here, there))
    assert own.replace(*places[0]) == other.replace(*places[1])


def test_damaged_results_are_left_out_counted_and_named(place: Location, tmp_path: Path) -> None:
    cut, flipped, half, gone, *whole = stored(place, tmp_path / "made")
    data = place.read(f"curves/{cut}.parquet")
    place.write(f"curves/{cut}.parquet", data[: len(data) // 2])
    data = bytearray(place.read(f"replicas/{flipped}.parquet"))
    data[len(data) // 3] ^= 1
    place.write(f"replicas/{flipped}.parquet", bytes(data))
    place.write(f"records/{half}.json", place.read(f"records/{half}.json")[:100])
    place.delete(f"memory/{gone}.parquet")
    paths = report.build(place)
    page = paths.page.read_text()
    assert "4 of 6 planned trials have no result" in page
    assert "4 of them are stored but damaged, and left out" in page
    assert "memsweep resume synthetic" in page
    for identity, file in ((cut, "curves"), (flipped, "replicas"), (half, "records"), (gone, "memory")):
        assert f"{place}/{file}/{identity}" in page
    assert set(pd.read_parquet(paths.folder / "curves.parquet")["identity"]) == set(whole)


def test_one_damaged_plan_file_is_no_loss(place: Location, tmp_path: Path) -> None:
    stored(place, tmp_path / "made")
    place.write("plan.copy.json", place.read("plan.json"))
    place.write("plan.json", b'{"schema": 2, "tr')
    assert "6 of 6 trials finished" in report.build(place).page.read_text()
    place.write("plan.copy.json", b"")
    with pytest.raises(StoreError, match=r"the plan of this study is damaged.*No result is lost") as caught:
        report.build(place)
    assert "memsweep resume" not in str(caught.value)  # it reads the plan, too


def test_a_study_that_is_not_there(place: Location) -> None:
    with pytest.raises(StoreError, match="there is no study in"):
        report.build(place)
    assert place.names() == {}


@pytest.mark.drill
@pytest.mark.s3
def test_a_bucket_that_goes_away_damages_no_result_and_no_report(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    uri = f"s3://studies/{uuid.uuid4().hex}/synthetic"
    stored(Location.at(uri), tmp_path / "made")
    before = report.build(Location.at(uri)).page.read_bytes()
    monkeypatch.setattr("memsweep.sweep.store.filesystem.s3_filesystem", lambda: s3_filesystem(attempts=1))
    with refusing(s3) as refusals:
        monkeypatch.setenv("AWS_ENDPOINT_URL", refusals.endpoint)
        for refusals.pattern in ("GET .*parquet", "PUT .*verdicts"):
            with pytest.raises(StoreError, match=r"cannot (read|write)"):
                report.build(Location.at(uri))
            assert Location.at(uri).read("report/index.html") == before
