"""Sharpness: the top eigenvalue against whole Hessians, the ceiling against a diverging optimizer, kept and stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from engine import model_config, section, stacked, task_config, trial, whole
from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.learning.ensemble.replicas import Replica, build, time_scales
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.optimizer import AdamW, RMSprop
from memsweep.measures.sharpness.curvature import STEPS, largest_eigenvalue
from memsweep.models.base import Part, Signature
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.streams import VALIDATION, Stream
from memsweep.sweep.planning.identity import identifying
from memsweep.trial import run_pack, run_trial

TRAINING: dict[str, Any] = {"seeds": 2, "steps": 40, "batch_size": 8, "validation_size": 16, "validate_every": 10}
TRAINING |= {"sharpness_every": 20}


def small(**training: Any) -> TrialConfig:
    base = trial(task={"horizon": 10}, perturbation={"balls": (), "test_size": 16})
    return replace(base, training=section(TrainingConfig, **TRAINING | training))


def quartic(seed: int, size: int) -> tuple[Any, Tensor, Tensor]:
    """Gradients of rows of a function with fourth powers, weights, and the Hessians there in closed form."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(3, size, size, generator=generator, dtype=torch.float64)
    matrix = matrix + matrix.mT
    weights = torch.randn(3, size, generator=generator, dtype=torch.float64)
    hessian = matrix + torch.diag_embed(3.0 * weights.square())
    return lambda at: torch.einsum("pij,pj->pi", matrix, at) + at**3, weights, hessian


@pytest.mark.parametrize("size", [1, 3, STEPS])
def test_the_top_eigenvalue_is_that_of_the_whole_hessian(size: int) -> None:
    gradient, weights, hessian = quartic(size, size)
    scale = torch.rand(3, size, generator=torch.Generator().manual_seed(9), dtype=torch.float64) + 0.1
    found = largest_eigenvalue(gradient, weights, scale, torch.ones_like(weights))
    scaled = scale.unsqueeze(-1) * hessian * scale.unsqueeze(-2)
    torch.testing.assert_close(found, torch.linalg.eigvalsh(scaled)[:, -1], rtol=1e-6, atol=1e-6)


def test_beyond_its_steps_it_is_never_above_and_nearly_there() -> None:
    gradient, weights, hessian = quartic(0, 200)
    found = largest_eigenvalue(gradient, weights, torch.ones_like(weights), torch.ones_like(weights))
    share = found / torch.linalg.eigvalsh(hessian)[:, -1]
    assert (share < 1.0 + 1e-7).all()
    assert (share > 0.9).all()


def test_entries_that_do_not_move_and_rows_without_any_do_not_count() -> None:
    gradient, weights, hessian = quartic(1, 6)
    scale = torch.ones_like(weights)
    scale[0, 2:] = 0.0
    scale[1] = 0.0
    found = largest_eigenvalue(gradient, weights, scale, torch.ones_like(weights))
    assert float(found[0]) == pytest.approx(float(torch.linalg.eigvalsh(hessian[0, :2, :2])[-1]), rel=1e-6)
    assert float(found[1]) == 0.0


def test_a_model_s_sharpness_is_the_top_of_its_whole_hessian() -> None:
    """The Hessian column by column, with another step of the differences."""
    model = ResidualStack.Config(width=2, features=2, layers=1)
    task = registry.get(registry.TASK, "linear_functional")(small().task)
    (ensemble,) = build(ResidualStack, [Replica(0, model, seed, 0.01) for seed in range(2)], Signature(1, 1, 10),
                        torch.float64, None)  # fmt: skip
    task_loss = task_loss_for([task], False, torch.float64)
    learner = Learner.start(ensemble, task_loss, small().training)
    batch = whole(task_loss.data(Stream(0, VALIDATION), 0, 8))
    weights, columns = learner.weights, []
    for index in range(weights.shape[1]):
        push = torch.zeros_like(weights)
        push[:, index] = 1e-5
        ends = [learner.gradients_at(task_loss, batch, weights + sign * push) for sign in (1, -1)]
        columns.append((ends[0] - ends[1]) / 2e-5)
    hessian = torch.stack(columns, -1)[:2]
    torch.testing.assert_close(hessian, hessian.mT, rtol=1e-3, atol=1e-4)
    found = largest_eigenvalue(
        lambda at: learner.gradients_at(task_loss, batch, at),
        weights,
        torch.ones_like(weights),
        learner.ensemble.initial,
    )[:2]
    torch.testing.assert_close(found, torch.linalg.eigvalsh(hessian)[:, -1], rtol=1e-2, atol=0)


@pytest.mark.parametrize(("share", "bounded"), [(0.99, True), (1.01, False)])
@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_the_edge_is_where_a_quadratic_begins_to_diverge(share: float, bounded: bool, beta1: float) -> None:
    """The averaged gradient over a constant divisor, as Adam's late steps have it."""
    curvature = 3.0
    optimizer = AdamW.like(torch.ones(1, 1), beta1=beta1)
    rate = share * optimizer.edge / curvature
    weight, mean = 1.0, 0.0
    for _ in range(4000):
        mean = beta1 * mean + (1.0 - beta1) * curvature * weight
        weight -= rate * mean
    assert (abs(weight) < 1.0) is bounded
    assert RMSprop.like(torch.ones(1, 1)).edge == 2.0


def test_it_is_stored_by_step_and_training_does_not_move() -> None:
    with_it, without = run_trial(small()), run_trial(small(sharpness_every=None))
    table = with_it.tables["sharpness"]
    assert "sharpness" not in without.tables
    assert table.groupby("seed")["step"].apply(list).tolist() == [[0, 20, 40]] * 2
    assert (table["sharpness"] > 0).all()
    assert np.isnan(table.loc[table["step"] == 0, "ceiling"]).all()
    assert (table.loc[table["step"] > 0, "ceiling"] > 0).all()
    assert table.loc[table["step"] == 0, "learning_rate"].nunique() == 1
    assert (table.loc[table["step"] == 40, "learning_rate"] < 1e-12).all()  # the end of the cosine
    assert table["margin"].between(0, 1).all()
    assert (table.loc[table["step"] == 0, "output_change"] == 0.0).all()
    assert (table.loc[table["step"] > 0, "output_change"] > 0.0).all()
    longest = -1.0 / np.log(1.0 - table["margin"])
    np.testing.assert_allclose(table["time_scale_high"], longest, rtol=1e-9)
    assert (table["time_scale_low"] <= table["time_scale"]).all()
    for name in ("replicas", "curves", "history"):
        pd.testing.assert_frame_equal(with_it.tables[name], without.tables[name])


@pytest.mark.parametrize("exact", [True, False])
def test_change_of_outputs_and_time_scales_are_those_of_each_model_alone(exact: bool) -> None:
    """Widths 2 to 4 in one ensemble: the padding of the narrow ones must not count."""
    configs = [model_config(width=width) for width in (4, 3, 2)]
    (ensemble,), task_loss = stacked(configs)
    task = registry.get(registry.TASK, "linear_functional")(task_config())
    task_loss = task_loss if exact else task_loss_for([task], False, torch.float64)
    learner = Learner.start(ensemble, task_loss, small().training)
    noise = torch.randn(ensemble.initial.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    learner.weights = ensemble.initial + 0.2 * torch.where(ensemble.exists, noise, 0.0)
    found = learner.output_change(task_loss, whole(task_loss.data(Stream(0, VALIDATION), 0, 8)))
    scales = time_scales(ensemble, learner.weights)
    sequences = task.white_noise(Stream(0, VALIDATION), 0, 8).unsqueeze(-1)
    of_loss = task.weights().unsqueeze(-1) if exact else 1.0  # a closed form weights time as its loss does
    for row, config in enumerate(configs):
        model = type(ensemble.model)(config, Signature(1, 1, 20), np.random.default_rng(0)).double()
        now, before = (ensemble.weights_of(at, row) for at in (learner.weights, ensemble.initial))
        outputs = [torch.func.functional_call(model, weights, (sequences,)) for weights in (now, before)]
        change = (of_loss * (outputs[0] - outputs[1])).square().mean().sqrt()
        assert float(found[row]) == pytest.approx(float(change), rel=1e-9)
        sizes = model.eigenvalues({name: value.unsqueeze(0) for name, value in now.items()})[0].abs()
        own = -1.0 / sizes.log().sort().values
        assert scales[row].tolist() == pytest.approx([float(own[at]) for at in (0, (len(own) - 1) // 2, -1)])


def test_a_mode_that_does_not_decay_has_an_infinite_time_scale() -> None:
    (ensemble,), _ = stacked([model_config("direct", width=2)])
    weights = {name: value.clone() for name, value in ensemble.layout.named(ensemble.initial).items()}
    recurrent = next(name for name, role in ensemble.model.roles(model_config()).items() if role.part is Part.RECURRENT)
    weights[recurrent][0, :2] = torch.tensor([0.0, 0.5])  # rates: eigenvalues 1 and 0.5
    low, _, high = time_scales(ensemble, ensemble.layout.flat(weights))[0].tolist()
    assert (low, high) == (pytest.approx(1.0 / np.log(2.0)), np.inf)


def test_company_changes_no_bit() -> None:
    wider = replace(small(), model=replace(small().model, width=5))
    alone = run_trial(small()).tables["sharpness"]
    together = run_pack([wider, small()])[1].tables["sharpness"]
    pd.testing.assert_frame_equal(together, alone, check_exact=True)


def test_a_config_without_it_keeps_its_identity_and_odd_steps_are_refused() -> None:
    assert "sharpness_every" not in identifying(small(sharpness_every=None))["training"]
    assert identifying(small())["training"]["sharpness_every"] == 20
    with pytest.raises(
        ConfigError, match=r"training: sharpness_every \(15\) must be a multiple of validate_every \(10\)"
    ):
        config_from(TrialConfig, to_dict(small(sharpness_every=15)), "a test")
