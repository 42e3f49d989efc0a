"""The cores that a container's quota of time grants, by either version of control groups."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from memsweep.sweep.planning.resources import local_cpus, quota


@pytest.mark.parametrize(
    ("own", "files", "granted"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/pod/box", {"pod/cpu.max": "400000 100000", "pod/box/cpu.max": "max 100000"}, 4.0),
        ("0::/pod/box", {"pod/cpu.max": "400000 100000", "pod/box/cpu.max": "50000 100000"}, 0.5),
        ("0::/of/the/host", {"cpu.max": "200000 100000"}, 2.0),
        ("4:cpu,cpuacct:/q\n0::/", {"cpu/q/cpu.cfs_quota_us": "300000", "cpu/q/cpu.cfs_period_us": "100000"}, 3.0),
        ("1:cpu:/docker/1", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ("1:cpu:/\n0::/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("3:cpuset:/q", {"cpu.max": "50000 100000"}, math.inf),
        ("0::/", {}, math.inf),
        ("0::/", {"cpu.max": "what"}, math.inf),
    ],
)
def test_the_smallest_quota_of_the_own_groups_is_found(
    own: str, files: dict[str, str], granted: float, tmp_path: Path
) -> None:
    groups = tmp_path / "cgroup"
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    (tmp_path / "own").write_text(f"{own}\n")
    assert quota(groups, tmp_path / "own") == granted


def test_a_quota_limits_cores_and_leaves_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert quota(tmp_path, tmp_path / "none") == math.inf
    monkeypatch.setattr("memsweep.sweep.planning.resources.quota", lambda: 0.5)
    assert local_cpus() == 1
    monkeypatch.setattr("memsweep.sweep.planning.resources.quota", lambda: math.inf)
    assert local_cpus() >= 1
