"""How the kernels are compiled, and for which instructions; ``setup.py`` asks the same when it makes a wheel.

The target is a level of the architecture, not the processor at hand: what was compiled for a level, in a wheel or at
first use, gives the same bits on every processor that has it. Needs nothing but Python's own library.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from memsweep.errors import MemsweepError

REALS = ("double", "float")
"""The C++ types of a number: one library for each."""
NATIVE = "native"
"""The target of a processor that has none of the levels: itself."""
_SOURCE = Path(__file__).parent / "cpp"
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-Wno-psabi", "-Wno-ignored-attributes"),
    "-fno-math-errno",  # no kernel reads errno; a root is one instruction then, and loops with roots are vectorized
    *("-fschedule-insns", "-fsched-pressure"),  # an eighth of the time of dense layers; Clang passes over them
)
_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
_LEVELS = {
    "x86_64": {"x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}, "x86-64-v3": _V3},
    "aarch64": {"armv8-a": frozenset({"asimd"})},
}
"""By machine: the levels that kernels are built for, best first, and what /proc/cpuinfo says of a processor with it."""
_TIME_LIMIT = 600  # seconds for one compilation


class CannotBuildError(MemsweepError):
    """There is no compiler, or it failed; the message says what to do."""


def levels() -> tuple[str, ...]:
    """The targets that a wheel made on this machine has kernels for; none where the system is not Linux."""
    return tuple(_LEVELS.get(platform.machine(), {})) if sys.platform == "linux" else ()


@functools.cache
def target() -> str:
    """The best of ``levels`` that this processor has, else ``NATIVE``."""
    facts = {word for line in cpu_facts() for word in line.partition(":")[2].split()}
    return next((level for level in levels() if _LEVELS[platform.machine()][level] <= facts), NATIVE)


def cpu_facts() -> list[str]:
    """Linux's description of this processor; processors with equal facts can share what was compiled for ``NATIVE``."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})


def compiler() -> str:
    """The path of a C++ compiler.

    Raises:
        CannotBuildError: there is none.
    """
    names = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    for name in names:
        if path := shutil.which(name):
            return path
    raise CannotBuildError(
        f"no C++ compiler was found (looked for {', '.join(names)}). Install one, on Debian or Ubuntu: "
        "apt-get install g++, or name one with the environment variable CXX."
    )


def sources() -> list[Path]:
    """The C++ files, in a fixed order."""
    return sorted(path for path in _SOURCE.iterdir() if path.suffix in (".cpp", ".h"))


def code_hash(level: str) -> str:
    """Hash of sources and flags, 8 hexadecimal digits: what a built library must have to stand for them."""
    parts = [path.read_text(encoding="utf-8") for path in sources()]
    return _hash("\n".join([*parts, *_FLAGS, level]))[:8]


def library_name(real: str, level: str, program: str) -> str:
    """The file's name; at its end the hash of everything that decides the library, 16 hexadecimal digits.

    Args:
        real: one of ``REALS``.
        level: one of ``levels``, or ``NATIVE``.
        program: path of the compiler.
    """
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    place = [platform.machine(), platform.processor(), *cpu_facts()] if level == NATIVE else []
    code = code_hash(level)
    return f"kernels-{real}-{level}-{code}-{_hash(chr(10).join([code, version, *place]))[:16]}.so"


def compile_to(path: Path, real: str, level: str, program: str) -> None:
    """Compiles the library; the file appears when it is whole.

    Raises:
        CannotBuildError: the compiler failed.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / path.name
        units = [str(path) for path in sources() if path.suffix == ".cpp"]
        command = [program, *_FLAGS, f"-march={level}", "-s", f"-DREAL={real}", *units, "-o", str(built)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIME_LIMIT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuildError(
                f"{program} did not end within {_TIME_LIMIT:g} s, and was stopped: this machine is slow, or does other "
                "work. Run the same command again when it is idle, name another compiler with CXX, or leave the "
                "kernels out with MEMSWEEP_KERNELS=plain. A wheel with kernels compiles nothing."
                if isinstance(error, subprocess.TimeoutExpired)
                else f"{program} could not be run: {error}. Name another with CXX."
            ) from error
        if done.returncode != 0 or not built.is_file():
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            raise CannotBuildError(
                f"{program} could not compile the recurrences ({lines[0]}). Name another compiler with CXX; "
                f"the command was: {' '.join(command)}"
            )
        os.replace(built, path)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
