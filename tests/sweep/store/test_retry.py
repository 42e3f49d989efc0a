"""A bucket that is away for a while: drivers and workers wait for it; others, and what is wrong, are told at once."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

import pytest

from memsweep.sweep.store.filesystem import Location, s3_filesystem
from memsweep.sweep.store.lease import hold_lease
from memsweep.sweep.store.retry import is_transient, storage_retries
from s3_proxy import Refusals, refusing
from s3_server import S3Server


@pytest.fixture
def refusals(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusals]:
    """A proxy before the server; a client of places asks once, so that all else is ours."""
    with refusing(s3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setattr("memsweep.sweep.store.filesystem.s3_filesystem", lambda **_: s3_filesystem(attempts=1))
        yield proxy


@pytest.fixture
def place() -> Location:
    return Location.at(f"s3://studies/{uuid.uuid4().hex}")


def away(refusals: Refusals, seconds: float) -> None:
    """Nothing is answered for so long."""
    refusals.pattern = "."
    threading.Timer(seconds, lambda: setattr(refusals, "pattern", None)).start()


@pytest.mark.s3
def test_a_request_is_retried_until_the_bucket_is_back(refusals: Refusals, place: Location) -> None:
    place.write("name", b"data")
    with storage_retries(60.0):
        away(refusals, 1.0)
        assert place.read("name") == b"data"
        away(refusals, 0.5)
        place.write("name", b"other")
        away(refusals, 0.5)
        assert place.names() == {"name": 5}
    assert place.read("name") == b"other"


@pytest.mark.s3
def test_who_only_looks_is_told_at_once_and_a_checkpoint_waits_for_nobody(refusals: Refusals, place: Location) -> None:
    refusals.pattern = "."
    with pytest.raises(OSError, match="503"):
        place.names()
    with storage_retries(60.0), pytest.raises(OSError, match="503"):
        place.slot("checkpoint").write(b"state")
    with storage_retries(1.0), pytest.raises(OSError, match="503"):
        place.read("name")


@pytest.mark.s3
def test_nobody_waits_for_what_waiting_does_not_mend(
    refusals: Refusals, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    monkeypatch.setattr("memsweep.sweep.store.retry.warn", waits.append)  # before each wait
    with storage_retries(60.0):
        with pytest.raises(OSError, match="NO_SUCH_BUCKET"):
            Location.at("s3://no-such-bucket/x").write("name", b"data")
        with pytest.raises(FileNotFoundError):
            place.read("name")
    assert waits == []


@pytest.mark.s3
def test_a_driver_keeps_its_lease_through_an_outage(refusals: Refusals, place: Location) -> None:
    lost = threading.Event()
    with hold_lease(place, lost.set, beat=0.1, expiry=0.5):
        away(refusals, 1.5)
        place.write("name", b"data")  # holding the lease, it retries
        time.sleep(0.5)
        assert not lost.is_set()
        assert len((place / "lease").names()) == 1


@pytest.mark.parametrize(
    ("message", "passing"),
    [
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was reached", True),
        ("AWS Error UNKNOWN (HTTP status 503) during PutObject operation: No response body.", True),
        ("AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate.", True),
        ("AWS Error ACCESS_DENIED during PutObject operation: Access Denied", False),
        ("AWS Error NO_SUCH_BUCKET during PutObject operation: The specified bucket does not exist", False),
        ("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device", False),
    ],
)
def test_which_errors_pass(message: str, passing: bool) -> None:
    assert is_transient(OSError(message)) is passing
