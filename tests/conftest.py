"""The ground of every test: a quiet environment, one thread per process, and an answer to "is a browser here?".

A test that needs something from the system carries the marker of that name (``browser``, ``containers``,
``s3``) or calls ``requires(name)``. Where the thing is missing the test skips and says why; where
``MEMSWEEP_REQUIRE`` names it (a comma-separated list, set by ``.ci/run``) the same skip is a failure.

After the time that ``MEMSWEEP_UNTIL`` names (seconds since 1970, set by ``.ci/run``) no test starts: the rest skip.
Each day another file comes first then.

A test that leaves anything at the top of the file system, in HOME or in the checkout fails: it has a temporary folder.

A test over all combinations of several parameters runs in `make test` with so many of them that every value of every
parameter comes once; all others carry the marker ``more``, and `make test-all` runs them too.

A test that ``tests/slow.txt`` names carries the marker ``slow``, and so do all of a file that is named there. `make
test` leaves them out, and `make test-slow` runs them. See ``tests/slow.py``.

Drills note what they broke and what it cost in the fixture ``tally``; its table closes the session, and is written to
the file that ``MEMSWEEP_DRILL_OUT`` names.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from s3_server import S3Server
    from tally import Tally

# Set before anything imports torch, Ray or MLflow, and inherited by every process that a test starts.
os.environ.update(
    OMP_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
    RAY_AUTH_MODE="disabled",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS="0",
    RAY_AIR_NEW_OUTPUT="0",
    RAY_SCHEDULER_EVENTS="0",
    TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1",
    TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S="0",
    MLFLOW_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="true",
    MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
    MPLBACKEND="agg",
    MEMSWEEP_NO_PAGE="1",  # a test of the live page asks for it
)
# What storage does not take goes to the user's own state; that of the tests is theirs.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="memsweep-tests.")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
# Ray is polite to other programs, and would do nothing while the tests beside it compute.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.update(RAY_worker_niceness="0")
# A shell that starts the tests in the background lets them ignore Ctrl-C, and with them all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The gate must not depend on luck: in CI hypothesis tries the same examples every time.
settings.register_profile("gate", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("gate")

# Workers of pytest-xdist have 80 columns, and a shell may have others: a test that asks for some sets them.
os.environ.pop("COLUMNS", None)

# A developer's own servers are no place for test results.
_SERVERS = {"RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "MEMSWEEP_RESULTS", "MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID"}
for name in [*os.environ]:
    if name in _SERVERS or name.startswith(("AWS_", "RAY_AUTH_TOKEN", "MLFLOW_TRACKING_")):
        os.environ.pop(name)


class MissingError(Exception):
    """Something that a test needs from the system is not there; the message says what and how to get it."""


def _browser() -> str:
    if importlib.util.find_spec("playwright") is None:
        raise MissingError("playwright is not installed (it comes with `make env`)")
    asked = os.environ.get("MEMSWEEP_CHROMIUM")
    for name in [asked] if asked else ["chromium", "chromium-browser", "google-chrome"]:
        if found := shutil.which(name):
            return found
    raise MissingError(f"no browser: {asked or 'chromium'} is not on PATH (make ci-deps, or set MEMSWEEP_CHROMIUM)")


def _containers() -> str:
    import containers

    try:
        return containers.engine()
    except (containers.ContainersError, subprocess.TimeoutExpired) as error:
        raise MissingError(
            f"no container engine answers, and {containers.RIG} names no rig: {str(error).splitlines()[-1]}"
        ) from None


def _tools(name: str, asked: str | None) -> Path:
    """The folder of the programs that make installs apart from everything else."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(asked) if asked else cache / "memsweep-ci" / name / "bin"


def _s3() -> str:
    place = _tools("swift", os.environ.get("MEMSWEEP_SWIFT"))
    if (place / "swift-proxy-server").is_file():
        return str(place)
    raise MissingError(f"no S3 server: {place} has no swift-proxy-server (make ci-deps, or set MEMSWEEP_SWIFT)")


def _mkdocs() -> str:
    program = _tools("site", os.environ.get("MEMSWEEP_SITE")) / "mkdocs"
    if program.is_file():
        return str(program)
    raise MissingError(f"no {program} (make site, make ci-deps, or set MEMSWEEP_SITE)")


_NEEDS: dict[str, Callable[[], str]] = {
    "browser": _browser,
    "containers": _containers,
    "mkdocs": _mkdocs,
    "s3": _s3,
}


@cache
def _look_for(name: str) -> tuple[str, str]:
    """(where it is, "") or ("", why it is missing)."""
    try:
        return _NEEDS[name](), ""
    except MissingError as missing:
        return "", str(missing)


def _required() -> set[str]:
    return {name.strip() for name in os.environ.get("MEMSWEEP_REQUIRE", "").split(",") if name.strip()}


def requires(name: str) -> str:
    """The path of what a test needs, or a skip with the reason (a failure where MEMSWEEP_REQUIRE names it).

    Args:
        name: ``browser`` (gives Chromium's path), ``containers``
            (the engine's path), ``mkdocs`` (its path) or ``s3`` (the folder of an S3 server's programs).
    """
    place, why = _look_for(name)
    if place:
        return place
    if name in _required():
        pytest.fail(f"MEMSWEEP_REQUIRE asks for {name}, but {why}", pytrace=False)
    pytest.skip(why)


@pytest.fixture(scope="session")
def mkdocs() -> str:
    """The program that makes a site of the pages."""
    return requires("mkdocs")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with the bucket ``studies``, for the whole session."""
    import s3_server

    with s3_server.running(Path(requires("s3")), tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket("studies")
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, with its owner's keys in the environment."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture(scope="module", autouse=True)
def _no_database_is_left_to_later_tests() -> Iterator[None]:
    """``mlflow.set_tracking_uri`` sets the environment: later sweeps in this process would write elsewhere."""
    before = os.environ.get("MLFLOW_TRACKING_URI")
    yield
    assert os.environ.get("MLFLOW_TRACKING_URI") == before


@pytest.fixture(scope="module", autouse=True)
def _parts_of_workspaces_end_with_their_tests() -> Iterator[None]:
    """A sweep inside a test imports its workspace's tasks: they stay registered in the process, for tests of others."""
    from memsweep import registry

    before = {kind: dict(parts) for kind, parts in registry._parts.items()}
    yield
    for kind, parts in registry._parts.items():
        for name in {name for found in registry._of_files.values() for of, name, _ in found if of == kind}:
            if name in before[kind]:
                parts[name] = before[kind][name]
            elif name in parts and not registry.is_own(parts[name]):
                del parts[name]


@pytest.fixture
def chromium() -> str:
    """The path of the browser."""
    return requires("browser")


_CACHES = {
    ".benchmarks",
    ".nv",
    ".triton",
    ".cache",
    ".config",
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
}
"""Traces that programs may leave where a test may leave nothing: matplotlib makes its .config, pytest-benchmark its
.benchmarks."""
_AROUND: pytest.StashKey[set[str]] = pytest.StashKey()


def _around(root: Path) -> set[str]:
    """The entries at the top of the file system, in HOME and in the checkout, but for caches."""
    found = [entry for place in ("/", _HOME, root) for entry in os.scandir(place)]
    return {entry.path for entry in found if entry.name not in _CACHES}


_HOME = os.path.expanduser("~")  # of the user, before a test gives it another


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """After the test's fixtures have ended: nothing may be left outside of its temporary folder."""
    result = yield
    before = item.config.stash[_AROUND]
    now = item.config.stash[_AROUND] = _around(item.config.rootpath)
    if left := sorted(now - before):
        pytest.fail(f"while this test ran, there came {', '.join(left)}: use tmp_path", pytrace=False)
    return result


_TALLY: pytest.StashKey[Tally] = pytest.StashKey()


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Tally:
    """Where a drill notes its faults: ``tally.record(kind, injected, lost, rerun, equal)``."""
    from tally import Tally

    return request.config.stash.setdefault(_TALLY, Tally())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several hands its counts to the one that prints the table."""
    drilled = session.config.stash.get(_TALLY, None)
    if drilled is not None and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tally"] = drilled.data()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    from tally import Tally

    if data := getattr(node, "workeroutput", {}).get("tally"):
        node.config.stash.setdefault(_TALLY, Tally()).add(data)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    drilled = config.stash.get(_TALLY, None)
    if drilled is None or not drilled.counts:
        return
    terminalreporter.section("drills")
    for line in drilled.lines():
        terminalreporter.write_line(line)
    if where := os.environ.get("MEMSWEEP_DRILL_OUT"):
        drilled.write(Path(where))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_AROUND] = _around(config.rootpath)
    if unknown := sorted(_required() - set(_NEEDS)):
        raise pytest.UsageError(
            f"MEMSWEEP_REQUIRE names {', '.join(unknown)}; it may name {', '.join(sorted(_NEEDS))} (commas between)."
        )


def every_value_once(cases: Sequence[set[Hashable]]) -> set[int]:
    """Which of the cases to run so that each of their values comes at least once, and all about as often."""
    left, used = set[Hashable]().union(*cases), Counter[Hashable]()
    chosen: set[int] = set()
    while left:
        others = sorted(set(range(len(cases))) - chosen)
        best = min(others, key=lambda number: (-len(left & cases[number]), sum(used[value] for value in cases[number])))
        chosen.add(best)
        used.update(cases[best])
        left -= cases[best]
    return chosen


def values_of(case: pytest.Function) -> set[Hashable]:
    """The values from each of a case's parametrizations and parametrized fixtures."""
    rest, values = dict(case.callspec.params), set[Hashable]()
    for marker in case.iter_markers("parametrize"):
        names = re.findall(r"\w+", marker.args[0]) if isinstance(marker.args[0], str) else marker.args[0]
        values.add((*names, repr([rest.pop(name, None) for name in names])))
    return values | {(name, repr(value)) for name, value in rest.items()}


_NAMES = Path(__file__).with_name("slow.txt")
_SLOW = frozenset(_NAMES.read_text().split() if _NAMES.exists() else ())


def is_slow(item: pytest.Item) -> bool:
    """Whether ``tests/slow.txt`` names the test or its file."""
    name = item.nodeid.partition("[")[0]
    return name in _SLOW or name.partition("::")[0] in _SLOW


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest leaves out what -m does not ask for, and after it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    for item in filter(is_slow, items):
        item.add_marker(pytest.mark.slow)
    tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        later = item.get_closest_marker("more") or item.get_closest_marker("drill")
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not later:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        chosen = every_value_once([values_of(case) for case in cases])
        for number, case in enumerate(cases):
            if number not in chosen:
                case.add_marker(pytest.mark.more)
    result = yield
    if _UNTIL:
        files = list(dict.fromkeys(item.path for item in items))
        first = _UNTIL // 86400 % max(len(files), 1)
        turn = {file: (place - first) % len(files) for place, file in enumerate(files)}
        items.sort(key=lambda item: turn[item.path])
    return result


_UNTIL = int(os.environ.get("MEMSWEEP_UNTIL") or 0)
_LATE = "the time of this run is over"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _UNTIL and time.time() > _UNTIL:
        pytest.skip(_LATE)
    for name in _NEEDS:
        if item.get_closest_marker(name):
            requires(name)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """A marked test that skips by itself, for whatever reason, fails as well where its need is required."""
    outcome = yield
    report = outcome.get_result()
    wanted = sorted(name for name in _required() if item.get_closest_marker(name))
    if report.skipped and wanted and not hasattr(report, "wasxfail") and _LATE not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped, but MEMSWEEP_REQUIRE asks for {', '.join(wanted)}: {report.longrepr}"
