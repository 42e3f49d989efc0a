"""A ``Location`` in a bucket that refuses requests, and how many requests things take."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest

from memsweep.sweep.store.filesystem import Location
from s3_proxy import Refusals, refusing
from s3_server import S3Server

pytestmark = pytest.mark.s3

LARGE = 21 * 10**6  # three parts of a multipart upload


@pytest.mark.parametrize(
    "part", [pytest.param(1, marks=pytest.mark.drill), 2, pytest.param(3, marks=pytest.mark.drill)]
)
def test_a_part_that_the_bucket_refuses_leaves_the_old_object(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    where = f"s3://studies/{uuid.uuid4().hex}"
    Location.at(where).write("large", b"old")
    with refusing(s3) as refusals:
        monkeypatch.setenv("AWS_ENDPOINT_URL", refusals.endpoint)
        place = Location.at(where)
        refusals.pattern = f"partNumber={part}&"
        monkeypatch.setattr("memsweep.sweep.store.filesystem.s3_filesystem", impatient())
        with pytest.raises(OSError, match="503"):
            place.write("large", bytes(LARGE))
        refusals.pattern = None
        assert place.read("large") == b"old"
        place.write("large", bytes(LARGE))
        assert place.names() == {"large": LARGE}


def impatient() -> Callable[[], object]:
    """The file system of places, but with one attempt a request: what it does after the last one is the question."""
    from memsweep.sweep.store.filesystem import s3_filesystem

    return lambda: s3_filesystem(attempts=1)


def test_a_bucket_that_is_ill_for_a_moment_is_asked_again(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing(s3) as refusals:
        monkeypatch.setenv("AWS_ENDPOINT_URL", refusals.endpoint)
        place = Location.at(f"s3://studies/{uuid.uuid4().hex}")
        refusals.pattern = "PUT"
        threading.Timer(1.0, lambda: setattr(refusals, "pattern", None)).start()
        place.write("name", b"data")
        assert place.read("name") == b"data"
        assert sum(request.startswith("PUT") for request in refusals.requests) > 1


def test_how_many_requests_the_small_things_take(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests cost money and time: a change that adds some should be one that was meant."""
    with refusing(s3) as refusals:
        monkeypatch.setenv("AWS_ENDPOINT_URL", refusals.endpoint)
        place = Location.at(f"s3://studies/{uuid.uuid4().hex}")
        place.write("a", b"1")
        assert requests(refusals, lambda: place.write("b", b"2")) == 1
        assert requests(refusals, lambda: place.names()) == 1
        assert requests(refusals, lambda: place.read("b")) == 2
        assert requests(refusals, lambda: place.move("b", "c/d")) <= 4


def requests(refusals: Refusals, work: Callable[[], object]) -> int:
    before = len(refusals.requests)
    work()
    return len(refusals.requests) - before
