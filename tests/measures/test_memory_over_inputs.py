"""Memory over inputs: one curve for a linear model, autograd's Jacobian for a selective one; and what a page shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from engine import trial
from memsweep import registry, report
from memsweep.config.schema.trial import TrialConfig
from memsweep.measures.capacity import Capacity
from memsweep.measures.memory_over_inputs import MemoryOverInputs
from memsweep.measures.memory_over_inputs.derivatives import influence
from memsweep.models.base import Signature
from memsweep.sweep.planning.identity import identifying, identity, training_of
from memsweep.trial import run_pack
from report_study import Condition, write_study

INPUTS = MemoryOverInputs.Config(sequences=6)


def measured(config: TrialConfig) -> TrialConfig:
    perturbation = dataclasses.replace(config.perturbation, balls=(), asked_measures=(INPUTS,))
    return dataclasses.replace(config, perturbation=perturbation)


def test_of_a_linear_model_every_sequence_has_the_impulse_response() -> None:
    config = measured(trial(model={"width": 3}))
    result = run_pack([config])[0]
    table = result.tables["memory_over_inputs"]
    model = registry.get(registry.MODEL, "diagonal_rnn")(config.model, Signature(1, 1, 20), np.random.default_rng(0))
    for seed, weights in result.weights.items():
        kernel = model.response({name: value.unsqueeze(0) for name, value in weights.items()}, 20).kernel[0, 0, 0]
        for name in ("median", "high", "largest"):
            own = table[table["seed"] == seed][name]
            np.testing.assert_allclose(own, kernel.detach().abs()[: len(own)], rtol=1e-6, atol=1e-12)
    assert set(table["width"]) == {3}


def test_of_a_selective_model_the_norms_are_those_of_its_jacobians() -> None:
    stack = registry.get(registry.MODEL, "residual_stack")
    unit = registry.get(registry.UNIT, "min_gru").Config()
    rng = np.random.default_rng(3)
    model = stack(stack.Config(width=3, features=3, layers=2, unit=unit), Signature(2, 2, 9), rng).eval()
    weights = {name: value.detach().unsqueeze(0) for name, value in model.named_parameters()}
    inputs = torch.from_numpy(rng.standard_normal((4, 9, 2)))

    def run(given: torch.Tensor) -> torch.Tensor:
        return model.outputs(weights, given)[0]

    norms = influence(run, inputs)
    for row, sequence in enumerate(inputs):
        jacobian = torch.autograd.functional.jacobian(lambda one: run(one.unsqueeze(0))[0, -1], sequence)  # [O, T, I]
        torch.testing.assert_close(norms[row], jacobian.square().sum((0, 2)).sqrt().flip(0), rtol=1e-12, atol=0.0)
    assert not torch.allclose(norms[0], norms[1], rtol=1e-3)  # it remembers along some inputs more than along others


def test_a_replica_has_the_same_memory_alone_and_in_a_pack() -> None:
    configs = [measured(trial(model={"width": width, "activation": "tanh"})) for width in (3, 2)]
    together, alone = run_pack(configs)[1], run_pack(configs[1:])[0]
    pd.testing.assert_frame_equal(together.tables["memory_over_inputs"], alone.tables["memory_over_inputs"])


def test_it_moves_the_identity_of_trials_that_measure_it_and_no_other() -> None:
    plain = trial()
    assert "memory_over_inputs" not in identifying(plain)["perturbation"]
    other = dataclasses.replace(plain, perturbation=dataclasses.replace(plain.perturbation, asked_measures=(INPUTS,)))
    assert identity(other) != identity(plain)
    assert training_of(identity(other)) == training_of(identity(plain))


def test_a_model_that_reads_ids_is_refused() -> None:
    module = registry.get(registry.MODEL, "module").Config(factory="torch.nn:GRU", tokens=True)
    problems = [*dataclasses.replace(measured(trial()), model=module).problems()]
    assert any("perturbation.memory_over_inputs is set, but the model reads ids" in problem for problem in problems)


@pytest.mark.more
def test_a_page_draws_the_typical_and_the_largest(tmp_path: Path) -> None:
    def add(index: int, tables: dict[str, pd.DataFrame]) -> None:
        replicas = tables["replicas"][["identity", "horizon", "width", "seed"]]
        rows = [
            row | {"lag": lag, "median": 0.5**lag, "high": 0.6**lag, "largest": 0.9**lag}
            for row in replicas.to_dict("records")
            for lag in range(8)
        ]
        tables["memory_over_inputs"] = pd.DataFrame(rows)

    write_study(tmp_path, (Condition(),), widths=[4], horizons=[50], balls=(), memory=False, complete=add)
    paths = report.build(tmp_path)
    page = paths.page.read_text()
    assert 'id="memory-over-inputs"' in page
    assert '["the largest found",[[0,1],[1,0.9],[2,0.81]' in page


def test_a_trial_in_float32_is_measured_on_a_task_of_numbers_too() -> None:
    unit = registry.get(registry.UNIT, "min_gru").Config()
    stack = registry.get(registry.MODEL, "residual_stack").Config(width=3, features=3, layers=1, unit=unit)
    config = measured(trial(training={"dtype": "float32", "steps": 10}))
    both = dataclasses.replace(config.perturbation, asked_measures=(Capacity.Config(sequences=2), INPUTS))
    result = run_pack([dataclasses.replace(config, model=stack, perturbation=both)])[0]
    assert "not_measured" not in result.summary
    for name in ("memory_over_inputs", "singular_values"):
        assert result.tables[name].groupby("seed").size().to_dict().keys() == {0, 1}
