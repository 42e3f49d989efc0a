"""Makes what a release uploads, and checks it: ``make dist`` runs this in the environment of ``dist.lock``.

``dist.py FOLDER``: an sdist; made from it a wheel with kernels, which auditwheel tags by the oldest glibc that has what
the compiler used, and a wheel without, for every other machine. Needs git, and a C++ compiler. The folder gets all
files or none.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version(root: Path) -> str:
    """The version of the sources, read without an import."""
    text = (root / "platform" / "memsweep" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r"^__version__ = (.+)$", text, re.MULTILINE)
    if found is None:
        sys.exit("platform/memsweep/__init__.py has no line __version__ = ...")
    return str(ast.literal_eval(found[1]))


def problems(of: str, tags: Iterable[str], changelog: str, changed: Iterable[str] = ()) -> list[str]:
    """Why sources of this version are no release, a sentence each; a checkout without a tag of its own may be any.

    Args:
        of: the version.
        tags: of the commit.
        changelog: the text of CHANGELOG.md.
        changed: files that are not as the commit has them, or not in it: an sdist is made of the folder.
    """
    releases = [tag for tag in tags if re.fullmatch(r"v\d.*", tag)]
    found = [f"the commit has the tag {tag}, and __version__ is {of}" for tag in releases if tag != f"v{of}"]
    if releases and not re.search(rf"^## \[{re.escape(of)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md has no section '## [{of}] - YYYY-MM-DD'")
    if releases and (other := [*changed]):
        found.append(f"the folder is not the tagged commit: {', '.join(other[:3])}")
    return found


def misfits(wheels: Iterable[Path]) -> list[str]:
    """Wheels whose tag does not say what is in them, a sentence each."""
    found = []
    for wheel in wheels:
        kernels = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
        if wheel.stem.endswith("-py3-none-any") == bool(kernels):
            found.append(f"{wheel.name} has {len(kernels)} kernels")
        elif kernels and "-py3-none-manylinux_" not in wheel.stem:
            found.append(f"{wheel.name} has a tag that no index takes")
    return found


def make(folder: Path) -> list[Path]:
    """Makes the sdist, and both wheels from it."""
    run("build", "--sdist", "--no-isolation", "--outdir", folder, ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(sdist, scratch)
        source = Path(scratch, sdist.name.removesuffix(".tar.gz"))
        run("build", "--wheel", "--no-isolation", "--outdir", folder, source, MEMSWEEP_KERNELS="plain")
        run("build", "--wheel", "--no-isolation", "--outdir", scratch, source, MEMSWEEP_KERNELS="compiled")
        (compiled,) = Path(scratch).glob("*.whl")
        run("auditwheel", "repair", "--wheel-dir", folder, compiled)
    return sorted(folder.iterdir())


def check(made: list[Path]) -> list[str]:
    """Shows what auditwheel and twine say of the files; returns what is wrong, a sentence each."""
    wheels = [path for path in made if path.suffix == ".whl"]
    for wheel in wheels:
        if not wheel.stem.endswith("-any"):
            run("auditwheel", "show", wheel)
    run("twine", "check", "--strict", *made)
    return misfits(wheels)


def run(module: str, *words: str | Path, **environment: str) -> None:
    """Runs a program of the environment; ends where it fails."""
    print(f"dist: {' '.join([module, *map(str, words[:2])])} ...", flush=True)
    command = [sys.executable, "-m", module, *words]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(command, env=os.environ | environment | {"PATH": path}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\ndist: {module} failed, as said above. Nothing was made.")
    if module != "build":
        print(done.stdout.strip(), flush=True)


def main(folder: Path) -> None:
    """Fills the folder, from which all that was there goes."""
    tags, changed = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for words in (["tag", "--points-at"], ["status", "--porcelain"])
    )
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = problems(version(ROOT), tags.split(), changelog, [line[3:] for line in changed.splitlines()])
    with tempfile.TemporaryDirectory() as scratch:
        made = [] if wrong else make(Path(scratch))
        if wrong := wrong or check(made):
            sys.exit("\n".join(["dist: nothing was made:", *(f"  {line}." for line in wrong)]))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path in made:
            shutil.copy(path, folder)
    print(f"dist: {folder} has {', '.join(path.name for path in made)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
