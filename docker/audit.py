"""Known vulnerabilities of the packages that constraints.txt pins, and of the image's Debian packages.

``audit.py PIP_AUDIT CONSTRAINTS [COMMAND...]``. Where a command follows, it runs a shell's script, given as its last
word, in the image as root: ``docker run --rm --user 0 memsweep:cpu sh -c``.

Exit code: 0 everything was looked up and nothing is affected, 1 something is, 3 something could not be looked up.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

AFFECTED, UNKNOWN = 1, 3

# An index that cannot be had is an error, and so is an image that knows none of security updates.
_UPDATES = """set -e
apt-get -qq -o APT::Update::Error-Mode=any update
apt-cache policy | grep -q "l=Debian-Security" || { echo "it has no index of security updates" >&2; exit 1; }
dpkg-query --show --showformat='installed ${Package}\\n'
LC_ALL=C apt-get --simulate dist-upgrade
"""
_SECURITY = re.compile(r"^Inst (\S+) \[([^\]]*)\] \((\S+) [^)]*-[Ss]ecurity[:/ ]", re.MULTILINE)


@dataclass(frozen=True)
class Audit:
    """The findings about some packages.

    Attributes:
        what: the packages.
        looked_up: how many were.
        affected: a line for each that is.
        unknown: why some could not be looked up; empty where all were.
    """

    what: str
    looked_up: int
    affected: tuple[str, ...] = ()
    unknown: str = ""

    def __str__(self) -> str:
        lines = [f"  {line}" for line in self.affected]
        if self.affected:
            lines.insert(0, f"{self.what}: {len(self.affected)} affected, of {self.looked_up} looked up")
        elif self.looked_up and not self.unknown:
            lines.append(f"{self.what}: {self.looked_up} looked up, none affected")
        if self.unknown:
            lines.append(f"{self.what}: COULD NOT BE AUDITED: {self.unknown}. This says nothing about them.")
        return "\n".join(lines)


def read_pip_audit(out: str, err: str) -> Audit:
    """Reads pip-audit's answer: JSON, and standard error when it fails."""
    what = "Python packages"
    try:
        found = json.loads(out)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Audit(what, 0, unknown=(err.strip().splitlines() or ["pip-audit gave no answer"])[-1][:300])
    known = [package for package in found if "skip_reason" not in package]
    affected = tuple(
        f"{package['name']} {package['version']}: {flaw['id']}"
        + (f", mended in {', '.join(flaw['fix_versions'])}" if flaw.get("fix_versions") else "")
        for package in known
        for flaw in package["vulns"]
    )
    skipped = len(found) - len(known)
    why = next((package["skip_reason"] for package in found if "skip_reason" in package), "")
    unknown = f"{skipped} of {len(found)} ({why})" if skipped else "" if found else "no package is pinned"
    return Audit(what, len(known), affected, unknown)


def read_apt(code: int, out: str, err: str) -> Audit:
    """Reads which packages apt would upgrade in the image, and how apt ended."""
    what = "Debian packages of the image"
    installed = len(re.findall(r"^installed ", out, re.MULTILINE))
    if code != 0 or not installed or " upgraded, " not in out:
        return Audit(what, 0, unknown=(err.strip().splitlines() or ["apt gave no answer"])[-1][:300])
    affected = tuple(f"{name} {had}: security update {new}" for name, had, new in _SECURITY.findall(out))
    return Audit(what, installed, affected)


def audit(pip_audit: str, constraints: str, image: Sequence[str]) -> list[Audit]:
    """Ask pip-audit, and apt in the image where there is a command for it."""
    asked = _run(
        [pip_audit, "-r", constraints, "--no-deps", "--disable-pip", "-f", "json", "--progress-spinner", "off"]
    )
    found = [read_pip_audit(asked.stdout, asked.stderr)]
    if image:
        updates = _run([*image, _UPDATES])
        found.append(read_apt(updates.returncode, updates.stdout, updates.stderr))
    return found


def exit_code(found: Sequence[Audit]) -> int:
    """Of several audits: what is affected weighs more than what is unknown."""
    if any(each.affected for each in found):
        return AFFECTED
    return UNKNOWN if any(each.unknown for each in found) else 0


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    audits = audit(sys.argv[1], sys.argv[2], sys.argv[3:])
    print("\n".join(map(str, audits)))
    sys.exit(exit_code(audits))
