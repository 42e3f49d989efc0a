"""The LSTM unit beside torch's own, by oneDNN where it is wide, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.deep.unit_lstm import LSTMUnit
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.gated.lstm import lstm_states
from memsweep.recurrence.gated.onednn import WIDE, is_steady, suits, wide_states
from memsweep.testing import UnitSuite

registry.discover()

TestChrono = type("TestChrono", (UnitSuite,), {"unit": "lstm", "config": LSTMUnit.Config(chrono=True)})
del UnitSuite  # pytest would collect the bare suite too

TORCHS = ("input", "forget", "candidate", "output")
"""The order in which torch's weights have the gates."""


def drawn(width: int, replicas: int = 2) -> tuple[LSTMUnit, dict[str, Tensor]]:
    unit, noise = LSTMUnit(LSTMUnit.Config(), width, width), np.random.default_rng(5)
    initial = unit.initial(9, noise).items()
    weights = {
        name: torch.from_numpy(value + 0.3 * noise.standard_normal((replicas, *value.shape))) for name, value in initial
    }
    return unit, {name: value.requires_grad_() for name, value in weights.items()}


def test_it_is_torchs_with_all_gradients() -> None:
    unit, weights = drawn(5)
    x_NBTF = torch.randn(2, 4, 9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    answers = unit.run(weights, x_NBTF)
    outer = torch.randn(answers.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    *found, of_inputs = torch.autograd.grad(answers, [*weights.values(), x_NBTF], outer)
    by_name = dict(zip(weights, found, strict=True))
    for row in range(2):
        theirs = torch.nn.LSTM(5, 5, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            for kind, target in (("encoder", "weight_ih_l0"), ("matrix", "weight_hh_l0"), ("bias", "bias_ih_l0")):
                getattr(theirs, target).copy_(torch.cat([weights[f"{kind}_{gate}"][row] for gate in TORCHS]))
            theirs.bias_hh_l0.zero_()
        x = x_NBTF[row].detach().requires_grad_()
        expected, _ = theirs(x)
        torch.testing.assert_close(answers[row], expected, rtol=1e-10, atol=1e-10)
        expected.backward(outer[row])
        torch.testing.assert_close(of_inputs[row], x.grad, rtol=1e-10, atol=1e-10)
        for kind, source in (("encoder", "weight_ih_l0"), ("matrix", "weight_hh_l0"), ("bias", "bias_ih_l0")):
            for gate, gradient in zip(TORCHS, getattr(theirs, source).grad.chunk(4), strict=True):
                torch.testing.assert_close(by_name[f"{kind}_{gate}"][row], gradient, rtol=1e-10, atol=1e-10)


ONEDNN = pytest.mark.skipif(not is_steady(), reason="this torch has no oneDNN, or this processor no AVX-512")


def single(width: int, batch: int, models: int = 2) -> list[Tensor]:
    """Input and weights of ``lstm_states`` in float32, leaves each."""
    noise, shapes = torch.Generator().manual_seed(width), [(4 * width, width), (4 * width,), (4 * width, width)]
    weights = [torch.randn(models, *shape, generator=noise) / width**0.5 for shape in shapes]
    return [each.requires_grad_() for each in (torch.randn(models, batch, 9, width, generator=noise), *weights)]


@ONEDNN
@pytest.mark.parametrize(("width", "batch"), [(WIDE, 1), (WIDE, 3), (WIDE + 8, 17)])
def test_onednn_has_the_states_and_gradients_of_the_loop(
    width: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, outer = single(width, batch), torch.randn(2, batch, 9, width, generator=torch.Generator().manual_seed(1))
    fast = wide_states(*given)
    assert fast is not None
    assert torch.equal(lstm_states(*given), fast)
    found = [fast, *torch.autograd.grad(fast, given, outer)]
    monkeypatch.setenv(KERNELS, "plain")
    assert wide_states(*given) is None
    doubles = [each.detach().double().requires_grad_() for each in given]
    states = lstm_states(*doubles)
    for mine, theirs in zip(found, (states, *torch.autograd.grad(states, doubles, outer.double())), strict=True):
        assert float((mine.detach() - theirs.detach()).norm() / theirs.detach().norm()) < 2e-6


@ONEDNN
def test_states_by_onednn_are_the_same_bits_in_any_company_and_with_any_threads() -> None:
    given, threads = single(WIDE, 7, models=3), torch.get_num_threads()
    together = lstm_states(*given)
    try:
        torch.set_num_threads(2)
        for some in (1, 2, 5):
            assert torch.equal(lstm_states(given[0][:, :some], *given[1:]), together[:, :some])
            assert torch.equal(lstm_states(given[0][:, -some:], *given[1:]), together[:, -some:])
        with torch.no_grad():
            assert torch.equal(lstm_states(*(each[1:2] for each in given)), together[1:2])
        for models in ([1], [2, 0]):
            for count in (1, 7):
                both = []
                for threads_now in (1, 2):
                    torch.set_num_threads(threads_now)
                    own = [given[0][models, :count], *(each[models] for each in given[1:])]
                    both.append(torch.autograd.grad(lstm_states(*own).square().sum(), given))
                assert all(torch.equal(one, other) for one, other in zip(*both, strict=True))
    finally:
        torch.set_num_threads(threads)


def test_narrow_layers_and_double_numbers_are_ours() -> None:
    assert not suits(torch.float32, WIDE - 1)
    assert not suits(torch.float64, WIDE)


@pytest.mark.parametrize(("width", "batch"), [(64, 1), (100, 5), (128, 16), (128, 24), (WIDE, 3)])
def test_few_sequences_in_float32_have_the_loops_states_and_gradients(
    width: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, outer = single(width, batch), torch.randn(2, batch, 9, width, generator=torch.Generator().manual_seed(1))
    states = lstm_states(*given)
    found = [states, *torch.autograd.grad(states, given, outer)]
    monkeypatch.setenv(KERNELS, "plain")
    doubles = [each.detach().double().requires_grad_() for each in given]
    states = lstm_states(*doubles)
    for mine, theirs in zip(found, (states, *torch.autograd.grad(states, doubles, outer.double())), strict=True):
        assert float((mine.detach() - theirs.detach()).norm() / theirs.detach().norm()) < 2e-6


def test_eigenvalues_are_those_of_autograds_jacobian_at_rest() -> None:
    unit, weights = drawn(4, replicas=1)

    def step(both: Tensor) -> Tensor:
        state = {"cell": both[:4].reshape(1, 1, 4), "shown": both[4:].reshape(1, 1, 4)}
        _, after = unit.step(weights, torch.zeros(1, 1, 4, dtype=torch.float64), state)
        return torch.cat([after["cell"].flatten(), after["shown"].flatten()])

    jacobian = torch.autograd.functional.jacobian(step, torch.zeros(8, dtype=torch.float64))
    expected = torch.linalg.eigvals(jacobian)  # type: ignore[arg-type]
    distance = (unit.eigenvalues(weights)[0].unsqueeze(-1) - expected).abs().detach()
    assert float(distance.amin(0).max()) < 1e-7
    assert float(distance.amin(1).max()) < 1e-7


def test_chrono_spreads_time_scales_over_the_horizon() -> None:
    unit = LSTMUnit(LSTMUnit.Config(chrono=True), 200, 200)
    weights = unit.initial(1000, np.random.default_rng(0))
    scales = 1.0 + np.exp(weights["bias_forget"])  # 1 / (1 - f)
    assert scales.max() > 800
    assert scales.min() < 100
    assert np.array_equal(weights["bias_input"], -weights["bias_forget"])


@pytest.mark.parametrize("rule", ["online_full", "online_snap1", "online_spatial", "online_reservoir"])
def test_rules_that_go_forward_in_time_refuse_a_unit_without_derivatives(rule: str) -> None:
    model = ResidualStack.Config(unit=LSTMUnit.Config())
    task = registry.get(registry.TASK, "copying_memory").Config()
    (problem,) = TrialConfig(task=task, model=model, training=TrainingConfig(rule=rule)).problems()
    assert "the unit lstm does not give the derivatives of its steps" in problem
    assert "Units that do: gru, " in problem
    assert problem.endswith("Rules for this model: bptt")


def test_an_lstm_of_another_size_is_refused() -> None:
    (found,) = ResidualStack.Config(unit=LSTMUnit.Config(), width=8, features=4).problems()
    assert "width is 8 and features is 4: give both the same value" in found
