"""Compiles the C++ kernels into a wheel, for the instruction sets in ``memsweep.recurrence.compiled.compiler``.

Without a C++ compiler the wheel has none, and its tag says that it fits every machine; memsweep then compiles them at
first use, as in a checkout. ``MEMSWEEP_KERNELS=plain`` makes that wheel where there is a compiler, and
``MEMSWEEP_KERNELS=compiled`` makes a missing one an error. pyproject.toml has all else about the project; links of
README.md are made to hold on a package index.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent / "platform"))

from memsweep import __version__
from memsweep.recurrence.compiled import compiler

ROOT = Path(__file__).parent
PLACE = Path("memsweep", "recurrence", "compiled", "built")
KERNELS = os.environ.get("MEMSWEEP_KERNELS") or "auto"
if KERNELS not in ("auto", "compiled", "plain"):
    sys.exit(f"MEMSWEEP_KERNELS is {KERNELS!r}; allowed: auto, compiled, plain.")


class BuildWithKernels(build_py):
    """Adds the libraries to the packages, except in an editable install, which compiles at first use."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib) / PLACE
        for stale in folder.glob("*.so"):
            stale.unlink()
        if KERNELS == "plain":
            return
        try:
            program = compiler.compiler()
            pairs = list(product(compiler.REALS, compiler.levels()))
            with ThreadPoolExecutor(os.cpu_count()) as pool:  # each has a limit of time
                list(pool.map(lambda pair: self._compile(folder, *pair, program), pairs))
        except compiler.CannotBuildError as error:
            if KERNELS == "compiled":
                raise
            self.warn(f"the wheel has no C++ kernels; memsweep compiles them at first use. {error}")
            for whole in folder.glob("*.so"):
                whole.unlink()

    @staticmethod
    def _compile(folder: Path, real: str, level: str, program: str) -> None:
        compiler.compile_to(folder / compiler.library_name(real, level, program), real, level, program)


class TaggedByContent(bdist_wheel):
    """For any Python 3, as nothing is linked with it; for this kind of machine where there are kernels."""

    def run(self) -> None:
        self.run_command("build")
        self.root_is_pure = not any((Path(self.get_finalized_command("build").build_lib) / PLACE).glob("*.so"))
        self.distribution.has_ext_modules = lambda: not self.root_is_pure  # decides where in the wheel they lie
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def description(address: str | None) -> str:
    """README.md as a package index shows it, where no other file of the repository lies beside it.

    Args:
        address: of the repository, whose files of this version the links then name. Without one, links are their texts
            alone, and pictures go: nothing may lead nowhere.
    """

    def elsewhere(match: re.Match[str]) -> str:
        picture, text, path = match.groups()
        if address is None:
            return "" if picture else text
        return f"{picture}[{text}]({address}/{'raw' if picture else 'blob'}/v{__version__}/{path})"

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)", elsewhere, text)


urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
setup(
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": TaggedByContent},
    long_description=description(urls.get("Repository")),
    long_description_content_type="text/markdown",
)
