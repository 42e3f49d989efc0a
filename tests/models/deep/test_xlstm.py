"""mLSTM and sLSTM beside loops over time of the paper's equations, which know no stabilizer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from memsweep import registry
from memsweep.models.deep.attention.mlstm import MLSTMUnit
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.deep.unit import Unit
from memsweep.models.deep.unit_slstm import SLSTMUnit
from memsweep.testing import UnitSuite
from unit_loops import against

registry.discover()

CHOICES: dict[str, Any] = {
    "MlstmExp": MLSTMUnit.Config(forget="exp"),
    "MlstmConvolved": MLSTMUnit.Config(convolution=3, heads=1),
    "SlstmExp": SLSTMUnit.Config(forget="exp", heads=1),
}
for _name, _config in CHOICES.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (UnitSuite,), {"unit": _config.name, "config": _config})
del UnitSuite  # pytest would collect the bare suite too

W = dict[str, Tensor]


def forget_gate(config: Any, drive: Tensor) -> Tensor:
    return torch.exp(drive) if config.forget == "exp" else torch.sigmoid(drive)


def mlstm(config: MLSTMUnit.Config, w: W, x: Tensor) -> Tensor:
    """Equations 19 to 27 of arXiv 2405.04517 as they stand, head by head."""
    heads, each = config.heads, len(w["encoder_query"]) // config.heads
    states = [torch.zeros(each, each, dtype=x.dtype)] * heads
    normalizers, answers = [torch.zeros(each, dtype=x.dtype)] * heads, []
    for step in x:
        into = torch.exp(w["encoder_input"] @ step + w["bias_input"])
        forget = forget_gate(config, w["encoder_forget"] @ step + w["bias_forget"])
        query, key, value = ((w[f"encoder_{name}"] @ step).reshape(heads, each) for name in ("query", "key", "value"))
        key, found = key / math.sqrt(each), []
        states = [f * s + i * torch.outer(v, k) for f, i, s, v, k in zip(forget, into, states, value, key, strict=True)]
        normalizers = [f * n + i * k for f, i, n, k in zip(forget, into, normalizers, key, strict=True)]
        for state, normalizer, q in zip(states, normalizers, query, strict=True):
            found.append(state @ q / torch.clamp((normalizer @ q).abs(), min=1.0))
        shown = torch.sigmoid(w["encoder_output"] @ step + w["bias_output"]) * torch.cat(found)
        answers.append(w["readout"] @ shown)
    return torch.stack(answers)


def slstm(config: SLSTMUnit.Config, w: W, x: Tensor) -> Tensor:
    """Equations 8 to 14 of arXiv 2405.04517 as they stand, with R as one matrix of blocks."""
    width = len(w["bias_input"])
    shown, cell, normalizer = (torch.zeros(width, dtype=x.dtype) for _ in range(3))
    matrix = {
        gate: torch.block_diag(*w[f"matrix_{gate}"].reshape(config.heads, width // config.heads, -1))
        for gate in ("input", "forget", "candidate", "output")
    }
    answers = []
    for step in x:
        into, forget, candidate, out = (
            w[f"encoder_{gate}"] @ step + recurrent @ shown + w[f"bias_{gate}"] for gate, recurrent in matrix.items()
        )
        into, forget = torch.exp(into), forget_gate(config, forget)
        cell, normalizer = forget * cell + into * torch.tanh(candidate), forget * normalizer + into
        shown = torch.sigmoid(out) * cell / normalizer
        answers.append(shown)
    return torch.stack(answers)


@pytest.mark.parametrize("forget", ["sigmoid", "exp"])
@pytest.mark.parametrize(("kind", "loop"), [(MLSTMUnit, mlstm), (SLSTMUnit, slstm)], ids=["mlstm", "slstm"])
def test_a_unit_is_its_papers_loop_with_all_gradients(kind: type[Unit], loop: Any, forget: str) -> None:
    config = kind.Config(forget=forget)
    features = 8 if kind is SLSTMUnit else 3
    against(kind(config, 8, features), lambda w, x: loop(config, w, x), steps=40)


def test_the_lower_bound_of_the_normalizer_binds_at_some_steps_and_not_at_others() -> None:
    """Otherwise the loop above would say nothing of one of its two sides."""
    unit, rng = MLSTMUnit(MLSTMUnit.Config(), 8, 3), np.random.default_rng(3)
    weights = {n: torch.from_numpy(v).unsqueeze(0) for n, v in unit.initial(40, rng).items()}
    x, state, bound = torch.from_numpy(rng.standard_normal((1, 1, 40, 3))), None, []
    for t in range(40):
        _, state = unit.step(weights, x[:, :, t], state)
        query = unit.by_head(x[:, :, t : t + 1] @ weights["encoder_query"].mT)
        normalizer = (state["matrix"][..., -1:, :] * query).sum(-1, keepdim=True).abs()
        bound.append((normalizer < torch.exp(-state["stabilizer"])).flatten())
    share = torch.stack(bound).double().mean()
    assert 0.05 < float(share) < 0.95


@pytest.mark.parametrize("unit", [MLSTMUnit.Config(), MLSTMUnit.Config(forget="exp"), SLSTMUnit.Config()], ids=str)
def test_gates_whose_exponentials_overflow_leave_finite_states_answers_and_gradients(unit: Any) -> None:
    """exp(400) is infinite in float32, and exp(-400) zero."""
    kind = registry.get(registry.UNIT, unit.name)(unit, 4, 4)
    rng = np.random.default_rng(0)
    weights = {n: torch.from_numpy(v).float().unsqueeze(0) for n, v in kind.initial(9, rng).items()}
    weights["encoder_input"] = weights["encoder_input"] + 400.0
    weights = {name: weight.requires_grad_() for name, weight in weights.items()}
    x = torch.from_numpy(rng.standard_normal((1, 2, 200, 4))).float()
    answers = kind.run(weights, x)
    assert bool(answers.isfinite().all())
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(answers.square().sum(), [*weights.values()]))


def test_they_start_as_in_the_authors_code() -> None:
    unit = MLSTMUnit(MLSTMUnit.Config(heads=4), 8, 3)
    weights = unit.initial(9, np.random.default_rng(0))
    np.testing.assert_allclose(weights["bias_forget"], [3, 4, 5, 6])
    assert not weights["encoder_input"].any()
    stacked = {name: torch.from_numpy(value).unsqueeze(0) for name, value in weights.items()}
    other = MLSTMUnit(MLSTMUnit.Config(heads=4, forget="exp"), 8, 3).initial(9, np.random.default_rng(0))
    theirs = {name: torch.from_numpy(value).unsqueeze(0) for name, value in other.items()}
    expected = torch.sigmoid(torch.tensor([3.0, 4, 5, 6], dtype=torch.float64)).repeat_interleave(2)[None]
    torch.testing.assert_close(unit.eigenvalues(stacked), expected)
    torch.testing.assert_close(MLSTMUnit(MLSTMUnit.Config(heads=4, forget="exp"), 8, 3).eigenvalues(theirs), expected)
    cells = SLSTMUnit(SLSTMUnit.Config(), 24, 24).initial(9, np.random.default_rng(0))
    assert (cells["bias_forget"][0], cells["bias_forget"][11], cells["bias_forget"][12]) == (5.0, -7.0, 5.0)
    assert cells["encoder_input"].var() == pytest.approx(2 / (5 * 24), rel=0.2)


def test_sizes_that_do_not_fit_are_refused_with_those_that_do() -> None:
    (found,) = ResidualStack.Config(unit=SLSTMUnit.Config(), width=8, features=4).problems()
    assert "width is 8 and features is 4: give both the same value" in found
    (found,) = ResidualStack.Config(unit=SLSTMUnit.Config(heads=3), width=8, features=8).problems()
    assert found.endswith("let width be a multiple of 3")
    assert not list(ResidualStack.Config(unit=SLSTMUnit.Config(), width=8, features=8).problems())
