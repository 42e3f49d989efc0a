"""The error over weights and inputs: of a linear model the closed form, of any other never less than what is tried."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from engine import model_config, stacked, task_config, trial
from memsweep import registry, report
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.measures.worst_inputs import WorstInputs as Measure
from memsweep.measures.worst_inputs.ascent import WorstInputs, worst_over_inputs
from memsweep.models.base import as_linear
from memsweep.report.charts.every import chart_sets
from memsweep.report.tracked import verdicts_of
from memsweep.sweep.planning.identity import identifying, identity, training_of
from memsweep.trial import run_pack
from report_study import Condition, exported, write_study

RADII = (0.02, 0.1)
BOUND = 0.7
INPUTS = Measure.Config(radii=RADII, bound=BOUND)
HOW = PerturbationConfig()


def of_models(ensemble: Ensemble, kernel: Tensor, weights: Tensor) -> Tensor:
    """The largest error over the inputs of a linear model at weights ``[K, S]``, in closed form: ``[K]``."""
    linear = as_linear(ensemble.model)
    assert linear is not None
    response = linear.response(ensemble.layout.named(weights.unsqueeze(0)), len(kernel))
    differences = response.kernel[0, :, 0, 0] - kernel
    return BOUND * differences.abs().sum(1) + response.drift[0, :, 0, -1].abs()


def searched(parameterization: str, width: int, ball: str, **fields: object) -> tuple[Ensemble, Tensor, WorstInputs]:
    task = task_config(horizon=24, kernel="polynomial")
    model = model_config(parameterization, width=width, **fields)
    (ensemble,), _ = stacked([model], task=task, seeds=[3], rows=lambda _: 1)
    kernel = task.memory()
    return ensemble, kernel, worst_over_inputs(ensemble, ensemble.initial, kernel, ball, HOW, RADII, BOUND)


@pytest.mark.parametrize("ball", ["recurrent", "all"])
@pytest.mark.parametrize("parameterization", ["exp", "direct"])
def test_of_a_linear_model_the_inputs_are_the_worst_for_the_weights(parameterization: str, ball: str) -> None:
    ensemble, kernel, worst = searched(parameterization, 3, ball)
    known = of_models(ensemble, kernel, worst.weights)
    torch.testing.assert_close(worst.errors, known, rtol=1e-12, atol=0.0)
    assert bool((worst.inputs.abs() <= BOUND).all())
    assert bool((worst.errors.diff() > 0.0).all())


@pytest.mark.parametrize("parameterization", ["exp", "direct"])
def test_the_search_reaches_an_exhaustive_grid_of_pushes_of_a_linear_model_and_does_not_pass_it(
    parameterization: str,
) -> None:
    ensemble, kernel, worst = searched(parameterization, 2, "recurrent")
    axis = torch.linspace(-1.0, 1.0, 201, dtype=torch.float64)
    pushes = torch.cartesian_prod(axis, axis)
    recurrent = ensemble.layout.segments[[s.role.diagonal for s in ensemble.layout.segments].index(True)]
    for index, radius in enumerate(RADII, 1):
        weights = ensemble.initial.repeat(len(pushes), 1)
        weights[:, recurrent.start : recurrent.start + 2] += radius * pushes
        largest = float(of_models(ensemble, kernel, weights).max())
        assert 0.99 * largest <= float(worst.errors[index]) <= largest * (1.0 + 1e-9)


def test_of_a_network_no_corner_of_the_inputs_has_a_larger_error_than_what_is_found() -> None:
    task = task_config(horizon=8, kernel="polynomial")
    model = model_config("exp", width=3, activation="tanh")
    (ensemble,), _ = stacked([model], task=task, seeds=[3], rows=lambda _: 1)
    kernel = task.memory()
    worst = worst_over_inputs(ensemble, ensemble.initial, kernel, "all", HOW, RADII, BOUND)
    corners = BOUND * torch.tensor([*itertools.product((-1.0, 1.0), repeat=8)], dtype=torch.float64)

    def errors(weights: Tensor, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            outputs = ensemble.model.outputs(ensemble.layout.named(weights.unsqueeze(0)), inputs.unsqueeze(-1))
        return (outputs[0, :, -1, 0] - inputs.flip(1) @ kernel).abs()

    for error, weights, inputs in zip(worst.errors, worst.weights, worst.inputs, strict=True):
        torch.testing.assert_close(errors(weights, inputs.unsqueeze(0))[0], error, rtol=1e-12, atol=0.0)
        assert float(errors(weights, corners).max()) <= float(error) * (1.0 + 1e-9)


def measured(config: TrialConfig) -> TrialConfig:
    return dataclasses.replace(config, perturbation=dataclasses.replace(config.perturbation, asked_measures=(INPUTS,)))


def test_a_trial_stores_the_errors_of_its_seeds_and_balls_in_the_units_of_its_inputs() -> None:
    config = measured(trial(task={"dt": 0.5}, model={"width": 3}))
    table = run_pack([config])[0].tables["worst_inputs"]
    assert [*table.groupby(["seed", "ball"]).size()] == [3, 3, 3, 3]
    assert set(table["bound"]) == {BOUND * 0.5}
    kernel = config.task.memory()  # type: ignore[attr-defined]
    np.testing.assert_allclose(table["zero_error"], BOUND * 0.5 * float(kernel.abs().sum()))
    assert (table.groupby(["seed", "ball"])["error"].diff().dropna() >= 0.0).all()


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_a_replica_has_the_same_errors_alone_and_in_a_pack(activation: str) -> None:
    kernels = ("polynomial", "exponential") if activation == "linear" else ("polynomial",) * 2
    configs = [
        measured(trial(task={"kernel": kernel}, model={"width": width, "activation": activation}))
        for width, kernel in zip((3, 2), kernels, strict=True)
    ]
    together, alone = run_pack(configs)[1], run_pack(configs[1:])[0]
    pd.testing.assert_frame_equal(together.tables["worst_inputs"], alone.tables["worst_inputs"])


def test_it_moves_the_identity_of_trials_that_measure_it_and_no_other() -> None:
    plain = trial()
    assert "worst_inputs" not in identifying(plain)["perturbation"]
    other = measured(plain)
    assert identity(other) != identity(plain)
    assert training_of(identity(other)) == training_of(identity(plain))


def test_a_task_without_a_linear_target_and_a_study_without_a_ball_are_refused() -> None:
    assert not [*measured(trial()).problems()]
    task = registry.get(registry.TASK, "nonlinear_functional").Config(horizon=20)
    problems = [*dataclasses.replace(measured(trial()), task=task).problems()]
    assert any("nonlinear_functional is not a linear functional" in problem for problem in problems)
    still = dataclasses.replace(trial().perturbation, balls=(), asked_measures=(INPUTS,))
    problems = [*dataclasses.replace(trial(), perturbation=still).problems()]
    assert any("no weights that move" in problem for problem in problems)


def test_a_report_has_the_errors_by_radius_and_calls_them_a_lower_bound(tmp_path: Path) -> None:
    def add(index: int, tables: dict[str, pd.DataFrame]) -> None:
        replicas = tables["replicas"][["identity", "horizon", "width", "seed"]]
        about = {"ball": "all", "norm": "spectral", "bound": 1.0, "zero_error": 4.0}
        rows = [
            row | about | {"radius": radius, "error": 4.0 * (0.5 + radius + 0.01 * row["seed"])}
            for row in replicas.to_dict("records")
            for radius in (0.0, *RADII)
        ]
        tables["worst_inputs"] = pd.DataFrame(rows)

    write_study(tmp_path, (Condition(),), widths=[4], horizons=[50], memory=False, complete=add)
    paths = report.build(tmp_path)
    table = exported(paths, "worst_inputs")
    np.testing.assert_allclose(table["share"], 0.5 + table["radius"] + 0.01 * table["seed"])
    text = paths.text(width=200)
    assert "No more than a lower bound." in text
    assert "0.62 [0.6, 0.64]" in text
    assert 'id="worst-inputs"' in paths.page.read_text()
    found = {each.name: each.first() for each in chart_sets(paths.contents, paths.tables.sections)}
    (chart,) = found["worst-inputs"]
    ((name, points),) = chart["lines"]
    assert name.endswith("all")
    np.testing.assert_allclose(points, [[r, 0.52 + r, 0.5 + r, 0.54 + r] for r in (0.0, *RADII)])
    (named,) = verdicts_of(paths.contents).values()
    assert named.metrics["worst_inputs_all/share_0.1"] == pytest.approx(0.62)
