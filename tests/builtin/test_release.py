"""A release says true things of itself: its metadata, its changelog, its version, and files that an index takes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_wheel import copied, install

from memsweep import __version__
from paths import ROOT, docker_program, python_path

PLUGINS = sorted((ROOT / "plugins").glob("*/pyproject.toml"))
KEEP_A_CHANGELOG = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def project(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return found


def test_the_metadata_are_those_of_the_citation() -> None:
    about = project(ROOT / "pyproject.toml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert about["authors"] == about["maintainers"] == [{"name": each["name"]} for each in cited["authors"]]
    assert about["keywords"] == cited["keywords"]
    assert about["urls"] if "repository-code" in cited else "urls" not in about  # no address is invented


def test_the_five_works_have_bibtex_that_says_what_the_citation_says() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    entries = (ROOT / "docs" / "seeds.bib").read_text(encoding="utf-8").split("@misc")[1:]
    assert len(entries) == len(cited) == 5
    for entry, work in zip(entries, cited, strict=True):
        authors = " and ".join(f"{each['family-names']}, {each['given-names']}" for each in work["authors"])
        fields = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,?$", entry, re.MULTILINE))
        assert fields == {
            "title": work["title"],
            "author": authors,
            "year": str(work["year"]),
            "eprint": work["url"].rpartition("/")[2],
            "archivePrefix": "arXiv",
            "url": work["url"],
        }


def test_every_licence_of_what_the_wheel_holds_is_a_licence_file() -> None:
    patterns = project(ROOT / "pyproject.toml")["license-files"]
    licences = {path for pattern in patterns for path in ROOT.glob(pattern)}
    vendor = ROOT / "platform" / "memsweep" / "report" / "page" / "vendor"
    assert {*vendor.glob("*LICENSE*"), ROOT / "LICENSE"} == licences
    assert len(licences) == 3


def test_classifiers_name_the_pythons_that_the_tools_are_pinned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docker")
    classifiers = project(ROOT / "pyproject.toml")["classifiers"]
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(classifiers))
    assert named[0] == project(ROOT / "pyproject.toml")["requires-python"].removeprefix(">=")
    assert {*named} <= {*docker_program("lock").PYTHONS}
    assert not [each for each in classifiers if each.startswith("License ::")]  # an index refuses both forms together


def test_the_changelog_has_the_form_and_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in heads[1:])
    assert {*re.findall(r"^### (.*)$", text, re.MULTILINE)} <= {*KEEP_A_CHANGELOG}
    assert __version__ in text


def test_a_tag_of_another_version_is_no_release() -> None:
    dist = docker_program("dist")
    assert dist.version(ROOT) == __version__
    changelog = "# Changelog\n\n## [1.2.0] - 2030-01-01\n"
    assert dist.problems("1.2.0", ["v1.2.0", "vetted"], changelog) == []
    assert dist.problems("1.2.0", [], "") == []  # no release, but files to try
    assert dist.problems("1.2.0", ["v1.3.0"], changelog) == ["the commit has the tag v1.3.0, and __version__ is 1.2.0"]
    assert dist.problems("1.2.0", [], changelog, ["setup.py"]) == []
    assert dist.problems("1.2.0", ["v1.2.0"], changelog, ["setup.py"]) == [
        "the folder is not the tagged commit: setup.py"
    ]
    assert dist.problems("1.2.1", ["v1.2.1"], changelog) == ["CHANGELOG.md has no section '## [1.2.1] - YYYY-MM-DD'"]


@pytest.mark.more
def test_an_sdist_has_all_that_a_wheel_is_made_of(tmp_path: Path) -> None:
    source = copied(tmp_path)
    for name in ("MANIFEST.in", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "constraints.txt"):
        shutil.copy(ROOT / name, source)
    words = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", tmp_path / "made"]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "made").glob("*.tar.gz")
    shutil.unpack_archive(made, tmp_path / "there")
    (there,) = (tmp_path / "there").iterdir()

    def files(root: Path) -> set[Path]:
        walked = os.walk(root, followlinks=True)
        found = {Path(folder, name).relative_to(root) for folder, _, names in walked for name in names}
        return {path for path in found if not {"__pycache__", "memsweep.egg-info"} & {*path.parts}}

    assert files(source / "platform") == files(there / "platform")
    assert {"setup.py", "pyproject.toml", "LICENSE", "README.md"} <= {path.name for path in there.iterdir()}
    assert not [name for name in ("tests", "docs", "plugins", "docker") if (there / name).exists()]


@pytest.mark.parametrize("address", [None, "https://example.org/memsweep"])
def test_no_link_of_the_metadata_leads_nowhere(address: str | None, tmp_path: Path) -> None:
    """An index shows README.md alone: its links name files of the repository at this version, or are texts."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (source / "platform").symlink_to(ROOT / "platform")
    if address is not None:
        with (source / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(f'[project.urls]\nRepository = "{address}"\n')
    words = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = (tmp_path / "memsweep.egg-info" / "PKG-INFO").read_text(encoding="utf-8").partition("\n\n")[2]
    ours, told = (re.findall(r"(!?\[[^\]]*\])\(([^)\s]+)\)", text) for text in (readme, shown))
    if address is None:
        assert told == [each for each in ours if "://" in each[1]]
        return
    assert [text for text, _ in told] == [text for text, _ in ours]
    for (text, target), (_, path) in zip(told, ours, strict=True):
        kind = "raw" if text.startswith("!") else "blob"
        assert target == (path if "://" in path else f"{address}/{kind}/v{__version__}/{path}")
        assert "://" in path or (ROOT / path).exists()


def test_a_wheel_whose_tag_says_something_else_is_refused(tmp_path: Path) -> None:
    dist = docker_program("dist")

    def wheel(tag: str, *names: str) -> Path:
        path = tmp_path / f"memsweep-1.0-py3-none-{tag}.whl"
        with zipfile.ZipFile(path, "w") as content:
            for name in ("memsweep/__init__.py", *names):
                content.writestr(name, "")
        return path

    assert dist.misfits([wheel("any"), wheel("manylinux_2_34_x86_64", "k.so")]) == []
    assert dist.misfits([wheel("any", "k.so")]) == ["memsweep-1.0-py3-none-any.whl has 1 kernels"]
    assert dist.misfits([wheel("manylinux_2_34_x86_64")]) == [
        "memsweep-1.0-py3-none-manylinux_2_34_x86_64.whl has 0 kernels"
    ]
    assert dist.misfits([wheel("linux_x86_64", "k.so")]) == [
        "memsweep-1.0-py3-none-linux_x86_64.whl has a tag that no index takes"
    ]


def test_kernels_of_a_wheel_are_asked_for_by_the_word_that_runs_them() -> None:
    words = {"MEMSWEEP_KERNELS": "fast", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=ROOT, env=words, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 1
    assert done.stderr == "MEMSWEEP_KERNELS is 'fast'; allowed: auto, compiled, plain.\n"


@pytest.mark.parametrize("path", PLUGINS, ids=[path.parent.name for path in PLUGINS])
def test_a_plugin_package_announces_modules_that_it_holds(path: Path) -> None:
    about = project(path)
    assert path.parent.name == about["name"]
    assert about["license"] == project(ROOT / "pyproject.toml")["license"]
    assert [each for each in about["dependencies"] if re.match(r"memsweep>=[\d.]+,<", each)]  # its parts are not public
    announced = [
        *about.get("entry-points", {}).get("memsweep.plugins", {}).values(),
        *about.get("scripts", {}).values(),
    ]
    assert announced
    for module in announced:
        assert (path.parent / f"{module.partition(':')[0].replace('.', '/')}.py").is_file()


@pytest.mark.more
@pytest.mark.parametrize("path", PLUGINS, ids=[path.parent.name for path in PLUGINS])
def test_a_plugin_package_keeps_its_contract_from_its_wheel(path: Path, tmp_path: Path) -> None:
    """Built and installed as by anybody; memsweep finds it by its entry point."""
    needs = path.parent.name.removeprefix("memsweep-")
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"the package {needs} is not installed: pip install {needs}")
    source = tmp_path / "source"
    shutil.copytree(path.parent, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    done = subprocess.run([*words, source], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.whl")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([python_path(), os.environ.get("PYTHONPATH", "")])}
    words = [install(made, tmp_path / "there"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*words, source / "tests"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
