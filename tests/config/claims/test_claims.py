"""The claims section of a study: checked at once, carried to the report, and no part of any trial's identity."""

from __future__ import annotations

import json
from pathlib import Path

from config_study import BASE, load, problems
from memsweep.config.schema.claims import Claim, claims_from_dict
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan

CLAIMED = (
    BASE
    + """
claims:
  source: "a published table"
  rows:
    - {name: Diagonal RNN, where: {model: diagonal_rnn, parameterization: [direct, exp]}, exponential: stable,
       polynomial: unstable}
    - {name: 'Plain, rate .5', where: {normalize: false, rate: 0.5, activation: null}, exponential: unstable}
"""
)


def test_claims_reach_the_plan_file_and_come_back_the_same(tmp_path: Path) -> None:
    sweep = load(tmp_path, CLAIMED)
    assert sweep.claims is not None
    assert sweep.claims.kernels == ("exponential", "polynomial")
    assert sweep.claims.rows[0].where == {"model": ("diagonal_rnn",), "parameterization": ("direct", "exp")}
    write_plan(tmp_path, make_plan(sweep, identified(sweep), ()), {})
    stored = json.loads((tmp_path / "plan.json").read_text())["claims"]
    assert claims_from_dict(stored) == sweep.claims


def test_claims_are_cosmetic_and_can_be_left_out(tmp_path: Path) -> None:
    with_claims, without = load(tmp_path, CLAIMED), load(tmp_path, BASE)
    assert without.claims is None
    assert [trial.identity for trial in identified(with_claims)] == [trial.identity for trial in identified(without)]
    assert load(tmp_path, CLAIMED, "~claims").claims is None
    assert load(tmp_path, CLAIMED, "task.kernel=shift").claims == with_claims.claims  # of kernels that the study lacks


def test_everything_that_is_wrong_with_claims_is_said_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        BASE
        + """
claims:
  sauce: x
  rows:
    - {name: '', where: {modle: diagonal_rnn, parameterization: expp, task: [], kernel: {a: 1}}, exponental: stabel}
    - {name: A}
    - just text
    - {name: B, where: [model], polynomial: true}
""",
    )
    text = "\n".join(found)
    for piece in (
        "claims.sauce: no such field. Did you mean 'source'?",
        "claims.source: must say in words where this was published, got null.",
        "claims.rows[0].name: must be the row's label",
        "claims.rows[0].where.modle: no such column. Did you mean 'model'? Columns: task, kernel,",
        "claims.rows[0].where.parameterization: parameterization 'expp' is not registered. Did you mean 'exp'?",
        "claims.rows[0].where.task: is an empty list",
        "claims.rows[0].where.kernel: must be a value or a list of values",
        "claims.rows[0].exponental: there is no such kernel. Did you mean 'exponential'?",
        "claims.rows[0].exponental: must be one of stable, unstable, got \"stabel\" (did you mean 'stable'?).",
        "claims.rows[1]: claims nothing.",
        "claims.rows[2]: must be a mapping",
        "claims.rows[3].where: must be a mapping",
        "claims.rows[3].polynomial: must be one of stable, unstable, got true.",
    ):
        assert piece in text, piece
    assert len(found) == 13
    for wrong in ("claims: 3", "claims: {source: x}", "claims: {source: x, rows: []}"):
        assert len(problems(tmp_path, BASE + wrong)) == 1


def test_a_row_covers_the_conditions_that_it_names() -> None:
    claim = Claim("x", {"model": ("a", "b"), "parameterization": ("best", None), "normalize": (False,)}, {})
    condition = {"model": "a", "parameterization": "best(a=1.0, b=0.5)", "normalize": False}
    assert claim.covers(condition)
    assert claim.covers({**condition, "parameterization": None})
    assert not claim.covers({**condition, "parameterization": "exp"})
    assert not claim.covers({**condition, "model": "c"})
    assert not claim.covers({**condition, "normalize": None})  # a model without the option is not one that has it off
    exact = Claim("x", {"parameterization": ("best(a=1.0, b=0.5)",)}, {})
    assert exact.covers(condition)
    assert not exact.covers({**condition, "parameterization": "best(a=2.0, b=0.5)"})
    assert Claim("all", {}, {}).covers(condition)
    assert claims_from_dict(None) is None
