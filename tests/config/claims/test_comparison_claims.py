"""Comparisons in a study's claims: checked against the study before anything runs, and tested on what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from config_study import BASE, load, problems, scaled_parameterization
from memsweep.analyses.claims.cells import (
    COMPARED_COLUMNS,
    CellPair,
    compare_cells,
    compared_frame,
    compared_of,
    seeds_to_decide,
)
from memsweep.config.claims.comparisons import EXAMPLE, Cells
from memsweep.config.claims.sections import study_claims
from memsweep.config.schema.claims import Claims, Comparison, claims_from_dict
from memsweep.config.schema.search import Domain, Search, SearchConfig
from memsweep.report.analysis.contents import analyse
from memsweep.report.naming.conditions import cells_of, find_grouping
from memsweep.report.read.study import Study, load_study
from memsweep.stability.comparison.paired import Support, support_text
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan
from report_study import Condition, write_study

PARAMETERIZATION, WIDTH, HORIZON = "model.parameterization", "model.width", "task.horizon"
NAME = f"{PARAMETERIZATION}.name"
GRID = (
    BASE
    + """
grid:
  model.parameterization: [direct, exp, softplus]
  model.width: [2, 4, 8]
  task.horizon: [20, 50]
"""
)
PLAIN = BASE + "grid: {model.parameterization: [direct, exp]}"

Values = Mapping[str, Any]


def claim(metric: str, left: Values, direction: str, right: Values, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "left": dict(left), "direction": direction, "right": dict(right), **more}


def named(metric: str, left: str, direction: str, right: str, **more: Any) -> dict[str, Any]:
    """A claim about two parameterizations."""
    return claim(metric, {PARAMETERIZATION: left}, direction, {PARAMETERIZATION: right}, **more)


def section(*claims: Any) -> str:
    return f"\nclaims: {json.dumps(claims)}\n"


def load_claims(folder: Path, *claims: Any, grid: str = GRID) -> Claims:
    loaded = load(folder, grid + section(*claims)).claims
    assert loaded is not None
    return loaded


def test_sides_are_paths_and_values_and_the_report_says_them_in_words(tmp_path: Path) -> None:
    at_width, crossed, numbers = load_claims(
        tmp_path,
        named("radius", "exp", "greater", "direct", at={"model": {"width": 8}}),
        claim(
            "error",
            {PARAMETERIZATION: "exp", WIDTH: 8},
            "less",
            {PARAMETERIZATION: "direct", WIDTH: 4},
            at={"task.rate": 0.5},
        ),
        claim("margin", {HORIZON: 20}, "greater", {HORIZON: 50}, at={WIDTH: 2, PARAMETERIZATION: "exp"}),
    ).compare
    assert (at_width.left, at_width.right) == ({PARAMETERIZATION: "exp"}, {PARAMETERIZATION: "direct"})
    assert (at_width.at, at_width.same) == ({WIDTH: 8}, (WIDTH, HORIZON))
    assert at_width.text == "radius(exp) > radius(direct) at width 8"
    assert crossed.same == (HORIZON,)
    assert crossed.text == "error(exp, width=8) < error(direct, width=4) at rate 0.5"
    assert (numbers.left, numbers.right, numbers.same) == ({HORIZON: 20}, {HORIZON: 50}, (PARAMETERIZATION, WIDTH))
    assert numbers.text == "margin(horizon=20) > margin(horizon=50) at width 2, parameterization exp"


def test_claims_with_one_text_are_told_apart_by_whole_paths(tmp_path: Path) -> None:
    claims = [claim("error", {path: "exp"}, "less", {path: "direct"}) for path in (PARAMETERIZATION, NAME)]
    texts = [one.text for one in load_claims(tmp_path, *claims, grid=PLAIN).compare]
    assert texts == ["error(exp) < error(direct)", f"error({NAME}=exp) < error({NAME}=direct)"]


def test_parts_are_meant_by_their_names_or_by_their_fields(tmp_path: Path) -> None:
    with scaled_parameterization():
        grid = BASE + "grid: {model.parameterization: [exp, {name: scaled, scale: 2.0}, {name: scaled, scale: 3.0}]}"
        by_field = claim(
            "error", {PARAMETERIZATION: {"name": "scaled", "scale": 3}}, "greater", {PARAMETERIZATION: "exp"}
        )
        (read,) = load_claims(tmp_path, by_field, grid=grid).compare
        assert read.left == {NAME: "scaled", f"{PARAMETERIZATION}.scale": 3}
        assert read.same == ()
        wrong = problems(tmp_path, grid + section(named("error", "scaled", "greater", "exp")))
        assert wrong == [
            "claims[0]: several cells of one side differ in model.parameterization alone: name it on both sides or "
            "in 'at'."
        ]


def test_a_claim_may_name_what_the_tasks_of_its_own_cells_report(tmp_path: Path) -> None:
    study = """
task: {name: parity, horizon: 8}
model: {name: residual_stack, unit: gru, features: 8}
perturbation: {balls: []}
grid:
  task: [{name: parity}, {name: mqar, pairs: 2, vocabulary: 8}]
  model.unit: [gru, lru]
"""
    sides = {"left": {"model.unit.name": "gru"}, "right": {"model.unit.name": "lru"}}
    longer = {"metric": "test_accuracy_4T", "direction": "greater", **sides}
    (read,) = load_claims(tmp_path, {**longer, "at": {"task.name": "parity"}}, grid=study).compare
    assert read.text == "test_accuracy_4T(gru) > test_accuracy_4T(lru) at task parity"
    assert problems(tmp_path, study + section(longer)) == [
        "claims[0].metric: the study has no metric test_accuracy_4T: its tasks report accuracy."
    ]


def test_a_searched_choice_can_be_named_and_a_searched_number_cannot(tmp_path: Path) -> None:
    rate = Domain("log_uniform", 1e-4, 1e-1)
    space = {PARAMETERIZATION: Domain("choice", values=("direct", "exp")), "training.learning_rate": rate}
    cells = load(tmp_path, BASE + "grid: {model.width: [2, 4]}")
    plain = named("error", "exp", "less", "direct")
    wrong: list[str] = []
    search = Search(SearchConfig(), space)
    at_rate = {**plain, "at": {"training.learning_rate": 0.01}}
    assert study_claims([plain, at_rate], Cells(cells.rows, cells.grid, search), wrong) is None
    assert wrong == [
        "claims[1].at.training.learning_rate: is searched among numbers: no cell has one value of it. Compare by an "
        "axis of the grid."
    ]
    read = study_claims([plain], Cells(cells.rows, cells.grid, search), wrong)
    assert read is not None
    assert (read.compare[0].left, read.compare[0].same) == ({PARAMETERIZATION: "exp"}, (WIDTH,))
    unknown: list[str] = []
    assert study_claims([named("error", "softplus", "less", "exp"), "broken"], Cells((), {}, None), unknown) is None
    assert len(unknown) == 1  # where the cells are not known, only the form can be checked


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    plain = named("radius", "exp", "greater", "direct")
    wrong = [
        (
            named("raduis", "expp", "greater", "direct", at={"model.widht": 8}),
            (
                "[0].metric: there is no metric \"raduis\". Did you mean 'radius'? Metrics: validation_loss,",
                "[0].left.model.parameterization: no trial of the study has the value \"expp\". Did you mean 'exp'? "
                "There are: direct, exp, softplus. To run a part of a study, leave its claims out with ~claims.",
                "[0].at.model.widht: the study has no such field. Did you mean 'model.width'? "
                "Its axes: model.parameterization,",
            ),
        ),
        (
            {**plain, "at": {WIDTH: 7}},
            ("[1].at.model.width: no trial of the study has the value 7. There are: 2, 4, 8.",),
        ),
        (
            claim("radius", {PARAMETERIZATION: "exp", WIDTH: 8}, "greater", {PARAMETERIZATION: "direct"}),
            ("[2]: several cells of one side differ in model.width alone: name it on both sides or in 'at'.",),
        ),
        (named("radius", "exp", "greater", "exp"), ("[3]: compares a side with itself.",)),
        (
            {**plain, "at": {PARAMETERIZATION: "direct"}},
            ("[4]: names model.parameterization on a side and in 'at'. Keep one of them.",),
        ),
        (
            named("radius_weights", "exp", "greater", "direct"),
            ("[5]: radius_weights needs weights among perturbation.balls.",),
        ),
        (
            named("test_accuracy", "exp", "greater", "direct"),
            ("[6].metric: the study has no metric test_accuracy: its tasks report no metrics.",),
        ),
        (
            {**plain, "at": {"width": 8}},
            ("[7].at.width: the study has no such field. Did you mean model.width? Its axes:",),
        ),
        (
            {"metric": "radius", "left": {}, "right": "direct", "direction": ">", "places": 1},
            (
                "[8].places: no such field. Fields: metric, direction, left, right, at.",
                '[8].direction: must be one of greater, less: how the left side is to the right, got ">".',
                "[8].left: must be a mapping of a trial's dotted paths to values",
                "[8].right: must be a mapping of a trial's dotted paths to values",
            ),
        ),
        ({"metric": "radius"}, tuple(f"[9].{key}: is required" for key in ("direction", "left", "right"))),
        ("radius(exp) > radius(direct)", ("[10]: must be a comparison such as {metric:",)),
        (named("error", "exp", "less", "direct"), ()),
        (named("error", "exp", "less", "direct"), ("[12]: repeats an earlier claim.",)),
    ]
    found = problems(tmp_path, f"{GRID}\nclaims: {json.dumps({'compare': [entry for entry, _ in wrong]})}\n")
    expected = [f"claims.compare{piece}" for _, pieces in wrong for piece in pieces]
    assert [text for text, piece in zip(found, expected, strict=True) if not text.startswith(piece)] == []
    assert problems(tmp_path, f"{PLAIN}\nclaims: {{compare: {json.dumps([plain])}, rows: []}}\n")


@pytest.mark.parametrize("data", [[], {"compare": []}, "error(exp) < error(direct)", {"compare": "x"}, [None]])
def test_the_section_must_be_a_list_of_comparisons(data: object) -> None:
    wrong: list[str] = []
    assert study_claims(data, Cells((), {}, None), wrong) is None
    assert f"such as {EXAMPLE}" in "".join(wrong)


def test_comparisons_are_stored_with_the_plan_and_are_no_part_of_an_identity(tmp_path: Path) -> None:
    table = {"source": "s", "rows": [{"name": "n", "where": {}, "exponential": "stable"}]}
    compare = named("radius", "exp", "greater", "direct", at={WIDTH: 4})
    sweep = load(tmp_path, f"{PLAIN}\nclaims: {json.dumps({**table, 'compare': [compare]})}\n")
    write_plan(tmp_path, make_plan(sweep, identified(sweep), ()), {})
    assert claims_from_dict(json.loads((tmp_path / "plan.json").read_text())["claims"]) == sweep.claims
    without = load(tmp_path, PLAIN)
    assert [trial.identity for trial in identified(sweep)] == [trial.identity for trial in identified(without)]
    alone = load_claims(tmp_path, compare, grid=PLAIN)
    assert (alone.source, alone.rows) == ("", ())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two parameterizations, radii apart by a factor of 3; equal losses; two widths at two horizons, eight seeds."""
    folder = tmp_path_factory.mktemp("compared")
    conditions = [Condition(parameterization="direct", base=0.1), Condition(parameterization="exp", base=0.3)]
    write_study(folder, conditions, widths=(4, 8), horizons=(50, 100), seeds=8, memory=False)
    return load_study(folder)


def claim_verdicts(found: Sequence[CellPair]) -> dict[str, str]:
    """Each claim's text and what the table says of it."""
    rows = compared_frame(found).to_dict("records")
    return {row["claim"]: support_text(Support(row["verdict"]), row["more_seeds"]) for row in rows}


def pairs_of(claims: Sequence[Comparison], study: Study) -> tuple[CellPair, ...]:
    """The claims, tested on all trials."""
    replicas = study.tables["replicas"][study.tables["replicas"]["identity"].isin(study.records)]
    known = {name: record for name, record in study.records.items() if name in {*replicas["identity"]}}
    cells = cells_of(find_grouping(known, replicas).conditions, replicas)
    return compare_cells(claims, study.records, study.tables, cells)


def comparison(text: str, metric: str, direction: str = "greater", **at: int) -> Comparison:
    left, right = ({"model.parameterization": name} for name in ("exp", "direct"))
    places = {f"model.{key}" if key == "width" else f"task.{key}": value for key, value in at.items()}
    return Comparison(text, metric, direction, left, right, places, ("model.width", "task.horizon"))


def test_what_was_measured_decides_the_claims(study: Study) -> None:
    found = pairs_of(
        [
            comparison("wider", "radius"),
            comparison("at one place", "radius", width=8, horizon=100),
            comparison("the other way", "radius", "less", width=8, horizon=100),
            comparison("alike", "error", width=8),
            comparison("nowhere", "radius", width=16),
            comparison("not measured", "radius_weights", width=8),
        ],
        study,
    )
    verdicts = claim_verdicts(found)
    assert verdicts == {
        "wider": "supported",
        "at one place": "supported",
        "the other way": "contradicted",
        "alike": "not supported",
        "nowhere": "not measured",
        "not measured": "not measured",
    }
    frame = compared_frame(found)
    assert tuple(frame.columns) == COMPARED_COLUMNS
    assert frame["cells"].tolist()[:4] == [f"width={w}, horizon={h}" for h in (50, 100) for w in (4, 8)]
    wide = frame[frame["claim"] == "wider"]
    assert (wide["seeds"] == 8).all()
    assert (wide["effect"] - 3.0).abs().max() < 0.05  # the two parameterizations' radii, up to the study's own spread
    assert (wide["low"] < wide["effect"]).all()
    assert (wide["p"] == 2.0**-8).all()
    assert (wide["p_holm"] == 8 * 2.0**-8).all()  # eight pairs of cells were measured
    assert frame.loc[frame["claim"] == "the other way", "p_against"].tolist() == [8 * 2.0**-8]
    assert frame[frame["claim"] == "alike"]["ties"].tolist() == [8, 8]
    assert frame.loc[frame["claim"] == "nowhere", "left_identity"].tolist() == [""]


@pytest.mark.parametrize("lost", [("exp",), ("exp", "direct")])
def test_a_claim_is_not_supported_of_planned_cells_without_a_result(study: Study, lost: Sequence[str]) -> None:
    def is_lost(config: Mapping[str, Any]) -> bool:
        return config["model"]["width"] == 8 and config["model"]["parameterization"]["name"] in lost

    kept = {name: record for name, record in study.records.items() if not is_lost(record["config"])}
    assert 0 < len(kept) < len(study.records) == len(study.rows)
    tables = {
        name: table[table["identity"].isin(kept)] if len(table) else table for name, table in study.tables.items()
    }
    claims = Claims(compare=(comparison("everywhere", "radius"), comparison("measured", "radius", width=4)))
    found = compared_of(analyse(replace(study, records=kept, tables=tables, claims=claims)))
    assert claim_verdicts(found) == {"everywhere": "supported where measured", "measured": "supported"}
    assert [pair.where for pair in found if pair.common == 0] == ["width=8, horizon=50", "width=8, horizon=100"]


def test_a_metric_beside_the_first_one_decides_a_claim(study: Study) -> None:
    rows = study.tables["replicas"][["identity", "seed"]]
    of = {name: record["config"]["model"]["parameterization"]["name"] for name, record in study.records.items()}
    values = [0.9 if of[name] == "exp" else 0.6 for name in rows["identity"]]
    tables = {**study.tables, "metrics": rows.assign(metric="accuracy_4T", value=values)}
    claims = [comparison(name, f"test_{name}", width=8, horizon=50) for name in ("accuracy_4T", "accuracy_8T")]
    found = pairs_of(claims, replace(study, tables=tables))
    assert claim_verdicts(found) == {"accuracy_4T": "supported", "accuracy_8T": "not measured"}


def test_too_few_seeds_for_so_many_claims_are_asked_for(study: Study) -> None:
    few = replace(study, tables={name: table[table["seed"] < 5] for name, table in study.tables.items() if len(table)})
    everywhere = pairs_of([comparison("everywhere", "radius")], few)
    assert claim_verdicts(everywhere) == {"everywhere": "underpowered: needs 2 more seeds"}  # 2^-7 <= 0.05 / 4
    once = pairs_of([comparison("once", "radius", width=8, horizon=50)], few)
    assert claim_verdicts(once) == {"once": "supported"}  # 2^-5
    assert [seeds_to_decide(found) for found in (everywhere, once)] == [7, 0]


def grown(study: Study, beyond: int, *, again: int = 0) -> Study:
    """The study as it is stored after an extension: its seeds from ``beyond`` on are those of trials of their own.

    ``again``: so many seeds before are in both trials, and have other values in the second one.
    """
    records, tables = dict(study.records), dict(study.tables)
    for identity, record in study.records.items():
        training = record["config"]["training"] | {"first_seed": beyond, "seeds": 8 - beyond}
        checked = record["config"]["perturbation"] | {"stronger_every": 0}
        records[f"{identity}-b"] = {"config": record["config"] | {"training": training, "perturbation": checked}}
    for name, table in study.tables.items():
        if len(table):
            later = table[table["seed"] >= beyond - again]
            wrong = {"error": 9.0} if again else {}
            later = later.assign(identity=later["identity"].astype(str) + "-b", **wrong)
            tables[name] = pd.concat([table[table["seed"] < beyond], later], ignore_index=True)
    return replace(study, records=records, tables=tables)


@pytest.mark.parametrize("metric", ["radius", "error"])
def test_the_seeds_of_all_trials_of_a_cell_decide_a_claim(study: Study, metric: str) -> None:
    claims = [comparison("everywhere", metric), comparison("at one place", metric, width=8, horizon=50)]
    at_once, later = pairs_of(claims, study), pairs_of(claims, grown(study, 5))
    one = later[-1]
    assert (one.left, one.right) == tuple((name, f"{name}-b") for (name,) in (at_once[-1].left, at_once[-1].right))
    assert one.result.test.n == 8
    assert [pair.result for pair in later] == [pair.result for pair in at_once]


def test_a_seed_that_a_cell_has_twice_counts_once_as_the_first_trial_has_it(study: Study) -> None:
    claim, twice = comparison("one", "error", width=8, horizon=50), grown(study, 8, again=2)
    (once,) = pairs_of([claim], study)
    cells = {identity: identity.removesuffix("-b") for identity in twice.records}
    (pair,) = compare_cells([claim], twice.records, twice.tables, {name: (cell,) for name, cell in cells.items()})
    assert len(pair.left) == len(pair.right) == 2
    assert pair.result == once.result


def test_the_first_of_several_cells_that_fit_a_side_stands_for_it(study: Study) -> None:
    one = comparison("one", "radius", width=8, horizon=50)
    (usual,) = pairs_of([one], study)
    other = {"config": study.records[usual.left[0]]["config"]}
    (again,) = pairs_of([one], replace(study, records={**study.records, "later": other}))
    assert again == usual
    (without,) = pairs_of([one], replace(study, records={"later": other, **study.records}))
    assert (without.left, without.common, without.result.test.n) == (("later",), 0, 0)
    (half,) = pairs_of([one], replace(study, records={name: study.records[name] for name in usual.left}))
    assert (half.right, half.result.test.n) == ((), 0)


def test_a_cell_without_a_result_leaves_the_claim_to_those_that_have_one(study: Study) -> None:
    everywhere = comparison("everywhere", "radius")
    complete = pairs_of([everywhere], study)
    without = {identity: record for identity, record in study.records.items() if identity not in complete[1].right}
    found = pairs_of([everywhere], replace(study, records=without))
    assert {each.left: each.right for each in found} == {
        each.left: each.right if each is not complete[1] else () for each in complete
    }
    assert claim_verdicts(found) == {"everywhere": "supported where measured"}
    assert sorted(compared_frame(found)["test"]) == ["not measured", "supported", "supported", "supported"]
