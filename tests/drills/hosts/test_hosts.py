"""The drills' hosts are apart from this machine and from one another, and leave nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosts import Host, Network, missing, network, until
from ray_hosts import health_settings

PORT = 9000

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "hosts can be made")


def reaches(host: Host, other: Host, log: Path) -> bool:
    """Whether a connection from one host to another's port comes about within a second."""
    tried = host.start(
        "timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{other.address}/{PORT}", env=os.environ, log=log
    )
    return tried.entered.wait(10) == 0


def test_cables_and_power(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with network(tmp_path) as made:
        one, two = made.host("one"), made.host("two")
        with two.listening(PORT):
            assert reaches(one, two, log)
            one.unplug()
            assert not reaches(one, two, log)
            one.plug()
            until(lambda: reaches(one, two, log), 10.0, "the cable is in again")
        sleeper = one.start("sleep", "600", env=os.environ, log=log)
        until(lambda: one.pids("sleep\x00600"), 10.0, "it sleeps")
        assert two.pids("sleep\x00600") == []
        one.power_off()
        sleeper.entered.wait(10)
        assert sleeper.pid == 0
        one.power_on()
        assert one.pids("sleep\x00600") == []
        assert one.run("hostname", env=os.environ, log=tmp_path / "name").strip() == "one"
        assert one.run("ip", "route", "show", "default", env=os.environ, log=tmp_path / "route") == ""
    assert all(not Path(f"/proc/{first}").exists() for first in first_processes(made))


def first_processes(made: Network) -> list[int]:
    return [host.first for host in made.hosts]


def test_the_health_settings_that_are_shipped() -> None:
    """A host that is silent for 20 s lives, one that is silent for 30 s is dead: see docs/evidence/durability.md."""
    milliseconds = {name.removeprefix("RAY_health_check_"): int(value) for name, value in health_settings().items()}
    checks, period, timeout = (milliseconds[n] for n in ("failure_threshold", "period_ms", "timeout_ms"))
    silence = checks * timeout + (checks - 1) * period
    assert 20_000 < silence < silence + period + timeout < 30_000
