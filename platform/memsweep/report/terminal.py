"""Verdicts on a terminal: those of a report with all its tables, and each alone as soon as a sweep has it."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from memsweep.errors import StoreError, columns_of
from memsweep.report.analysis.bounds import MARK
from memsweep.report.analysis.contents import Contents, Finding, judge_conditions
from memsweep.report.headline.answer import StudyAnswer, answer_of
from memsweep.report.headline.evidence import gap_of
from memsweep.report.naming.conditions import Labels, find_grouping, planned_replicas
from memsweep.report.naming.guesses import guessed_roles
from memsweep.report.naming.numbers import clean, slope_text
from memsweep.report.naming.objective import objectives
from memsweep.report.read.failures import failure_lines
from memsweep.report.read.study import Study, measured_again, not_measured
from memsweep.report.rows.losses import BASELINE, across_means, has_baseline
from memsweep.report.rows.report import Tables, cells_mean
from memsweep.report.rows.verdicts import LETTERS, SHORT, SHORT_KEY, SIGNS, judged, overviews, referred
from memsweep.report.values.section import Place, Section, placed
from memsweep.report.values.table import TERMINAL, Cell, Line, Table, View
from memsweep.stability.verdict.judgement import Verdict
from memsweep.sweep.store.results import Store

if TYPE_CHECKING:
    from memsweep.report.values.side_by_side import SideBySide

_Part = Grid | Text | str
_WIDEST, _PLAIN = 120, 110
_INDENT = "  "
_GAP, _LEAST = 2, 5  # between columns; letters in a line of a name
_NAMES = ("", "name")  # styles of columns whose cells may take several lines
_WORD = re.compile(r"[^\s_]+[\s_]*(?:· )?|[\s_]+")
_FORMS = ((0, False), (0, True), (1, True), (2, True))  # of the cells, longest first; whether headings are broken
_MOST_WINNERS = 20  # beside a table of the models by task
_MOST_ROWS, _MOST_REASONS, _LONGEST_REASON = 60, 6, 330
STYLES = {
    **{"stable": "bold green", "unstable": "bold red", "inconclusive": "bold yellow", "bad": "bold red"},
    **{"agrees": "bold green", "disagrees": "bold red", "undecided": "bold yellow"},
    "apart": "bold",
}
_MARK_KEY = f"{MARK} {SHORT}"


def report_text(
    contents: Contents,
    tables: Tables,
    *,
    width: int | None = None,
    colour: bool | None = None,
    advice: bool = True,
) -> str:
    """The verdicts, losses and claims of a report for a terminal.

    Args:
        contents, tables: of the report.
        width: columns to fill (None: the terminal's, at most 120; in a pipe or file those of COLUMNS, or 110).
        colour: write ANSI colours (None: only when standard output is a terminal).
        advice: name the command that would decide; `decide` says itself what comes next.
    """
    return _printed(lambda columns: _parts(contents, tables, columns, advice=advice), width, colour)


def measured_text(tables: Tables) -> str:
    """What was measured of one model beside the perturbation error, without colours, as wide as a report may be.

    What all rows have in common is left out, as the module's width is: of one in memory nobody said it.
    """
    sections = [section.varying() for section in tables.sections]
    return _printed(lambda columns: _sections(sections, Place.MEASURED, columns), None, colour=False)


def comparison_text(found: SideBySide, *, width: int | None = None, colour: bool | None = None) -> str:
    """A comparison for a terminal; ``width`` and ``colour`` as of ``report_text``."""
    return _printed(lambda columns: _compared(found, columns), width, colour)


def _printed(parts: Callable[[int], Iterator[_Part]], width: int | None, colour: bool | None) -> str:
    """Parts that fill so many columns, as text; a note on the mark stands only where a mark is printed."""
    colour = sys.stdout.isatty() if colour is None else colour
    if width is None:
        width = min(_WIDEST, columns_of(sys.stdout, _PLAIN))
    made = [*parts(width)]
    noteless = [part for part in made if not (isinstance(part, str) and part.startswith(MARK))]
    text = _drawn(noteless, width, colour)
    return _drawn(made, width, colour) if len(noteless) < len(made) and MARK in text else text


def _drawn(parts: Sequence[_Part], width: int, colour: bool) -> str:
    buffer = io.StringIO()
    shown: dict[str, Any] = {"force_terminal": colour, "no_color": not colour, "force_jupyter": False}
    console = Console(file=buffer, width=width, highlight=False, **shown)
    before: _Part = ""
    for part in parts:
        if part == before == "":  # one empty line between two parts
            continue
        before = part
        whole = isinstance(part, Text) and bool(part.no_wrap)  # a command, to be copied
        console.print(Text(clean(part)) if isinstance(part, str) else part, soft_wrap=whole)
    return f"{buffer.getvalue().rstrip()}\n"


def _parts(contents: Contents, tables: Tables, width: int, *, advice: bool) -> Iterator[_Part]:
    yield from _answer(answer_of(contents), advice=advice)
    if failed := failure_lines(contents.study.failures)[1:]:  # the headline has the first
        yield from (*failed, "")
    if sentence := judged(contents.criteria):
        yield from (sentence, "")
    yield from _winners(tables, contents, width)
    for section in placed(tables.sections, TERMINAL, Place.FIRST):
        if section.table is not None:
            yield from (f"{section.heading}:", *table_parts(section.table, width), *_below(section), "")
    if contents.verdicts:
        yield from _verdicts(contents, tables, width)
    yield from _sections(tables.sections, Place.MEASURED, width)
    if tables.cells.rows:
        yield from ("", f"{tables.cells.title}:", *table_parts(tables.cells, width), "")
        yield cells_mean(tables.cells, tables.sections)
    yield from _sections(tables.sections, Place.COMPARED, width)
    yield from _sections(tables.sections, Place.CLAIMED, width)
    yield from _losses(contents, tables, width)
    yield from _sections(tables.sections, Place.TRAINED, width)
    if contents.study.records:
        trained = objectives(record["config"] for record in contents.study.records.values())
        yield from ("", f"Trained on: {'; '.join(trained)}.")
        yield from guessed_roles(contents.study.records.values())
        yield from (f"Not measured: {text}." for text in not_measured(contents.study))
        yield from (Text(clean(line), no_wrap=True) for line in measured_again(contents.study))
    yield from _sections(tables.sections, Place.LAST, width)


def _answer(answer: StudyAnswer, *, advice: bool) -> Iterator[_Part]:
    """The headline and what follows it, then the command that decides: whole, so that it can be copied."""
    headline, *more = answer.sentences
    yield Text(clean(headline), style="bold")
    yield from more
    for words, command in answer.commands if advice else ():
        yield Text(f"{words}: {clean(command)}", no_wrap=True)
    yield ""


def _winners(tables: Tables, contents: Contents, width: int) -> Iterator[_Part]:
    if tables.winners is None:
        return
    if tables.across.rows and len(tables.winners.rows) > _MOST_WINNERS:
        yield f"The settings of {len(tables.winners.rows)} winners are in winners.csv of the report."
    elif tables.winners.rows:
        yield from (*table_parts(tables.winners, width), "")
    said = answer_of(contents).more
    yield from (sentence for sentence in tables.searched if sentence not in said)
    yield ""


def _losses(contents: Contents, tables: Tables, width: int) -> Iterator[_Part]:
    if tables.across.rows:
        yield from ("", f"{tables.across.title}:", *table_parts(tables.across, width), "", across_means(tables.across))
    elif tables.losses.rows:
        yield from ("", *table_parts(tables.losses, width))
    if tables.losses.rows and has_baseline(contents.losses):
        yield from ("", f"Medians over seeds [smallest, largest]. {BASELINE}")


def _sections(sections: Sequence[Section], place: Place, width: int) -> Iterator[_Part]:
    for section in placed(sections, TERMINAL, place):
        for table in section.folded:
            yield from ("", f"{section.title}. {table.title}", *table_parts(table, width))
        if section.folded:
            yield from _below(section)
        elif section.table is not None:
            heading = [f"{section.heading}:"] if section.heading else []
            yield from ("", *heading, *table_parts(section.table, width), *_below(section))


def _below(section: Section) -> list[str]:
    """What stands below the table of a section."""
    said = section.words if section.key is None else section.key
    return ["", *said.split("\n")] if said else []


def _compared(found: SideBySide, width: int) -> Iterator[_Part]:
    yield "Studies: " + ", ".join(f"{letter} = {name}" for name, letter in found.letters.items())
    yield from ("", *found.answers)
    for section in found.sections:
        if section.table is not None:
            yield from ("", f"{section.heading or section.title}:", "")
            yield from (*table_parts(section.table, width), *_below(section))


def _verdicts(contents: Contents, tables: Tables, width: int) -> Iterator[_Part]:
    # the winners of a search stand in its own table: verdicts without any slope add nothing
    said = contents.searched is None or any(finding.deciding[1].available for finding in contents.verdicts)
    if said:
        yield from _grids(contents, tables, width)
        yield from ("", referred(contents.verdicts))
    if any(finding.marked for finding in contents.verdicts):
        yield from ("", _MARK_KEY)
    if fixed := contents.grouping.throughout():
        yield from ("", _throughout(fixed))
    if said:
        if coupled := contents.grouping.coupled:
            yield from ("", f"These change together with width or horizon: {', '.join(coupled)}.")
        yield from _undecided(contents)


def _grids(contents: Contents, tables: Tables, width: int) -> Iterator[_Part]:
    if tables.overviews or not fits(tables.verdicts, width):
        for table in tables.overviews or overviews(contents.verdicts, contents.labels):
            yield from (f"{table.title}:", *table_parts(table, width), "")
        yield SHORT_KEY
    else:
        yield from table_parts(tables.verdicts, width, throughout=False)  # what is fixed in the study says it all


def _undecided(contents: Contents) -> Iterator[str]:
    """Each reason once, with the conditions that it holds for."""
    labels, reasons = contents.labels, dict[str, dict[tuple[str, str], list[str]]]()
    for finding in contents.verdicts:
        if finding.judgement.verdict is Verdict.INCONCLUSIVE:
            place = finding.ball, labels.memory(finding.condition)
            of_reason = reasons.setdefault(gap_of(finding).several, {})
            of_reason.setdefault(place, []).append(labels.machine(finding.condition))
    if reasons:
        yield ""
    for reason, places in [*reasons.items()][:_MOST_REASONS]:
        count = sum(map(len, places.values()))
        names = [f"{memory} ({ball}): {', '.join(machines)}" for (ball, memory), machines in places.items()]
        line = f"{count} inconclusive, {reason}. {'; '.join(names)}."
        yield textwrap.shorten(line, _LONGEST_REASON, placeholder=" …")
    if len(reasons) > _MOST_REASONS:
        yield f"{len(reasons) - _MOST_REASONS} more reasons are in the report."
    if reasons:
        yield "The reasons in full are in verdicts.csv of the report."


def fits(table: Table[Any], width: int) -> bool:
    """Whether a table can be shown without cutting or shortening a value."""
    return _needed(_widths(table.view(TERMINAL), 0, broken=False)) <= width


def table_parts(table: Table[Any], width: int, *, throughout: bool = True) -> Iterator[_Part]:
    """A table of at most 60 lines, its groups under their headings, in the longest form that fits the width.

    ``throughout``: what all lines have in common stands below.
    """
    view = table.view(TERMINAL)
    if (form := _fitting(view, width)) is None and _is_wide(view):
        turned = _turned(view)
        form = _fitting(turned, width)
        view = turned if form else view
    level, broken = form or _FORMS[-1]
    view, left_out = _narrowed(view, level, width)
    widths = _shrunk(_widths(view, level, broken=broken), view, width)
    yield _grid(view, widths, [])
    left, alike, hides = _MOST_ROWS, 0, left_out or any(TERMINAL not in column.views for column in table.columns)
    for heading, lines in view.groups.items():
        if heading and left:
            yield Text(clean(heading), style="bold")
        # rows that differ only in columns that do not stand here are one line
        merged = [*{tuple(cell.form(level) for cell in line): line for line in lines}.values()] if hides else lines
        alike += len(lines) - len(merged)
        if distinct := merged[:left]:
            indent = _INDENT if heading else ""
            yield _grid(view, widths, [_texts(view, line, level, indent, widths) for line in distinct])
        left -= len(distinct)
    if alike:
        yield f"{alike} more look{'s' if alike == 1 else ''} alike here: {table.name}.csv of the report has all."
    if (more := sum(map(len, view.groups.values())) - alike - _MOST_ROWS) > 0:
        yield f"{more} more are in {table.name}.csv of the report."
    if left_out:
        yield from ("", f"No room here for {', '.join(left_out)}: {table.name}.csv of the report has it all.")
    if throughout and view.throughout:
        yield from ("", _throughout(view.throughout))


def _fitting(view: View, width: int) -> tuple[int, bool] | None:
    """The longest form in which a table fits; None where names must be broken."""
    return next((form for form in _FORMS if _needed(_widths(view, form[0], broken=form[1])) <= width), None)


def _is_wide(view: View) -> bool:
    """Whether names head the columns as they head the lines, and there are more columns than lines."""
    first, *others = view.columns
    named = first.style in _NAMES and not any(column.style for column in others)
    return named and len(others) > sum(map(len, view.groups.values()))


def _turned(view: View) -> View:
    """The same cells with columns as lines: a name has room in a line that it has not over a narrow column."""
    lines = [(heading, line) for heading, group in view.groups.items() for line in group]
    names = [f"{heading} · {line[0].text}" if heading else line[0].text for heading, line in lines]
    first, *others = view.columns
    columns = [dataclasses.replace(first, name=""), *(dataclasses.replace(others[0], name=name) for name in names)]
    turned = [
        (Cell(column.heading), *(line[index] for _, line in lines)) for index, column in enumerate(others, start=1)
    ]
    return dataclasses.replace(view, columns=tuple(columns), groups={"": turned})


def _narrowed(view: View, level: int, width: int) -> tuple[View, list[str]]:
    """A table without those last columns for which there is no room, in their shortest form; and their headings."""
    left_out: list[str] = []
    while view.columns[-1].style not in _NAMES:
        words = [
            _longest_word(view, index, level) if column.style in _NAMES else wide
            for index, (column, wide) in enumerate(zip(view.columns, _widths(view, level, broken=True), strict=True))
        ]
        if _needed(words) <= width:
            break
        left_out.insert(0, view.columns[-1].heading)
        groups = {heading: [line[:-1] for line in lines] for heading, lines in view.groups.items()}
        view = dataclasses.replace(view, columns=view.columns[:-1], groups=groups)
    return view, left_out


def _grid(view: View, widths: Sequence[int], rows: Sequence[Sequence[Text]]) -> Grid:
    """Rows of texts in columns of these widths; without rows, the headings alone."""
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), show_header=not rows)
    for column, wide in zip(view.columns, widths, strict=True):
        heading = Text(_wrapped(clean(column.heading), wide))
        grid.add_column(heading, no_wrap=column.style not in _NAMES, overflow="fold", width=wide)
    for row in rows:
        grid.add_row(*row)
    return grid


def _texts(view: View, line: Line, level: int, indent: str, widths: Sequence[int]) -> list[Text]:
    """The cells of a line in their colours, names broken so that they fit and stay different."""
    texts = []
    for index, (column, cell, wide) in enumerate(zip(view.columns, line, widths, strict=True)):
        before = indent if not index else ""
        text = clean(cell.form(level))
        if column.style in _NAMES:
            text = _wrapped(text, wide - len(before)).replace("\n", f"\n{before}")
        texts.append(Text(before + text, style=STYLES.get(cell.tone, "")))
    return texts


def _throughout(values: Mapping[str, str]) -> str:
    return f"Throughout: {', '.join(f'{name} {value}' for name, value in values.items())}."


def _widths(view: View, level: int, *, broken: bool) -> list[int]:
    """The letters that each column needs, with headings in one line or broken between words."""
    indent = len(_INDENT) if any(view.groups) else 0
    widths = []
    for index, column in enumerate(view.columns):
        texts = [line[index].form(level) for lines in view.groups.values() for line in lines]
        longest = max((cell_len(clean(text)) for text in texts), default=0) + (0 if index else indent)
        heading = _WORD.findall(column.heading) if broken else [column.heading]
        widths.append(max([longest, *(len(word.rstrip()) for word in heading)]))
    return widths


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shrunk(widths: Sequence[int], view: View, width: int) -> list[int]:
    """Widths that fit: names are broken between words first, then within words, and only then are values cut."""
    shrunk, every = list(widths), range(len(widths))
    names = [i for i in every if view.columns[i].style in _NAMES]
    words = [_longest_word(view, i, len(_FORMS)) if i in names else 1 for i in every]
    for which, least in ((names, words), (names, [_LEAST] * len(widths)), (every, [1] * len(widths))):
        while _needed(shrunk) > width and (wide := [i for i in which if shrunk[i] > least[i]]):
            shrunk[max(wide, key=shrunk.__getitem__)] -= 1
    return shrunk


def _longest_word(view: View, index: int, level: int) -> int:
    """Letters of the longest word of a column of names, its heading among them."""
    lines = [line for group in view.groups.values() for line in group]
    words = (word for line in lines for word in _WORD.findall(clean(line[index].form(level))))
    return max(map(cell_len, [*words, *view.columns[index].heading.split()]), default=1)


def _wrapped(text: str, wide: int) -> str:
    """A name in lines of at most ``wide`` letters, broken behind blanks and underscores; words that are longer stay."""
    lines = [""]
    for word in _WORD.findall(text):
        if lines[-1] and cell_len((lines[-1] + word).rstrip()) > wide:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)


_READ = ("curves", "replicas", "memory")


class EarlyVerdicts:
    """Judges every condition of a grid once, when its last trial has ended.

    Args:
        store: of the results.
        rows: identity -> config of every planned trial, as plain data.
        done: identities that had a result before; conditions that need no other trial are not judged.
    """

    def __init__(self, store: Store, rows: Mapping[str, Mapping[str, Any]], done: frozenset[str]) -> None:
        known = {identity: {"config": config} for identity, config in rows.items()}
        self._store = store
        self._grouping = find_grouping(known, planned_replicas(rows))
        self._labels = Labels([*self._grouping.conditions.values()])
        self._members: dict[tuple[Any, ...], list[str]] = {}
        for identity in rows:
            self._members.setdefault(self._key(identity), []).append(identity)
        self._waiting = {key: {*members} - done for key, members in self._members.items()}

    def ended(self, identity: str) -> Iterator[tuple[str, str]]:
        """A trial has a result: the lines that can be said now, each with its style."""
        if identity not in self._grouping.conditions:
            return
        waiting = self._waiting[self._key(identity)]
        waiting.discard(identity)
        if not waiting:
            yield from map(self._line, self._judged(self._members[self._key(identity)]))

    def _key(self, identity: str) -> tuple[Any, ...]:
        return tuple(self._grouping.conditions[identity].values())

    def _judged(self, members: list[str]) -> list[Finding]:
        try:
            results = [self._store.result(identity, _READ) for identity in members]
        except StoreError:  # the report says it, with the reason
            return []
        records = dict(zip(members, (record for record, _ in results), strict=True))
        tables = {name: pd.concat([part[name] for _, part in results], ignore_index=True) for name in _READ}
        study = Study("", "", len(members), records, tables, (), 0, None, "")
        return [finding for finding in judge_conditions(study, self._grouping) if finding.needs_verdict]

    def _line(self, finding: Finding) -> tuple[str, str]:
        word, (axis, slope) = finding.judgement.verdict.value, finding.deciding
        name = f"{self._labels.memory(finding.condition)}, {self._labels.machine(finding.condition)}"
        evidence = f"{LETTERS[axis]} {slope_text(slope)}" if slope.available else "no slope"
        return f"{SIGNS[word]} {word}{MARK if finding.marked else ''} {evidence}: {name} ({finding.ball})", STYLES[word]
