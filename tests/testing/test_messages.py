"""A suite that fails says numbers: what was looked at, expected and got, how close it had to be, of which seed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import usual_model
from memsweep import registry
from memsweep.data.api import Batch
from memsweep.report.analysis.losses import Spread
from memsweep.report.values.section import Glance, Section
from memsweep.testing import MeasureSuite, ModelSuite, OnlineUnitSuite, RuleSuite, TaskSuite
from paths import ROOT

registry.discover(ROOT)
FOLDER = ROOT / "platform" / "memsweep" / "testing"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_no_check_fails_without_a_message(file: Any) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    bare = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert) and node.msg is None]
    assert not bare, f"bare assertions of {file.name}: lines {bare}"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    quiet = [
        call.lineno
        for call in calls
        if ast.unparse(call.func).endswith("assert_close") and "msg" not in {keyword.arg for keyword in call.keywords}
    ]
    assert not quiet, f"comparisons of {file.name} that do not say of what: lines {quiet}"


def changed(kind: str, name: str, **members: Any) -> Any:
    """A part with other members, for suites alone."""
    part = registry.get(kind, name)
    return type(f"Wrong{part.__name__}", (part,), members)


def task_suite(**members: Any) -> TaskSuite:
    suite, part = TaskSuite(), changed(registry.TASK, "linear_functional", **members)
    suite.task, suite.build = "linear_functional", lambda: part(part.Config())  # type: ignore[method-assign]
    return suite


def model_suite(**members: Any) -> ModelSuite:
    suite, part = ModelSuite(), changed(registry.MODEL, "vanilla_rnn", **members)
    suite.model, suite.config = "vanilla_rnn", usual_model("vanilla_rnn", width=3)
    suite.model_class = lambda: part  # type: ignore[method-assign]
    return suite


def unit_suite(**members: Any) -> OnlineUnitSuite:
    suite, part = OnlineUnitSuite(), changed(registry.UNIT, "rnn", **members)
    suite.unit, suite.build = "rnn", lambda: part(part.Config(), 4, 3)  # type: ignore[method-assign]
    return suite


def rule_suite(**members: Any) -> RuleSuite:
    suite, part = RuleSuite(), changed(registry.RULE, "online_snap1", **members)
    suite.rule, suite.unit, suite.part = "online_snap1", "rnn", lambda: part  # type: ignore[method-assign]
    return suite


def measure_suite(**members: Any) -> MeasureSuite:
    suite, part = MeasureSuite(), changed(registry.MEASURE, "capacity", **members)
    suite.measure, suite.part = "capacity", lambda: part  # type: ignore[method-assign]
    return suite


def short(self: Any, stream: Any, index: int, size: int) -> Batch:
    inputs = torch.zeros(size, 5, 1, dtype=torch.float64)
    return Batch(inputs, inputs)


def looks_ahead(self: Any, inputs: Tensor) -> Tensor:
    return inputs.flip(1)


class _Slope:
    """A slope that is a little too large."""

    def __call__(self, unit: Any, parts: Any, x: Tensor, states: Tensor) -> Tensor:
        right: Tensor = registry.get(registry.UNIT, "rnn").slope(unit, parts, x, states)
        return right + 1e-6


SLOPE = _Slope()
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a task of another length": (
        lambda: task_suite(draw=short).test_shapes_and_types(),
        "shape of the inputs of 6 sequences: expected (6, 100, 1), got [6, 5, 1]",
    ),
    "a task whose chance is too high": (
        lambda: task_suite(chance=lambda self: 50.0).test_chance_is_what_an_answer_without_input_reaches(),
        "on 512 sequences (seed 0): expected 0.8 to 1.25 of chance, 50, got ",
    ),
    "a task whose oracle is wrong": (
        lambda: task_suite(oracle=lambda self, x: x).test_chance_is_a_level_that_the_oracle_beats(),
        "loss of the oracle on 128 sequences (seed 0): expected best_loss, 0, within ",
    ),
    "a model that looks ahead": (
        lambda: model_suite(forward=looks_ahead).test_causality(),
        "outputs before step 7 stay when later inputs change (expected: causal): expected True, got False",
    ),
    "a model of another shape": (
        lambda: model_suite(forward=lambda self, x: x.mean(-1)).test_shape(),
        "shape of the outputs: expected (3, 12, 1), got [3, 12]",
    ),
    "a model that mixes sequences": (
        lambda: model_suite(forward=lambda self, x: x - x.mean(0)).test_sequences_of_a_batch_do_not_mix(),
        "outputs of a sequence beside others, expected as alone: Tensor-likes are not close!",
    ),
    "a unit with a wrong slope": (
        lambda: unit_suite(slope=lambda *about: SLOPE(*about)).test_slope_is_the_diagonal_of_the_jacobian(),
        "Greatest absolute difference: 1.0000",
    ),
    "a unit that names a part that is none": (
        lambda: unit_suite(part_names=frozenset({"matrix"})).test_parts_have_a_row_for_every_state(),
        "names of the parts (part_names says what is expected): expected ['matrix'], got [",
    ),
    "a rule that claims to be exact where states feel one another": (
        lambda: rule_suite(
            exact=True, refusal=lambda *about: None
        ).test_where_it_claims_to_be_exact_it_is_the_true_gradient(),
        "gradient by the part encoder, expected by differences: Tensor-likes are not close!",
    ),
    "a rule that traces what no unit has": (
        lambda: rule_suite(
            traced=lambda self, unit: frozenset({"nothing"})
        ).test_what_it_traces_are_parts_of_the_unit(),
        "got ['nothing'] besides",
    ),
    "a measure with a column too many": (
        lambda: measure_suite(columns={"seed": "int64"}).test_its_table_has_a_name_and_columns_of_its_own(),
        "columns that every table has already: ['seed']",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_failure_says_what_was_expected_and_what_was_got(what: str) -> None:
    run, words = WRONG[what]
    with pytest.raises(AssertionError) as failed:
        run()
    assert words in str(failed.value)


def glance_alone(contents: Any) -> Section:
    return Section("Sums", "Sums.", glance=[Glance("sum", "sum", "Sums.", lambda row: Spread.of([]))])


def test_a_section_that_no_report_shows_is_named_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = measure_suite(section=f"{__name__}:glance_alone")
    monkeypatch.setattr(suite, "swept", lambda folder: SimpleNamespace(contents=None))
    with pytest.raises(AssertionError, match=r"charts, or with rows in its table, got 'Sums' with glances alone"):
        suite.test_a_report_says_it_everywhere(tmp_path)
