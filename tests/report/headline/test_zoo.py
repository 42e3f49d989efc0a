"""The headline of each odd study is the sentence that was written down for it, with numbers of its CSV files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import searched_folder
from scipy.stats import rankdata
from searched_folder import SearchedFolder
from sentences import SENTENCES

from memsweep.config.schema.search import LOG_UNIFORM, Domain
from memsweep.report.analysis.contents import Contents, analyse, judge
from memsweep.report.export import write_csv
from memsweep.report.headline.answer import answer_of
from memsweep.report.headline.search import first_winners, search_sentence
from memsweep.report.naming.numbers import number, percent, slope_text
from memsweep.report.read.study import load_study
from memsweep.report.rows.report import tables_of
from memsweep.report.rows.verdicts import radii_table
from memsweep.report.terminal import report_text
from memsweep.report.tracked import study_run_of
from memsweep.stability.verdict.judgement import Lack, Missing, Verdict
from memsweep.stability.verdict.trend import Slope
from memsweep.studies.python.results import Results
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.tracking.run_content import ANSWERS
from report_study import SEEDS, THEORY, ZERO_LOSS, Condition, longest, write_study

Numbers = Mapping[str, str]
Tables = dict[str, pd.DataFrame]
DIRECT = Condition()
THREE = [Condition(parameterization=name) for name in ("direct", "exp", "softplus")]
RATE = "training.learning_rate"


def stability(folder: Path, conditions: Sequence[Condition], **more: Any) -> Contents:
    """A grid whose verdicts are asked for."""
    folder.mkdir()
    write_study(folder, conditions, **{"balls": ["recurrent"], "memory": False, **more})
    return judge(folder)


def changed(table: pd.DataFrame, factor: pd.Series, floor: pd.Series) -> None:
    """Scales the radii of a table of curves, and gives its models another error without perturbation."""
    for column in ("error", "change"):
        grown = table[column] / ZERO_LOSS - Condition().floor
        table[column] = ZERO_LOSS * (floor + grown / factor**2)


def bimodal(index: int, tables: Tables) -> None:
    """Three of five seeds fall faster than the limit, two do not fall."""
    curves = tables["curves"]
    steep = curves["seed"].isin([0, 2, 4])
    factor = (curves["horizon"] / 50.0) ** np.where(steep, -0.6, 0.0)
    changed(curves, factor, pd.Series(Condition().floor, curves.index))


def unfit_at_length(index: int, tables: Tables) -> None:
    """The error of the fit grows with the horizon to half of the smallest threshold."""
    curves = tables["curves"]
    changed(curves, pd.Series(1.0, curves.index), 0.0048 * (curves["horizon"] / 400.0) ** 2)


def copied(index: int, tables: Tables) -> None:
    """All seeds are the first one."""
    curves = tables["curves"]
    first = curves[curves["seed"] == 0]
    for column in ("error", "change"):
        curves[column] = np.tile(first[column].to_numpy(), SEEDS)


def unfit_at_narrow(index: int, tables: Tables) -> None:
    """The two narrow models do not hold the memory at the longest horizon."""
    curves = tables["curves"]
    narrow = (curves["horizon"] == 400) & (curves["width"] < 4)
    changed(curves, pd.Series(1.0, curves.index), 0.0048 + 0.1 * narrow.astype(float) - 0.0047 * ~narrow)


def by_memory(folder: Path) -> Contents:
    """The exponential memory in the ball of the recurrent weights, the polynomial one in the ball of all."""
    contents = stability(folder, THEORY, balls=["recurrent", "all"])
    own = {"exponential": "recurrent", "polynomial": "all"}
    kept = [f for f in contents.findings if f.ball == own[f.condition["task.kernel"].partition(" ")[0]]]
    return replace(contents, findings=kept)


def settings() -> list[Condition]:
    """33 settings: a third of them unstable."""
    slopes = np.where(np.arange(33) % 3 == 0, -0.6, -0.01)
    return [
        Condition(parameterization="direct", training={"learning_rate": 0.001 * (place + 1)}, slope_horizon=slope)
        for place, slope in enumerate(map(float, slopes))
    ]


def diverging(folder: Path) -> Contents:
    bare: dict[str, Any] = {"kernel": None, "task": "copying_bits", "model": "lru"}
    conditions = [
        Condition(parameterization="direct", loss=0.1, diverged=3, **bare),
        Condition(parameterization="exp", loss=0.2, **bare),
    ]
    write_study(folder, conditions, widths=[8], horizons=[50], balls=(), memory=False, seeds=5)
    return judge(folder)


def losses(folder: Path, values: Mapping[str, Sequence[float]]) -> Contents:
    """A task without a kernel: accuracies by parameterization and seed."""
    bare: dict[str, Any] = {"kernel": None, "task": "copying_bits", "model": "lru", "metric": "accuracy"}
    conditions = [Condition(parameterization=name, values=each, **bare) for name, each in values.items()]
    seeds = len(next(iter(values.values())))
    write_study(folder, conditions, widths=[8], horizons=[50], balls=(), memory=False, seeds=seeds)
    return judge(folder)


def search(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fresh: int = 6, optimism: float = 1.25, **more: Any
) -> Contents:
    """A search over the learning rate alone."""
    monkeypatch.setattr(searched_folder, "OPTIMISM", optimism)
    monkeypatch.setattr(searched_folder, "FRESH", fresh)
    written = SearchedFolder("none", **more)
    history = replace(written.write(folder), space={RATE: Domain(LOG_UNIFORM, 1e-4, 1.0)})
    return analyse(replace(load_study(folder), search=history))


def failing(folder: Path, failed: Mapping[int, str]) -> Contents:
    return stability(folder, [DIRECT], failed=failed)


OUTLIER = {"direct": (*(0.95,) * 9, 0.7), "exp": (*(0.75,) * 9, 0.74)}
UNIT, LONG = "Traceback\nAttributeError: no unit", "Traceback\nRuntimeError: too long"
STUDIES: dict[str, Callable[..., Contents]] = {
    "whole": partial(stability, conditions=THEORY),
    "one width": partial(stability, conditions=THEORY, widths=[2]),
    "one horizon": partial(stability, conditions=THEORY, horizons=[100]),
    "two seeds": partial(stability, conditions=THEORY, seeds=2),
    "four suggestions": partial(search, suggestions=4, confirm=0),
    "four suggestions, confirmed": partial(search, suggestions=4),
    "two fresh seeds": partial(search, fresh=2, suggestions=4),
    "two widths searched": partial(search, widths=(2, 64), suggestions=2),
    "a search that resolves": partial(search, widths=(2, 16, 128), suggestions=17, optimism=1.02),
    "bimodal seeds": partial(stability, conditions=[DIRECT], complete=bimodal),
    "at its limit": partial(stability, conditions=[replace(DIRECT, slope_horizon=-0.2)]),
    "just beyond its limit": partial(stability, conditions=[replace(DIRECT, slope_horizon=-0.26)]),
    "one threshold": partial(stability, conditions=[replace(DIRECT, slope_horizon=-0.12)], complete=unfit_at_length),
    "all failed": partial(failing, failed={n: LONG if n % 4 == 3 else UNIT for n in range(16)}),
    "some failed": partial(failing, failed=dict.fromkeys(range(3, 16, 4), LONG)),
    "no fit": partial(stability, conditions=[replace(DIRECT, floor=0.1)]),
    "everything equal": partial(stability, conditions=THREE, complete=copied),
    "33 settings": partial(stability, conditions=settings()),
    "balls by memory": partial(by_memory),
    "few fits at the longest": partial(stability, conditions=[DIRECT], complete=unfit_at_narrow),
    "seeds and width": partial(stability, conditions=[DIRECT], widths=[2], seeds=2),
    "most diverged": partial(diverging),
    "an outlier": partial(losses, values=OUTLIER),
    "losses of two seeds": partial(losses, values={"direct": (0.7, 0.71), "exp": (0.9, 0.92)}),
    "equal losses": partial(losses, values={"direct": (0.7,) * 5, "exp": (0.7,) * 5}),
    "nothing yet": partial(stability, conditions=[DIRECT], skip=range(16)),
}


# --- the numbers, from the CSV files alone


def slope_of(row: pd.Series) -> str:
    return slope_text(Slope(row["slope_horizon"], row["slope_horizon_low"], row["slope_horizon_high"]))


def by_setting(folder: Path, column: str = "model.parameterization") -> dict[str, pd.Series]:
    table = pd.read_csv(folder / "verdicts.csv")
    return {f"{row['task.kernel']} {row[column]}": row for _, row in table.iterrows()}


def of_theory(folder: Path) -> Numbers:
    rows = by_setting(folder)
    stable = {name: rows[f"polynomial {name}"] for name in ("exp", "softplus")}
    worst = min(stable, key=lambda name: stable[name]["slope_horizon_low"])
    named = {name: slope_of(row) for name, row in rows.items()}
    return named | {"polynomial worst": f"`{worst}`: T^{slope_of(stable[worst])}"}


def alone(folder: Path) -> Numbers:
    """Of a study of one condition: its slope, and each seed's own by a fit of its own to ``radii.csv``."""
    row = pd.read_csv(folder / "verdicts.csv").iloc[0]
    radii = pd.read_csv(folder / "radii.csv")
    widest = radii[(radii["threshold"] == row["threshold"]) & (radii["width"] == radii["width"].max())]
    slopes = []
    for _, seed in widest.groupby("seed"):
        x = seed["horizon"].to_numpy(float)
        terms = np.column_stack([np.ones(len(x)), np.log(x), x[0] / x])
        slopes.append(np.linalg.lstsq(terms, np.log(seed["radius"]), rcond=None)[0][1])
    distance = abs(row["slope_horizon_high"] + 0.2)
    below = int((np.array(slopes) < -0.2).sum())
    return {"slope": slope_of(row), "near": f"{distance:.1g}", "below": f"{below}", "seeds": f"{len(slopes)}"}


def unfitted(folder: Path) -> Numbers:
    radii = pd.read_csv(folder / "radii.csv")
    return {"error": percent(float((radii["error_at_zero"] / radii["zero_loss"]).min()))}


def of_33(folder: Path) -> Numbers:
    table = pd.read_csv(folder / "verdicts.csv")
    rows = {
        "best": table.loc[table[table["verdict"] == "unstable"]["slope_horizon_high"].idxmax()],
        "worst": table.loc[table[table["verdict"] == "stable"]["slope_horizon_low"].idxmin()],
    }
    return {name: f"`direct · learning_rate {row[RATE]:g}`: T^{slope_of(row)}" for name, row in rows.items()}


def best_accuracy(folder: Path) -> Numbers:
    return {"best": f"{100 * pd.read_csv(folder / 'losses.csv')['metric_value'].max():.1f} %"}


def paired(folder: Path) -> Numbers:
    """Of the seeds as they were written: all signs of the differences tried, and the means of all their pairs."""
    differences = np.subtract(OUTLIER["direct"], OUTLIER["exp"]).round(9)
    ranks = rankdata(abs(differences))
    sums = [float(np.dot(signs, ranks)) for signs in itertools.product((0, 1), repeat=len(ranks))]
    p = 2 * np.mean(np.array(sums) >= ranks[differences > 0].sum())
    means = sorted((a + b) / 2 for place, a in enumerate(differences) for b in differences[place:])
    low, high = means[8], means[-9]  # the ninth from either end, by the tables of Wilcoxon's test for 10 pairs
    lead = f"{100 * np.median(means):.1f} points [{100 * low:.1f}, {100 * high:.1f}]"
    return best_accuracy(folder) | {"lead": lead, "p": f"{p:.2g}"}


def least_loss(folder: Path) -> Numbers:
    return {"loss": f"{pd.read_csv(folder / 'losses.csv')['loss'].min():.3g}"}


def exponents(folder: Path) -> Numbers:
    """The exponents of the best rates, and the least and the greatest that fit between the worse suggestions."""
    tried, winners = pd.read_csv(folder / "search.csv"), pd.read_csv(folder / "winners.csv")
    found = {}
    for name, cells in winners.groupby("model.parameterization"):
        x = np.log(cells["model.width"].to_numpy(float))
        best = np.log(cells[RATE].to_numpy(float))
        low, high = [], []
        for _, winner in cells.iterrows():
            own = tried[tried["cell"] == winner["cell"]]
            worse = own[own["error"] > winner["confirmed_high"]][RATE]
            good = own[own["error"] <= winner["confirmed_high"]][RATE]
            low.append(max(worse[worse < good.min()], default=1e-4))
            high.append(min(worse[worse > good.max()], default=1.0))
        weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        ends = np.sort(np.log([low, high]).T * weights[:, None], axis=1).sum(0)
        best_fit, low_fit, high_fit = map(number, map(float, (weights @ best, *ends)))
        found[str(name)] = f"{best_fit}, possible: {low_fit} to {high_fit}"
    return found


NUMBERS: dict[str, Callable[[Path], Numbers]] = {
    **dict.fromkeys(("whole", "one width", "balls by memory"), of_theory),
    **dict.fromkeys(("bimodal seeds", "at its limit", "just beyond its limit", "one threshold"), alone),
    **dict.fromkeys(("four suggestions, confirmed", "a search that resolves"), exponents),
    **dict.fromkeys(("losses of two seeds", "equal losses"), best_accuracy),
    "an outlier": paired,
    "most diverged": least_loss,
    "no fit": unfitted,
    "33 settings": of_33,
}


def written(contents: Contents, folder: Path) -> Path:
    """The CSV files of a report."""
    folder.mkdir()
    for table in tables_of(contents).exported:
        write_csv(table.frame(), folder / f"{table.name}.csv")
    write_csv(radii_table(contents.findings), folder / "radii.csv")
    return folder


LARGE = ("33 settings", "a search that resolves")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.more] * (n in LARGE)) for n in SENTENCES])
def test_the_headline_is_the_sentence_of_a_careful_statistician(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"monkeypatch": monkeypatch} if STUDIES[name].func is search else {}  # type: ignore[attr-defined]
    contents = STUDIES[name](tmp_path / "study", **given)
    numbers = NUMBERS.get(name, lambda folder: {})(written(contents, tmp_path / "tables"))
    wanted = re.sub(r"\{(.+?)\}", lambda found: numbers[found[1]], SENTENCES[name].sentence)
    answer = answer_of(contents)
    assert " ".join(filter(None, (answer.headline, answer.failures))) == wanted
    assert Results(Location.at(tmp_path / "study"), contents).answers == answer.sentences
    text = report_text(contents, tables_of(contents), width=80, colour=False)
    assert " ".join(text.split()).startswith(answer.sentences[0])
    assert longest(text) <= 80


def test_a_line_of_a_search_with_too_few_sizes_gets_no_exponent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = search(tmp_path / "study", monkeypatch, widths=(2, 16, 128), suggestions=4)
    assert contents.searched is not None
    searched = contents.searched
    kept = [w for w in first_winners(searched) if searched.cells.picture(w.cell) == "exp"]
    others = [w for w in first_winners(searched) if searched.cells.picture(w.cell) == "direct"]
    monkeypatch.setattr("memsweep.report.headline.search.first_winners", lambda searched: [*kept, others[0]])
    said = search_sentence(searched)
    assert "`direct` has winners at 1 width: a trend needs 3" in said
    assert "under `direct`" not in said


def test_what_is_missing_and_what_would_decide_stand_in_the_answer_and_in_mlflow(tmp_path: Path) -> None:
    contents = stability(tmp_path / "study", [DIRECT], seeds=2, skip=range(4))
    answer = answer_of(contents)
    assert answer.missing == "4 of 16 planned trials have no result, so verdicts may change."
    assert answer.missing in answer.sentences
    assert answer.decide == contents.study.resume  # what is planned comes before what would be added
    assert answer.missing in " ".join(report_text(contents, tables_of(contents), width=80, colour=False).split())
    assert answer.missing in study_run_of(contents).tags[ANSWERS]
    few = losses(tmp_path / "losses", {"direct": (0.7, 0.71), "exp": (0.9, 0.92)})
    ranked = answer_of(replace(few, study=replace(few.study, source="study.yaml")))
    assert ranked.decide.startswith("memsweep extend study.yaml training.seeds=6")
    assert ranked.until == "", "memsweep decide finds nothing to decide where no weights were moved"


def test_the_command_for_what_is_missing_promises_no_decision(tmp_path: Path) -> None:
    answer = answer_of(stability(tmp_path / "few", [DIRECT], seeds=2, skip=range(4)))
    assert answer.prompt == "What is missing first"
    assert answer_of(stability(tmp_path / "all", [DIRECT], seeds=2)).prompt == "To decide"


@pytest.mark.parametrize("skip", [0, 4])
def test_what_would_decide_is_advised_once_all_that_is_planned_is_there(tmp_path: Path, skip: int) -> None:
    """Advice that knows nothing of the planned trials asks for dear ones that the finished study does not need."""
    contents = stability(tmp_path / "study", [DIRECT], seeds=2, skip=range(skip))
    table = tables_of(contents).verdicts
    said = [str(column.value(row)) for column in table.columns if column.name == "reasons" for row in table.rows]
    assert len(said) == 2 * len(contents.verdicts)  # of the page, and of the CSV file
    assert all(("to decide: " in words) == (skip == 0) for words in said)


def test_where_nothing_is_known_to_decide_rounds_are_offered(tmp_path: Path) -> None:
    contents = stability(tmp_path / "study", [DIRECT])
    lacking = {"verdict": Verdict.INCONCLUSIVE, "extend": (), "lacks": (Lack(Missing.STEP, 5, 8),)}
    open_ = [replace(f, judgement=replace(f.judgement, **lacking)) for f in contents.findings]
    contents = replace(contents, findings=open_, study=replace(contents.study, source="study.yaml"))
    answer = answer_of(contents)
    assert (answer.decide, answer.until) == ("", contents.study.until_decided)
    text = report_text(contents, tables_of(contents), width=200, colour=False)
    assert f"Round by round, by itself: {answer.until}" in text


def test_the_best_of_several_sizes_says_which_size(tmp_path: Path) -> None:
    bare: dict[str, Any] = {"kernel": None, "task": "copying_bits", "model": "lru", "metric": "accuracy"}
    condition = Condition(parameterization="exp", **bare)
    write_study(tmp_path, [condition], widths=[4, 8], horizons=[50], balls=(), memory=False, seeds=2)
    assert answer_of(judge(tmp_path)).headline.startswith("The accuracy at width 8 and horizon 50 is ")
    parity = replace(condition, task="parity")
    write_study(tmp_path / "two", [condition, parity], widths=[4, 8], horizons=[50], balls=(), memory=False, seeds=2)
    assert answer_of(judge(tmp_path / "two")).headline.startswith("Medians over 2 seeds at width 8 and horizon 50: ")
    assert answer_of(losses(tmp_path / "one", {"exp": (0.9, 0.92)})).headline.startswith("The accuracy is ")


@pytest.mark.parametrize("lost", [0, 2])
def test_models_that_diverged_are_told_beside_a_verdict(tmp_path: Path, lost: int) -> None:
    answer = answer_of(stability(tmp_path / "study", [replace(DIRECT, diverged=lost)], balls=["recurrent", "all"]))
    assert answer.more == (("32 of 80 models diverged.",) if lost else ())


def test_an_undecided_memory_says_what_is_lost_when_more_weights_move(tmp_path: Path) -> None:
    contents = stability(tmp_path / "study", [DIRECT], balls=["recurrent", "all"])
    verdicts = {"recurrent": Verdict.INCONCLUSIVE, "all": Verdict.UNSTABLE}
    lacks = (Lack(Missing.SLOPE, 5, 10),)
    findings = [
        replace(f, judgement=replace(f.judgement, verdict=verdicts[f.ball], lacks=lacks)) for f in contents.findings
    ]
    said = answer_of(replace(contents, findings=findings)).headline
    assert said.endswith("while the other weights stay put; not held stably under `direct` when more weights move.")
