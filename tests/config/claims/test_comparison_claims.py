"""Claims in words: read strictly, looked up in the study before anything runs, and tested on what was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from config_study import BASE, load, problems, scaled_parameterization
from memsweep.config.claims.comparisons import Comparison
from memsweep.config.claims.matching import study_claims
from memsweep.config.claims.sections import Claims, claims_from_dict, claims_to_dict, read_claims
from memsweep.config.claims.sentences import GrammarError, Item, parsed
from memsweep.config.schema.search import Domain, Search, SearchConfig
from memsweep.report.analysis.claims import COMPARED_COLUMNS, Compared, compare_cells, compared_frame
from memsweep.report.read.study import Study, load_study
from memsweep.stability.comparison.paired import Support, in_words
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan
from report_study import Condition, write_study

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


def claimed(folder: Path, *sentences: str, grid: str = GRID) -> Claims:
    claims = load(folder, f"{grid}\nclaims: {json.dumps(sentences)}\n").claims
    assert claims is not None
    return claims


def test_a_sentence_is_read_into_its_parts() -> None:
    sides = """  test_accuracy( exp, model.width=8 )<test_accuracy("a b",x=-1e-3)"""
    read = parsed(f"{sides}  at  horizon 100 and normalize=true, k null")
    assert (read.metric, read.op) == ("test_accuracy", "<")
    assert read.left == (Item("", "exp"), Item("model.width", 8))
    assert read.right == (Item("", "a b"), Item("x", -0.001))
    assert read.at == (Item("horizon", 100), Item("normalize", True), Item("k", None))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a metric must stand where the end is"),
        ("radius exp > radius(direct)", "'(' must stand where 'exp' at character 8 is"),
        ("radius() > radius(direct)", "a value, or field=value must stand where ')' at character 8 is"),
        ("radius(exp) >= radius(direct)", "a metric must stand where '=' at character 14 is"),
        ("radius(exp) > radius(direct) width 8", "'at' must stand where 'width' at character 30 is"),
        ("radius(exp) > radius(direct) at width", "a value must stand where the end is"),
        ("radius(exp) > error(direct)", "compares radius with error (character 15)"),
        ("radius(exp) > radius(direct); drop", "has ';' at character 29, which needs quotes"),
    ],
)
def test_a_sentence_that_is_none_says_where(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)):
        parsed(text)


def test_names_are_looked_up_in_the_study(tmp_path: Path) -> None:
    (at_width, crossed, numbers) = claimed(
        tmp_path,
        "radius(exp) > radius(direct) at width 8",
        "error(exp, width=8) < error(direct, model.width=4) at rate 0.5",
        "margin(20) > margin(50)" + " at width 2 and model.parameterization exp",
    ).compare
    parameterization, width, horizon = "model.parameterization", "model.width", "task.horizon"
    assert (at_width.left, at_width.right) == ({parameterization: "exp"}, {parameterization: "direct"})
    assert (at_width.at, at_width.same) == ({width: 8}, (width, horizon))
    assert (crossed.left, crossed.same) == ({parameterization: "exp", width: 8}, (horizon,))
    assert crossed.at == {"task.rate": 0.5}
    assert (numbers.left, numbers.right, numbers.same) == ({horizon: 20}, {horizon: 50}, (parameterization, width))


def test_parts_are_meant_by_their_names_or_by_their_fields(tmp_path: Path) -> None:
    with scaled_parameterization():
        grid = BASE + "grid: {model.parameterization: [exp, {name: scaled, scale: 2.0}, {name: scaled, scale: 3.0}]}"
        (read,) = claimed(tmp_path, "error(scale=3) > error(exp)", grid=grid).compare
        assert (read.left, read.same) == ({"model.parameterization.scale": 3}, ())
        found = problems(tmp_path, f"{grid}\nclaims: [error(scaled) > error(exp)]\n")
        assert found == [
            "claims[0]: several cells of one side differ in model.parameterization alone: name it on both sides or "
            "behind 'at'."
        ]


def test_a_searched_choice_can_be_named_and_a_searched_number_cannot(tmp_path: Path) -> None:
    rate = Domain("log_uniform", 1e-4, 1e-1)
    space = {"model.parameterization": Domain("choice", values=("direct", "exp")), "training.learning_rate": rate}
    cells = load(tmp_path, BASE + "grid: {model.width: [2, 4]}")
    texts = ["error(exp) < error(direct)", "error(exp) < error(direct) at learning_rate 0.01"]
    found: list[str] = []
    search = Search(SearchConfig(), space)
    assert study_claims(texts, cells.rows, cells.grid, search, found) is None
    assert found == [
        "claims[1]: training.learning_rate is searched among numbers: no cell has one value of it. Compare by an axis "
        "of the grid."
    ]
    read = study_claims(texts[:1], cells.rows, cells.grid, search, found)
    assert read is not None
    assert (read.compare[0].left, read.compare[0].same) == ({"model.parameterization": "exp"}, ("model.width",))
    unknown: list[str] = []
    assert study_claims(["error(softplus) < error(exp)", "broken"], (), {}, None, unknown) is None
    assert len(unknown) == 1  # where the cells are not known, only the grammar can be checked


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        GRID
        + """
claims:
  compare:
    - raduis(expp) > raduis(direct) at widht 8
    - radius(exp) > radius(direct) at width 7
    - radius(exp, width=8) > radius(direct)
    - radius(exp) > radius(exp)
    - radius(exp, softplus) > radius(direct) at parameterization direct
    - radius_weights(exp) > radius_weights(direct)
    - test_accuracy(exp) > test_accuracy(direct)
    - radius(exp) > radius(direct) at name x
    - radius(exp) >
    - [radius]
    - error(exp) < error(direct)
    - error(exp)  <  error(direct)
""",
    )
    text = "\n".join(found)
    for piece in (
        "claims.compare[0]: there is no metric 'raduis'. Did you mean 'radius'? Metrics: validation_loss,",
        "claims.compare[0]: no axis of the study has the value \"expp\". Did you mean 'exp'? Axes: model.parameterizat",
        "claims.compare[0]: the study has no field 'widht'. Did you mean 'width'? Its axes: model.parameterization,",
        "claims.compare[1]: no trial of the study has model.width = 7. There are: 2, 4, 8. To run a part of "
        "a study, leave its claims out with ~claims.",
        "claims.compare[2]: several cells of one side differ in model.width alone: name it on both sides or behind 'at",
        "claims.compare[3]: compares a side with itself.",
        "claims.compare[4]: names model.parameterization twice on one side.",
        "claims.compare[4]: names model.parameterization on a side and behind 'at'. Keep one of them.",
        "claims.compare[5]: radius_weights needs weights among perturbation.balls.",
        "claims.compare[6]: the study has no metric test_accuracy: its tasks report no metrics.",
        "claims.compare[7]: 'name' may be task.name, model.name: write more of its path.",
        'claims.compare[8]: "radius(exp) >" cannot be read as a claim such as radius(exp) > radius(direct) at width 8',
        "claims.compare[9]: must be a sentence such as",
        "claims.compare[11]: repeats an earlier sentence.",
    ):
        assert piece in text, piece
    assert len(found) == 14
    twice = BASE + "grid: {model.width: [2, 4], task.horizon: [4, 8]}\nclaims: [error(4) > error(8)]\n"
    assert "claims[0]: 4 is a value of several axes: write width=4 or horizon=4." in problems(tmp_path, twice)
    cut = problems(tmp_path, GRID + "claims: [radius(exp) > radius(direct) at width 8, horizon 20]\n")
    assert "a comma begins a new entry: put the sentence in quotes" in cut[0]
    assert problems(tmp_path, f"{BASE}\nclaims: {{compare: [error(4) < error(8)], rows: []}}\n")


@pytest.mark.parametrize("data", [[], {"compare": []}, "error(exp) < error(direct)", {"compare": "x"}, [None]])
def test_the_section_must_be_a_list_of_sentences(data: object) -> None:
    found: list[str] = []
    assert read_claims(data, found) is None
    assert "such as radius(exp) > radius(direct) at width 8" in "".join(found)


def test_sentences_travel_with_the_plan_and_touch_no_identity(tmp_path: Path) -> None:
    table = {"source": "s", "rows": [{"name": "n", "where": {}, "exponential": "stable"}]}
    sentences = {"compare": ["radius(exp) > radius(direct) at width 4"]}
    sweep = load(tmp_path, f"{PLAIN}\nclaims: {json.dumps(table | sentences)}\n")
    write_plan(tmp_path, make_plan(sweep, identified(sweep), ()), {})
    assert claims_from_dict(json.loads((tmp_path / "plan.json").read_text())["claims"]) == sweep.claims
    without = load(tmp_path, PLAIN)
    assert [trial.identity for trial in identified(sweep)] == [trial.identity for trial in identified(without)]
    alone = claimed(tmp_path, *sentences["compare"], grid=PLAIN)
    assert claims_from_dict(json.loads(json.dumps(claims_to_dict(alone)))) == alone
    assert (alone.source, alone.rows) == ("", ())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two parameterizations, radii apart by a factor of 3; equal losses; two widths at two horizons, eight seeds."""
    folder = tmp_path_factory.mktemp("compared")
    conditions = [Condition(parameterization="direct", base=0.1), Condition(parameterization="exp", base=0.3)]
    write_study(folder, conditions, widths=(4, 8), horizons=(50, 100), seeds=8, memory=False)
    return load_study(folder)


def claim_verdicts(found: Sequence[Compared]) -> dict[str, str]:
    """Each claim's text and what the table says of it."""
    rows = compared_frame(found).to_dict("records")
    return {row["claim"]: in_words(Support(row["verdict"]), row["more_seeds"]) for row in rows}


def comparison(text: str, metric: str, op: str = ">", **at: int) -> Comparison:
    left, right = ({"model.parameterization": name} for name in ("exp", "direct"))
    places = {f"model.{key}" if key == "width" else f"task.{key}": value for key, value in at.items()}
    return Comparison(text, metric, left, op, right, places, ("model.width", "task.horizon"))


def test_what_was_measured_decides_the_claims(study: Study) -> None:
    found = compare_cells(
        [
            comparison("wider", "radius"),
            comparison("at one place", "radius", width=8, horizon=100),
            comparison("the other way", "radius", "<", width=8, horizon=100),
            comparison("alike", "error", width=8),
            comparison("nowhere", "radius", width=16),
            comparison("not measured", "radius_weights", width=8),
        ],
        study.records,
        study.tables,
    )
    verdicts = claim_verdicts(found)
    assert verdicts == {
        "wider": "supported",
        "at one place": "supported",
        "the other way": "not supported",
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
    assert frame[frame["claim"] == "alike"]["ties"].tolist() == [8, 8]
    assert frame.loc[frame["claim"] == "nowhere", "left_identity"].tolist() == [""]


def test_too_few_seeds_for_so_many_claims_are_asked_for(study: Study) -> None:
    few = {name: table[table["seed"] < 5] for name, table in study.tables.items() if len(table)}
    everywhere = compare_cells([comparison("everywhere", "radius")], study.records, few)
    assert claim_verdicts(everywhere) == {"everywhere": "underpowered: needs 2 more seeds"}  # 2^-7 <= 0.05 / 4
    once = compare_cells([comparison("once", "radius", width=8, horizon=50)], study.records, few)
    assert claim_verdicts(once) == {"once": "supported"}  # 2^-5


def test_the_first_of_the_chosen_trials_stands_for_its_cell(study: Study) -> None:
    everything = list(study.records)
    one = comparison("one", "radius", width=8, horizon=50)
    (usual,) = compare_cells([one], study.records, study.tables, everything)
    records = {**study.records, "later": {"config": study.records[usual.left]["config"]}}
    (again,) = compare_cells([one], records, study.tables, [*everything, "later"])
    assert again == usual
    (without,) = compare_cells([one], records, study.tables, ["later", "unknown", *everything])
    assert (without.left, without.judged.test.n) == ("later", 0)
    (half,) = compare_cells([one], study.records, study.tables, [usual.left])
    assert (half.right, half.judged.test.n) == ("", 0)


def test_a_cell_without_a_result_leaves_the_claim_open(study: Study) -> None:
    everywhere = comparison("everywhere", "radius")
    complete = compare_cells([everywhere], study.records, study.tables)
    without = {identity: record for identity, record in study.records.items() if identity != complete[1].right}
    found = compare_cells([everywhere], without, study.tables)
    assert {each.left: each.right for each in found} == {
        each.left: each.right if each is not complete[1] else "" for each in complete
    }
    assert claim_verdicts(found) == {"everywhere": "not measured"}
