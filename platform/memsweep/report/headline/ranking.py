"""Trained models in order: the best of each task, and those whose seeds overlap with its."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from memsweep.errors import counted
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import (
    BELOW,
    MANY_TASKS,
    LossRow,
    Quantity,
    is_equal,
    is_ranked,
    is_unlearned,
    largest,
    level,
    quantities,
    ranked,
    tied,
)
from memsweep.report.headline.paired import paired_sentence, seeds_of_test
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import MOST_NAMED, as_sentences, figure, joined, percent, quoted
from memsweep.report.rows.losses import at_size

FORGETS = f"no model's loss is more than {percent(1 - BELOW)} below that of one that forgets"
RANKING_SEEDS = 4
"""Seeds of each model without which no ranking is resolved: of two models that are alike, all seeds of one lie above
those of the other with a chance of 2 / (2n over n): 0.33, 0.10 and 0.03 for 2, 3 and 4 seeds."""


def ranking_sentence(contents: Contents, by: Quantity | None = None) -> str:
    """The best of each task and those that are level with it; of a single task, how far the others are behind.

    Args:
        contents: of the report.
        by: what ranks them; None: the first of ``quantities``. A task that was not measured so is left out.
    """
    labels, by_memory = contents.labels, dict[str, list[LossRow]]()
    by = by or quantities(contents.losses)[0]
    tasks = {labels.memory(row.condition) for row in contents.losses}
    for row in filter(by.is_known, largest(contents.losses)):
        by_memory.setdefault(labels.memory(row.condition), []).append(row)
    seeds = min(row.seeds for rows in by_memory.values() for row in rows)
    compared = any(len(rows) > 1 for rows in by_memory.values())
    needed = seeds_to_rank(contents, by) if compared and seeds < RANKING_SEEDS else 0
    what = "a ranking" if len(tasks) > 1 else "the test of a ranking"
    few = f"{counted(seeds, 'seed')}: {what} needs {needed}." if needed else ""
    at = at_size([row for rows in by_memory.values() for row in rows], contents.losses)
    if not compared and len(by_memory) > 1:
        return _single(by_memory, labels, by, at)
    if len(tasks) >= MANY_TASKS:
        return f"{_counts(by_memory, labels, by, at)} {few}".strip()
    if len(by_memory) > 1:
        measures = {_measured(row, by)[0] for rows in by_memory.values() for row in rows}
        parts = [
            f"on {memory}{f' by {_measured(rows[0], by)[0]}' if len(measures) > 1 else ''} {_best(rows, labels, by)}"
            for memory, rows in by_memory.items()
        ]
        best_by = f"By {measures.pop()}{at}, best" if len(measures) == 1 else f"Best{at}"
        return f"{best_by} are {'; '.join(parts)}. {few}".strip()
    (rows,) = by_memory.values()
    return _of_one_task(rows, labels, few, by, at)


def seeds_to_rank(contents: Contents, by: Quantity | None = None) -> int:
    """The seeds with which models can be ranked, where they have fewer; else 0.

    Of one task they are those of its test, of several those that part ranges of seeds. Models that diverged are not
    compared, nor are those of a task that none has learned, nor those that are equal, seed by seed: more seeds do not
    help there. ``by``: as of ``ranking_sentence``.
    """
    by_memory: dict[str, list[LossRow]] = {}
    by = by or quantities(contents.losses)[0]
    for row in filter(by.is_known, largest(contents.losses)):
        rows = by_memory.setdefault(contents.labels.memory(row.condition), [])
        if is_ranked(row, by):
            rows.append(row)
    found = [
        rows
        for rows in by_memory.values()
        if any(row.learned for row in rows) and not all(is_equal(rows[0], row, by) for row in rows[1:])
    ]
    if not found:
        return 0
    needed = seeds_of_test(len(found[0])) if len(by_memory) == 1 else RANKING_SEEDS
    return needed if min(row.seeds for rows in found for row in rows) < needed else 0


def _of_one_task(rows: Sequence[LossRow], labels: Labels, few: str, by: Quantity, at: str) -> str:
    """The best, those level with it, and how far the others are behind.

    ``few``: why nothing is resolved, or empty; ``at``: the size, where others were trained.
    """
    best, *others = ranked(rows, by)
    first, (measure, said) = tied(rows, by), _measured(best, by)
    if not is_ranked(best, by):
        return f"No model is best by {measure}{at}: {joined([_named(row, labels) for row in rows[:MOST_NAMED]])}."
    if all(is_unlearned(row, by) for row in rows):
        median = f"{measure} {said}, the median over {counted(best.seeds, 'seed')}"
        is_ = "is" if len(first) == 1 else "are"
        which = f": the best {is_} {_all_named(first, labels)}, with {median}" if others else f": {median}"
        return as_sentences([f"{FORGETS}{at}{which}"])
    if not others:
        return f"The {measure}{at} is {said}, the median over {counted(best.seeds, 'seed')}."
    said += _equal(first, labels, by)
    if few:
        leads = f"The best median is that of {_machines(first, labels)} ({said})."
        return f"Not resolved: which is best by {measure}{at}. {few} {leads}"
    if all(is_equal(best, row, by) for row in others):
        return (
            f"By {measure}{at}, {_all_named(rows, labels)} are equal, seed by seed (median {_measured(best, by)[1]})."
        )
    beside = [row for row in level(rows, by) if row not in first]
    behind = [row for row in others if row not in (*first, *beside)][:4]
    has, is_, its = ("has", "is", "its") if len(first) == 1 else ("have", "are", "their")
    overlap = beside or not all(is_equal(best, row, by) for row in first)
    stands = f"{has} the best median" if overlap else f"{is_} best"
    text = f"By {measure}{at}, {_all_named(first, labels)} {stands} ({said})"
    if beside:
        those = "those" if len(beside) > 1 else "that"
        text += f", and the range of {its} seeds overlaps with {those} of {_all_named(beside, labels)}"
    if behind:
        gaps = [f"{_machines([row], labels)} {_behind(best, row, by)}" for row in behind]
        text += f"; behind {'is' if len(gaps) == 1 else 'are'} {joined(gaps)}"
    whole = [row for row in others if not row.diverged]
    return f"{text}. {paired_sentence(best, whole, by, labels) if whole and not best.diverged else ''}".strip()


def _equal(first: Sequence[LossRow], labels: Labels, by: Quantity) -> str:
    """``, equal seed by seed``, of models with the same median; of a part of them, which."""
    equal = [row for row in first if is_equal(first[0], row, by)]
    if len(equal) == 1:
        return ""
    return f"{',' if len(equal) == len(first) else f'; {_machines(equal, labels)}'} equal seed by seed"


def _single(by_memory: Mapping[str, Sequence[LossRow]], labels: Labels, by: Quantity, at: str) -> str:
    """``Medians over 5 seeds: accuracy 100.0 % on flip_flop; 98.1 % on parity.``: a model alone is best of none."""
    rows = [row for (row,) in by_memory.values()]
    several = len({labels.machine(row.condition) for row in rows}) > 1
    said, last = list[str](), ""
    for memory, row in zip(by_memory, rows[:MOST_NAMED], strict=False):
        measure, number = _measured(row, by)
        which = f" ({_named(row, labels)})" if several else f" ({_lost(row)})" if row.diverged else ""
        said.append(f"{'' if measure == last else f'{measure} '}{number} on {memory}{which}")
        last = measure
    more = [f"{len(rows) - MOST_NAMED} more"] if len(rows) > MOST_NAMED else []
    few, most = (end(row.seeds for row in rows) for end in (min, max))
    seeds = counted(few, "seed") if few == most else f"{few} to {most} seeds"
    failed = [memory for memory, row in zip(by_memory, rows, strict=True) if is_unlearned(row, by)]
    forgets = [f"{FORGETS} on {joined(failed)}"] if failed else []
    return as_sentences([f"Medians over {seeds}{at}: {'; '.join([*said, *more])}", *forgets])


def _best(rows: Sequence[LossRow], labels: Labels, by: Quantity) -> str:
    """``lstm (100.0 %), whose seeds overlap with those of delta_net``; of a model alone that it is."""
    if all(is_unlearned(row, by) for row in rows):
        return f"none ({FORGETS})"
    if len(rows) == 1 and is_ranked(rows[0], by):
        return f"{_named(rows[0], labels)} ({_measured(rows[0], by)[1]}), alone"
    if not (known := level(rows, by)):
        return f"none: {_all_named(rows, labels)}"
    first = tied(rows, by)
    others = [row for row in known if row not in first]
    beside = f", whose seeds overlap with those of {_all_named(others, labels)}" if others else ""
    return f"{_all_named(first, labels)} ({_measured(first[0], by)[1]}{_equal(first, labels, by)}){beside}"


def _counts(by_memory: Mapping[str, Sequence[LossRow]], labels: Labels, by: Quantity, at: str) -> str:
    """``lstm is best, or its seeds overlap with the best, on 5 of 9 tasks, gla on 4 and lru on 2.``

    A task that no model learns has no best one; it is named.
    """
    compared = {memory: rows for memory, rows in by_memory.items() if len(rows) > 1}
    best_of = {
        memory: [row for row in level(rows, by) if not is_unlearned(row, by)] for memory, rows in compared.items()
    }
    best = Counter(labels.machine(row.condition) for rows in best_of.values() for row in rows)
    first, *others = best.most_common(MOST_NAMED // 2) or [("", 0)]
    none = [memory for memory, rows in best_of.items() if not rows]
    lost = [memory for memory in none if not all(is_unlearned(row, by) for row in compared[memory])]
    never = [memory for memory in none if memory not in lost]
    said = [f"{FORGETS} on {joined(never)}"] if never else []
    if lost:
        said.append(f"on {joined(lost)} losses of seeds are below that of one that forgets, and no model's median is")
    if not first[1]:
        return as_sentences(["; ".join(said)] if said else [])
    tasks = f"{first[1]} of {counted(len(compared), 'task')}{at}"
    text = f"`{first[0]}` is best, or its seeds overlap with the best, on {tasks}"
    text = f"By {by.name}, {text}" if by.is_named or not by.metric else text
    more = [f"`{name}` on {count}" for name, count in others]
    return f"{'; '.join([joined([text, *more]), *said])}."


def _measured(row: LossRow, by: Quantity) -> tuple[str, str]:
    """The number that ranks a row, and its median."""
    middle = by.spread(row).middle
    if by.is_share(row):
        return (by.name if by.is_named else row.metric.replace("_", " ")), _percent(middle)
    return "test loss", figure(middle)


def _machines(rows: Sequence[LossRow], labels: Labels) -> str:
    return quoted([labels.machine(row.condition).removeprefix("rule ") for row in rows])


def _named(row: LossRow, labels: Labels) -> str:
    """The name, with the seeds that its median hides: ``gru (2 of 5 seeds diverged)``."""
    return f"{_machines([row], labels)}{f' ({_lost(row)})' if row.diverged else ''}"


def _lost(row: LossRow) -> str:
    return f"{row.diverged} of {counted(row.seeds, 'seed')} diverged"


def _all_named(rows: Sequence[LossRow], labels: Labels) -> str:
    few = len(rows) <= MOST_NAMED
    return joined([_named(row, labels) for row in rows]) if few else _machines(rows, labels)


def _behind(best: LossRow, row: LossRow, by: Quantity) -> str:
    if row.diverged:
        return f"({_lost(row)})"
    first, second = by.spread(best).middle, by.spread(row).middle
    if by.is_share(best):
        return f"({100 * (first - second):.1f} points)"
    if first > 0 and math.isfinite(second):
        return f"({figure(second / first, 2)} times the loss)"
    return f"({figure(second)})" if math.isfinite(second) else "(diverged)"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
