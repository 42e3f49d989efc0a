"""Plain words: nine of ten sentences of the users' documents are short, and docstrings begin with a subject.

Counted are the sentences of paragraphs and of list items. Left out are code blocks, tables, headings, pictures, HTML
and the targets of links; a piece of code within a sentence counts as one word.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paths import ROOT

DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in [
        *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "help").glob("*.md"),
        *(ROOT / "docs" / "evidence").glob("*.md"),
    ]
)
LONG = 25
"""Words of a long sentence."""
ALLOWED = 0.1
"""Share of the sentences that may be long."""
READING = 20_000
"""Words of all pages for users: an evening's reading."""
OLDER = ("learning", "measures", "report", "stability")
"""Rooms of the engine whose docstrings are not yet held to begin with a subject."""

FENCE = re.compile(r"^\s*```.*?^\s*```\s*$", re.MULTILINE | re.DOTALL)
NO_PROSE = re.compile(r"^\s*(\||#|<|!\[|\[[^\]]+\]:|-{3,}\s*$)")
ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^()]*(?:\([^()]*\)[^()]*)*\)")
CODE = re.compile(r"(`+)(.+?)\1")
SHORT_FORMS = re.compile(r"\b(e\.g|i\.e|cf|vs|al|Fig|Eq|Sec|No|approx|resp)\.(?=\s)")
# a new sentence starts with a capital letter, a figure, code or emphasis
END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_\[]*[A-Z0-9§])")


def paragraphs(text: str) -> list[str]:
    """The paragraphs and list items of a document, each on one line, markdown and all."""
    found: list[str] = []
    inside = False
    for line in FENCE.sub("\n", text).splitlines():
        if not line.strip() or NO_PROSE.match(line):
            inside = False
        elif inside and not ITEM.match(line):
            found[-1] += " " + line.strip()
        else:
            found.append(line.strip())
            inside = True
    return found


def sentences(text: str) -> list[str]:
    """The sentences of a document, each piece of code as ``CODE``."""
    found = []
    for paragraph in paragraphs(text):
        plain = SHORT_FORMS.sub(r"\1", CODE.sub("CODE", LINK.sub(r"\1", ITEM.sub("", paragraph))))
        found += [sentence for sentence in END.split(plain) if re.search(r"\w", sentence)]
    return found


def words(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_nine_of_ten_sentences_are_short(document: str) -> None:
    found = sentences((ROOT / document).read_text(encoding="utf-8"))
    long = sorted((sentence for sentence in found if words(sentence) >= LONG), key=words, reverse=True)
    surplus = len(long) - int(ALLOWED * len(found))
    assert surplus <= 0, (
        f"{document}: {len(long)} of {len(found)} sentences have {LONG} words or more, at most "
        f"{int(ALLOWED * len(found))} may. Split {surplus} of these (subject, verb, object):\n"
        + "\n".join(f"- {words(sentence)} words: {sentence}" for sentence in long)
    )


def test_a_long_sentence_is_found_and_code_tables_and_targets_are_not_counted() -> None:
    long = "This sentence has [a link](docs/a%20page.md) and " + "very " * 20 + "long."
    code = "A command is `memsweep plan " + "word " * 30 + "`, which is one word. It ends e.g. here."
    text = f"# {long}\n\n{code}\n\n| {long} |\n\n```bash\n{long}\n```\n\n- {long}\n"
    assert [words(sentence) for sentence in sentences(text)] == [8, 4, 27]


def users_pages() -> list[Path]:
    """README.md, docs/README.md, and the pages of its tables that are read to use memsweep, here or on a cluster."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    tables = "".join(re.findall(r"^\| (?:to use it|on a cluster) \| \|\n(?:\|.*\n)+", index, re.MULTILINE))
    rows = re.findall(r"^\| (\[.*?) \| ", tables, re.MULTILINE)
    linked = [target for row in rows for target in re.findall(r"\]\(([^)#]+)", row)]
    return [ROOT / "README.md", ROOT / "docs" / "README.md", *((ROOT / "docs" / target).resolve() for target in linked)]


def everything_read(text: str) -> int:
    """The words of a page, with those of tables and headings; blocks of code and the targets of links aside."""
    return words(LINK.sub(r"\1", FENCE.sub("\n", text)))


def test_the_users_pages_are_an_evenings_reading() -> None:
    pages = users_pages()
    helping = {*(ROOT / "docs" / "help").glob("*.md")} - {ROOT / "docs" / "help" / "glossary.md"}
    assert helping <= {*pages}
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages}
    read = {name: everything_read(text) for name, text in texts.items()}
    assert sum(read.values()) <= READING, (
        f"{sum(read.values()):,} words; what is measured goes to docs/evidence: {read}"
    )
    found = [sentence for text in texts.values() for sentence in sentences(text)]
    long = sum(words(sentence) >= LONG for sentence in found)
    assert long <= ALLOWED * len(found), f"{long} of {len(found)} sentences have {LONG} words or more"


def test_words_of_tables_are_counted() -> None:
    assert everything_read("# One two\n\n| three | [four](five.md) |\n|---|---|\n\n```bash\nsix\n```\n") == 4


def test_docstrings_begin_with_a_subject() -> None:
    older = tuple(ROOT / "platform" / "memsweep" / room for room in OLDER)
    files = [
        path
        for folder in ("platform", "tasks", "tests", "benchmarks", "docker", "plugins")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if not any(path.is_relative_to(room) for room in older)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r'\s*r?"""What\b', line)
    ]
    assert not found, (
        'begin with a subject or a verb ("The rows of ...", "Returns ..."), not with "What":\n' + "\n".join(found)
    )
