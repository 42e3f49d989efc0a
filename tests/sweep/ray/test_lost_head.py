"""The head of Ray is lost: whatever the driver does meanwhile, it ends with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from memsweep.sweep.backend import ClusterLost
from memsweep.sweep.ray.session import _watched
from memsweep.sweep.signals import terminate_like_ctrl_c


def waits() -> None:
    time.sleep(30)


def fails() -> None:
    time.sleep(2)
    raise ConnectionError("the head is unavailable")


@pytest.mark.parametrize("work", [waits, fails])
def test_the_reason_takes_the_place_of_the_interruption(work: Callable[[], None]) -> None:
    with pytest.raises(ClusterLost, match="its head is gone"), terminate_like_ctrl_c(), _watched(gone_soon(), None):
        work()


def test_a_head_that_is_there_replaces_nothing() -> None:
    with pytest.raises(ConnectionError, match="unavailable"), terminate_like_ctrl_c(), _watched(lambda: "", None):
        raise ConnectionError("the head is unavailable")


def gone_soon() -> Callable[[], str]:
    began = time.monotonic()
    return lambda: "its head is gone" if time.monotonic() - began > 0.2 else ""
