"""The documents tell the truth: their commands run, and what they name is there.

Every fenced ```bash block of the documents is read, so a new command is tested without an edit here.

- ``memsweep ...`` runs for real, in the order of the documents, in a copy of the workspace that starts without
  results, with settings that make it small (``TINY``; what the command sets itself is kept).
- ``make TARGET ...`` is expanded by ``make -n``; a memsweep command in its recipe then runs as above. ``make help``
  runs.
- Of all else, the shell must be able to parse it and every path of the repository that it names must exist.

What the reader is to make is named ``my_...`` (``search_spaces/my_study.yaml``, ``memsweep sweep my_study``): it is not
there yet and is not run.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsweep.cli import main
from paths import ROOT

DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/using.md",
    "docs/weights.md",
    "docs/reports.md",
    "docs/installing.md",
    "docs/json.md",
]
HELP = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "help").glob("*.md"))
PAGES = [
    *DOCUMENTS,
    "SECURITY.md",
    "docs/README.md",
    "docs/catalogue.md",
    "docs/json_keys.md",
    "docs/gallery.md",
    *HELP,
]
TINY = {
    "training.seeds": "2",
    "training.steps": "3",
    "training.batch_size": "8",
    "training.validation_size": "16",
    "perturbation.radii.count": "4",
    "perturbation.starts": "0",
    "perturbation.ascent_steps": "1",
    "model.width": "2",
    "task.horizon": "8,12",
}
RUN_FOR_REAL = {"sweep", "measure", "weights", "plan", "report", "list", "describe", "schema"}
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
SEPARATORS = {"|", "||", "&&", "&", ";"}


def blocks(document: str) -> list[str]:
    """The ```bash blocks of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = FENCE.findall(text)
    evading = sorted({language for language, _ in found} & {"sh", "shell", "console", "zsh"})
    assert not evading, f"{document}: write commands in ```bash blocks, so that they are tested, not in {evading}"
    return [body for language, body in found if language == "bash"]


def commands(block: str) -> Iterator[list[str]]:
    """The simple commands of a block as words, without comments, redirections, here-documents and assignments."""
    lines = iter(block.replace("\\\n", " ").splitlines())
    for line in lines:
        if here := HEREDOC.search(line):
            for body in lines:
                if body.strip() == here.group(1):
                    break
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in SEPARATORS:
                if words := _plain(words):
                    yield words
                words = []
            else:
                words.append(word)


def _plain(words: list[str]) -> list[str]:
    for i, word in enumerate(words):
        if word[0] in "<>":
            return _plain(words[:i])
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
        words = words[1:]
    return words


def memsweep_arguments(words: list[str]) -> list[str] | None:
    """The words after ``memsweep`` or ``python -m memsweep``; None for another command."""
    if Path(words[0]).name == "memsweep":
        return words[1:]
    if Path(words[0]).name.startswith("python") and words[1:3] == ["-m", "memsweep"]:
        return words[3:]
    return None


def shell(arguments: list[str], folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    # a surrounding make hands its own command line on: through MAKEFLAGS, and as variables
    from_make = ("MAKE", "MFLAGS", "ARGS", "STUDY", "RESULTS", "PORT")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(from_make)}
    return subprocess.run(
        arguments,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of what a researcher edits, with no results in it."""
    for folder in ("tasks", "search_spaces"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.more
def test_the_commands_of_the_documents_work(workspace: Path) -> None:
    done: set[tuple[str, ...]] = set()
    wrong = []
    for document in DOCUMENTS:
        shown = [tuple(words) for block in blocks(document) for words in commands(block)]
        assert shown, f"{document} shows no command in a ```bash block"
        for words in dict.fromkeys(shown):
            if words not in done:
                done.add(words)
                wrong += [f"{document}: {shlex.join(words)}\n{problem}" for problem in problems([*words], workspace)]
    assert not wrong, "\n\n".join(wrong)


def problems(words: list[str], workspace: Path) -> Iterator[str]:
    arguments = memsweep_arguments(words)
    if arguments is not None:
        yield from run_memsweep(arguments, workspace)
    elif words[0] == "make":
        yield from run_make(words, workspace)
    else:
        yield from missing_paths(words)


def run_make(words: list[str], workspace: Path) -> Iterator[str]:
    if words == ["make"] or "help" in words[1:]:
        done = shell(words, ROOT, 600)
        if done.returncode or "make sweep" not in done.stdout:
            yield done.stdout + done.stderr
        return
    done = shell(["make", "-n", *words[1:]], ROOT, 600)
    if done.returncode or not done.stdout.strip():
        yield done.stderr or "make -n prints nothing: does this target do anything?"
        return
    for block in done.stdout.splitlines():
        if re.match(r"\S*python\S* -m memsweep ", block):
            yield from problems(next(commands(block)), workspace)


def run_memsweep(arguments: list[str], workspace: Path) -> Iterator[str]:
    positional = [argument for argument in arguments if not argument.startswith("-")]
    is_help = bool({"--help", "-h", "--version"} & set(arguments))
    of_the_reader = any(Path(word).stem.startswith("my_") for word in positional)
    if not is_help and (of_the_reader or "--address" in arguments or not RUN_FOR_REAL & set(positional[:1])):
        yield from unknown_flags(arguments, workspace)
        return
    if positional[:1] == ["sweep"] and not is_help:
        arguments = [*arguments, *([] if "--inline" in arguments else ["--inline"]), *tiny(arguments)]
    if positional[:1] == ["plan"] and not is_help:
        arguments = [*arguments, "--no-probe"]
    status, shown = memsweep(arguments, workspace)
    if status or not shown.strip():
        yield f"exit {status} of: memsweep {shlex.join(arguments)}\n{shown}"


# A process of its own for each command, but all are copies of one that has imported what takes seconds to import.
STARTED = multiprocessing.get_context("forkserver")
STARTED.set_forkserver_preload(["memsweep.studies.run", "mlflow", "matplotlib.pyplot", "memsweep.trial"])


def memsweep(arguments: list[str], folder: Path) -> tuple[int | None, str]:
    """``memsweep ARGUMENTS`` in a folder: its exit code, and all that it printed."""
    log = folder / ".shown"
    process = STARTED.Process(target=run_command, args=(arguments, folder, log))
    process.start()
    process.join(1200)
    process.kill()
    return process.exitcode, log.read_text(encoding="utf-8", errors="replace")


def run_command(arguments: list[str], folder: Path, log: Path) -> None:
    os.chdir(folder)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(main(arguments))


def tiny(arguments: list[str]) -> list[str]:
    """The overrides that make a sweep small, but for paths that the command sets itself."""
    own = {argument.partition("=")[0].lstrip("~+").removeprefix("grid.") for argument in arguments}
    return [f"{path}={value}" for path, value in TINY.items() if path not in own]


def unknown_flags(arguments: list[str], workspace: Path) -> Iterator[str]:
    """For a command that cannot run here: its subcommand and its flags must stand in the help."""
    subcommand = [word for word in arguments if not word.startswith("-")][:1]
    status, shown = memsweep([*subcommand, "--help"], workspace)
    if status:
        yield shown
    for flag in (word.partition("=")[0] for word in arguments if word.startswith("-")):
        if not re.search(rf"(?<![\w-]){re.escape(flag)}\b", shown):
            yield f"memsweep {' '.join(subcommand)} --help knows no {flag}"


def missing_paths(words: list[str]) -> Iterator[str]:
    for word in words:
        is_path = "/" in word or Path(word).suffix in {".md", ".py", ".toml", ".txt", ".yaml", ".yml", ".sh"}
        is_elsewhere = "://" in word or re.match(r"[-/~$<]|\.venv\b|results\b|\.\./?$|\./?$", word) or "=" in word
        if is_path and not is_elsewhere and not Path(word).stem.startswith("my_") and not (ROOT / word).exists():
            yield f"there is no {word} in the repository"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_shell_can_parse_every_block(document: str) -> None:
    for block in blocks(document):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{document}:\n{block}\n{done.stderr}"


@pytest.mark.parametrize("document", PAGES)
def test_links_and_named_paths_exist(document: str) -> None:
    """Relative links, and `paths/in/backticks` that begin with a folder of the repository."""
    text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    linked = {target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in target}
    folders = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")))
    named = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", text))
    elsewhere = ("results/", "mailto:")
    places = {path: (ROOT / document).parent / path for path in linked} | {path: ROOT / path for path in named}
    for path, place in sorted(places.items()):
        if not path.startswith(elsewhere) and not Path(path).stem.startswith("my_"):
            assert place.exists(), f"{document} names {path}, which is not there"


_NAMED_PAGE = re.compile(r"\bdocs/(?:\w+/)*\w+\.(?:md|ipynb)\b")
_NO_PAGES = {"docs/api.md", "docs/no_such_page.md"}
"""One that ``make site`` makes, and one that a test of this file wants to be missing."""
_TEXTS = {".env", ".ipynb", ".json", ".md", ".py", ".sh", ".yaml"}


def named_pages() -> dict[str, set[str]]:
    """Pages of docs/ that any file of the repository names -> the files; of those that are there, too."""
    found: dict[str, set[str]] = {}
    rooms = ("benchmarks", "deploy", "docker", "docs", "platform", "plugins", "search_spaces", "tasks", "tests")
    inside = [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in _TEXTS]
    for path in [*inside, *ROOT.glob("*.md"), *ROOT.glob("*.yml"), *ROOT.glob(".*.yaml"), ROOT / "Makefile"]:
        for page in _NAMED_PAGE.findall(path.read_text(encoding="utf-8")):
            found.setdefault(page, set()).add(str(path.relative_to(ROOT)))
    return found


def test_no_file_sends_readers_to_a_page_that_is_gone() -> None:
    """In code, help, manifests and stored figures as in documents: a page that moved has one address."""
    found = named_pages()
    gone = {page: files for page, files in found.items() if not (ROOT / page).is_file()}
    assert {*gone} == _NO_PAGES, gone


def test_a_link_that_shows_the_name_of_a_page_goes_there() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]:
        shown = re.findall(r"\[([\w./]+\.md)\]\(([^)#\s]*)", path.read_text(encoding="utf-8"))
        wrong = [(label, target) for label, target in shown if Path(label).name != Path(target).name]
        assert not wrong, f"{path.relative_to(ROOT)}: {wrong}"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("make test  # all of them\n", [["make", "test"]]),
        ("A=1 memsweep plan x model.width=[2,4] && ls docs | head\n",
         [["memsweep", "plan", "x", "model.width=[2,4]"], ["ls", "docs"], ["head"]]),
        ("memsweep sweep x \\\n  'grid.task=[{kernel: sine}]' > log.txt\n",
         [["memsweep", "sweep", "x", "grid.task=[{kernel: sine}]"]]),
        ("cat > a.yaml <<'EOF'\ngone: here\nEOF\nmake help\n", [["cat"], ["make", "help"]]),
    ],
)  # fmt: skip
def test_commands_are_read_as_the_shell_reads_them(block: str, expected: list[list[str]]) -> None:
    assert list(commands(block)) == expected


def test_a_lie_is_caught(tmp_path: Path) -> None:
    """A guard that cannot fail guards nothing."""
    assert list(problems(["make", "no-such-target"], tmp_path))
    assert list(problems(["cat", "docs/no_such_page.md"], tmp_path))
    assert list(problems(["memsweep", "no-such-command"], tmp_path))
    assert not list(problems(["cat", "pyproject.toml", "tasks/my_task.py", "results/x/report/index.html"], tmp_path))


_MINUTES = {1: "a minute", 2: "two minutes", 3: "three minutes", 4: "four minutes", 5: "five minutes"}
_TAKES = {
    "README.md": r"runs the study `quickstart` \(600 models, ([\w ]+) on two cores\)",
    "search_spaces/start/quickstart.yaml": r"memsweep sweep quickstart: 120 trials of 5 seeds, ([\w ]+) on two cores",
}


def test_quickstart_takes_what_was_measured() -> None:
    """A duration that stands in several places is one: that of docs/evidence/speed.md."""
    speed = (ROOT / "docs" / "evidence" / "speed.md").read_text()
    (row,) = re.findall(r"^\| `quickstart` \| (\d+) \| ([\d,]+) \|", speed, re.MULTILINE)
    trials, per_hour_and_core = (int(number.replace(",", "")) for number in row)
    measured = _MINUTES[round(60 * trials / (2 * per_hour_and_core))]
    for file, pattern in _TAKES.items():
        (said,) = re.findall(pattern, (ROOT / file).read_text())
        assert said == measured, file
