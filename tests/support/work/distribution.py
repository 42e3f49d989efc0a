"""A distribution from elsewhere with a part, installed by pip as anybody's would be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "1.0"

[tool.setuptools]
packages = ["{name}"]

[project.entry-points."memsweep.plugins"]
part = "{name}"
"""


def installed(name: str, files: Mapping[str, str], factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed a package with these files, as it would into site-packages."""
    source, target = factory.mktemp("source"), factory.mktemp("site")
    (source / name).mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT.format(name=name))
    for file, text in files.items():
        (source / name / file).write_text(text)
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", target, source]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, capture_output=True, timeout=600)
    return target
