"""The sections of claims: of those that compare cells, and of published verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsweep.analyses.claims.cells import CellPair, compared_frame, compared_of, seeds_to_decide
from memsweep.analyses.claims.charts import claim_charts
from memsweep.analyses.claims.published import Agreement, ClaimedVerdict, compare
from memsweep.analyses.claims.published_tables import published_export, published_tables
from memsweep.analyses.claims.tables import MOST_CITED, claim_table, counted, unfit
from memsweep.report.analysis.bounds import MARK
from memsweep.report.analysis.contents import BALLS, Contents
from memsweep.report.naming.advice import of_weights
from memsweep.report.naming.numbers import MOST_NAMED, joined
from memsweep.report.rows.verdicts import SHORT, SHORT_KEY, moving, waits
from memsweep.report.values.section import FILES, Place, Rank, Section
from memsweep.report.values.table import CSV, PAGE, TERMINAL
from memsweep.stability.comparison.paired import Support

TESTED = (
    "Each was tested seed by seed (Wilcoxon's signed ranks, one-sided and exact), with Holm's correction over every "
    "test of this study at 5 %. Contradicted: in its place, the opposite would be supported (of a claim on several "
    "pairs of cells, in one of them). Underpowered: so many more seeds would decide it, if the effect is as large as "
    "it looks."
)
SUPPORTED = (
    "it was tested seed by seed, and if none of the claims held where it was measured, the chance that any one is "
    "called supported would be at most 5 %."
)
_KIND = "claims"
"""Of a study that both kinds of claims answer."""
_PENDING = "No claim is decided yet: that takes the trials of both its sides."
_AGREEMENT_KEY = "✓ agrees  ✗ disagrees  ? undecided"


def sections(contents: Contents) -> list[Section]:
    """Published verdicts beside ours, and the claims that compare cells."""
    return [_published(contents), *_compared(contents, compared_of(contents))]


def _published(contents: Contents) -> Section:
    names, labels, claims = contents.grouping.columns, contents.labels, contents.study.claims
    rows = compare(claims, contents.findings)
    folded = published_tables(rows, names, labels)
    source = claims.source if claims is not None else ""
    shown = Place.CLAIMED if folded else Place.NOWHERE
    return Section(
        "Published table",
        f"The published verdicts ({source}), row by row, and our verdicts on the conditions that each row speaks of, "
        "with the slope that decides and its 95 % interval. An inconclusive verdict leaves the claim undecided. "
        "Nothing here is adjusted to agree.",
        published_export(rows, names, labels, wait=waits(contents.study)),
        folded=folded,
        answer=[*_agreements(contents, rows)],
        rank=Rank.TESTED,
        key=f"{_AGREEMENT_KEY}\n{SHORT_KEY}",
        small=f"{MARK} {SHORT}." if any(row.finding is not None and row.finding.marked for row in rows) else "",
        places={PAGE: shown, TERMINAL: shown, CSV: Place.LAST},
        anchor="published",
        kind=_KIND,
    )


def _agreements(contents: Contents, rows: Sequence[ClaimedVerdict]) -> Iterator[str]:
    """How many of the published verdicts agree with ours, in each ball that was measured."""
    for ball in BALLS:
        own = [one for one in rows if one.finding is not None and one.finding.ball == ball]
        if not own:
            continue
        counts = {kind: sum(one.agreement is kind for one in own) for kind in Agreement}
        parts = [
            f"{counts[kind]} {word}"
            for kind, word in (
                (Agreement.AGREES, "agree with ours"),
                (Agreement.DISAGREES, "disagree"),
                (Agreement.UNDECIDED, "stay undecided"),
            )
            if counts[kind]
        ]
        against = dict.fromkeys(f"`{one.claim.name}`" for one in own if one.agreement is Agreement.DISAGREES)
        named = f" (disagreeing: {joined([*against])})" if 0 < len(against) <= MOST_NAMED else ""
        yield f"{moving(ball)}, of {len(own)} published verdicts {joined(parts)}{named}."


def _compared(contents: Contents, pairs: Sequence[CellPair]) -> Iterator[Section]:
    if not pairs:
        return
    compared = compared_frame(pairs)
    against = compared.loc[compared["verdict"] == str(Support.CONTRADICTED), "claim"]
    cited = [f"`{claim}`" for claim in sorted({*against})]
    quoted = f" Contradicted: {joined(cited)}." if 0 < len(cited) <= MOST_CITED else ""
    unmeasured = (compared["verdict"] == str(Support.NOT_MEASURED)).all()
    yield Section(
        "Claims",
        f"{counted(compared)} {TESTED}",
        claim_table(compared),
        answer=[" ".join(filter(None, (counted(compared) + quoted, unfit(compared))))],
        decide=_decide(contents, seeds_to_decide(pairs)),
        rank=Rank.TESTED,
        heading="Claims, tested over seeds with Holm's correction",
        key="",
        places={PAGE: Place.FIRST, TERMINAL: Place.FIRST, CSV: Place.FIRST, FILES: Place.LAST},
        brief=("conclusion", "claim", "fit: left / right"),
        meaning=("What “supported” means:", SUPPORTED),
        pending=_PENDING if unmeasured else "",
        charts=[*claim_charts(compared)],
        kind=_KIND,
        columns=1,
        chosen=True,
        sectioned=False,
    )


def _decide(contents: Contents, seeds: int) -> str:
    """The command that brings so many seeds to the cells of claims; empty where no command does."""
    study = contents.study
    words = [f"{'confirm' if contents.searched else 'training'}.seeds={seeds}"] if seeds else []
    for config in (record["config"] for record in contents.measured.records.values()):
        words = [*of_weights(config["training"], words)[0]]
    command = study.extended_by(words[0]) if words else ""
    return "" if command == study.until_decided else command  # which adds seeds for verdicts alone
