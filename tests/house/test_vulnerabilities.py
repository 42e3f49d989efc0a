"""`make audit` never takes silence for good news."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paths import ROOT

SOUND = {"name": "numpy", "version": "2.3.5", "vulns": []}
FLAWED = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2014-8", "fix_versions": ["2.7.2"]}]}
MISSING = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.13.0)"}

APT = """installed libssl3
installed bash
installed libgcrypt20
installed apt
Reading package lists...
Inst libssl3 [3.0.19-1~deb12u2] (3.0.22-1~deb12u2 Debian-Security:12/oldstable-security [amd64]) []
Inst bash [5.2.15-2+b8] (5.2.15-2+b13 Debian:12.15/oldstable [amd64])
Inst libgcrypt20 [1.10.1-3] (1.10.1-3+deb12u1 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64])
3 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.
"""


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("docker_audit", ROOT / "docker" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("packages", "code", "says"),
    [
        ([SOUND], 0, "1 looked up, none affected"),
        ([SOUND, FLAWED], 1, "jinja2 2.4.1: PYSEC-2014-8, mended in 2.7.2"),
        ([SOUND, MISSING], 3, "COULD NOT BE AUDITED: 1 of 2"),
        ([MISSING], 3, "COULD NOT BE AUDITED: 1 of 1"),
        ([FLAWED, MISSING], 1, "COULD NOT BE AUDITED: 1 of 2"),
        ([], 3, "COULD NOT BE AUDITED"),
    ],
)
def test_python_packages(audit: Any, packages: list[dict[str, Any]], code: int, says: str) -> None:
    found = audit.read_pip_audit(json.dumps({"dependencies": packages}), "")
    assert audit.exit_code([found]) == code
    assert says in str(found)
    assert ("none affected" in str(found)) == (code == 0)


def test_debian_packages(audit: Any) -> None:
    found = audit.read_apt(0, APT, "")
    assert audit.exit_code([found]) == 1
    assert [line.split()[0] for line in found.affected] == ["libssl3", "libgcrypt20"]
    sound = audit.read_apt(0, "installed apt\n0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.", "")
    assert audit.exit_code([sound]) == 0
    assert str(sound) == "Debian packages of the image: 1 looked up, none affected"


def test_no_answer_is_no_good_news(audit: Any, tmp_path: Path) -> None:
    away = audit.read_apt(100, "", "E: Failed to fetch")
    assert audit.exit_code([away]) == 3
    assert "COULD NOT BE AUDITED: E: Failed to fetch" in str(away)
    deaf = tmp_path / "pip-audit"
    deaf.write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 1\n")
    deaf.chmod(0o755)
    (found,) = audit.audit(str(deaf), "constraints.txt", [])
    assert audit.exit_code([found]) == 3
    assert "no route to host" in str(found)
