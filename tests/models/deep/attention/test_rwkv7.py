"""RWKV-7 beside the loop of its authors' code in numpy, and its kernel beside the recurrence."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from memsweep.models.deep.attention.rwkv7 import RWKV7Unit
from memsweep.recurrence.matrix.chunks import generalised_in_chunks
from memsweep.recurrence.matrix.states import generalised_delta, matrix_states
from memsweep.testing import UnitSuite
from unit_loops import against

TestOneHead = type("TestOneHead", (UnitSuite,), {"unit": "rwkv7", "config": RWKV7Unit.Config(heads=1, rank=2)})
del UnitSuite  # pytest would collect the bare suite too

W = dict[str, Tensor]


def time_mixing(heads: int, w: W, x: Tensor) -> Tensor:
    """``time_mixing`` of RWKV-LM's RWKV-v7/rwkv_v7_numpy.py, without the values of the first layer."""
    before, answers = torch.zeros_like(x[0]), []
    each = len(w["bias_decay"]) // heads
    state = torch.zeros(heads, each, each, dtype=x.dtype)
    for step in x:
        mixed = {name[4:]: step + mu * (before - step) for name, mu in w.items() if name.startswith("mix_")}
        before = step
        r, k, v = (w[f"encoder_{name}"] @ mixed[name] for name in ("query", "key", "value"))
        drive = w["raise_decay"] @ torch.tanh(w["encoder_decay"] @ mixed["decay"]) + w["bias_decay"]
        decay = torch.exp(-torch.sigmoid(drive) / math.e**0.5)
        a = torch.sigmoid(w["raise_rate"] @ (w["encoder_rate"] @ mixed["rate"]) + w["bias_rate"])
        g = w["raise_gate"] @ torch.sigmoid(w["encoder_gate"] @ mixed["gate"])
        kk = k * w["key_scale"]
        k = k + k * (a - 1) * w["key_rate"]
        columns = (part.reshape(heads, each, 1) for part in (r, decay, k, v, kk, a, w["bonus"]))
        r, decay, k, v, kk, a, bonus = columns
        kk = kk / kk.norm(dim=1, keepdim=True)
        state = state * decay.mT - state @ kk @ (kk * a).mT + v @ k.mT
        y = (state @ r)[..., 0]
        y = (y - y.mean(1, keepdim=True)) / torch.sqrt(y.var(1, keepdim=True, unbiased=False) + 64e-5)
        y = y.flatten() * w["answer_gain"] + w["answer_bias"]
        y = y + ((r * k * bonus).sum(1, keepdim=True) * v).flatten()
        answers.append(w["readout"] @ (y * g))
    return torch.stack(answers)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_unit_is_its_authors_loop_with_all_gradients(heads: int) -> None:
    unit = RWKV7Unit(RWKV7Unit.Config(heads=heads, rank=3), 8, 3)
    against(unit, lambda w, x: time_mixing(heads, w, x), steps=40)


def drawn(horizon: int, speed: float = 0.5) -> list[Tensor]:
    """q, k, v, log a, r, e and a start, which can all be differentiated by."""
    generator = torch.Generator().manual_seed(horizon)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    reads = normalize(normal(4, horizon, 3), dim=-1)
    erased = reads * torch.sigmoid(normal(4, horizon, 3))
    given = [normal(4, horizon, 3), normal(4, horizon, 3), normal(4, horizon, 2), -speed * normal(4, horizon, 3).abs()]
    return [part.requires_grad_() for part in (*given, reads, erased, normal(4, 2, 3))]


def loop(q: Tensor, k: Tensor, v: Tensor, log_a: Tensor, r: Tensor, e: Tensor, state: Tensor) -> Tensor:
    answers = []
    for t in range(q.shape[1]):
        transition = torch.diag_embed(torch.exp(log_a[:, t])) - r[:, t].unsqueeze(2) * e[:, t].unsqueeze(1)
        state = state @ transition + v[:, t].unsqueeze(2) * k[:, t].unsqueeze(1)
        answers.append((state @ q[:, t].unsqueeze(2)).squeeze(2))
    return torch.stack(answers, 1)


WAYS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"compiled": generalised_delta} | {
    f"chunks of {chunk}": functools.partial(generalised_in_chunks, chunk=chunk) for chunk in (1, 4, 32)
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_is_the_loop_with_all_gradients(way: Callable[..., tuple[Tensor, Tensor]]) -> None:
    given = drawn(19)
    answers, _ = way(*given)
    expected = loop(*given)
    torch.testing.assert_close(answers, expected, rtol=1e-10, atol=1e-10)
    outer = torch.randn(answers.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad(expected, given, outer)
    for one, other in zip(torch.autograd.grad(answers, given, outer), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_sequence_goes_on_from_the_state_in_which_its_first_part_ended() -> None:
    *series, start = drawn(19)
    whole, end = generalised_delta(*series, start)
    parts, state = [], start
    for steps in (slice(0, 7), slice(7, 8), slice(8, 19)):
        answers, state = generalised_delta(*(part[:, steps] for part in series), state)
        parts.append(answers)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, end, rtol=1e-12, atol=1e-12)


def test_the_delta_rule_is_the_case_of_one_key() -> None:
    """S diag(a) (I - b k k') + b v k': r = a * k and e = b k, up to the order of decay and removal."""
    query, key, value, log_decay, *_, start = drawn(19)
    key, rate = normalize(key, dim=-1), torch.full_like(key[..., :1], 0.7)
    reads = key * torch.exp(log_decay)
    found, state = generalised_delta(query, rate * key, value, log_decay, reads, rate * key, start)
    expected, end = matrix_states(query, key, value, log_decay, rate, start)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(state, end, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_that_forget_within_a_step_overflow_nowhere(dtype: torch.dtype) -> None:
    given = [part.detach().to(dtype).requires_grad_() for part in drawn(32, speed=1000.0)]
    answers, _ = generalised_delta(*given)
    torch.testing.assert_close(answers, loop(*given), rtol=1e-4, atol=1e-4)
    assert all(bool(gradient.isfinite().all()) for gradient in torch.autograd.grad(answers.sum(), given))


def test_it_starts_as_in_the_authors_code() -> None:
    unit = RWKV7Unit(RWKV7Unit.Config(heads=4, rank=3), 32, 5)
    weights: dict[str, Any] = unit.initial(9, np.random.default_rng(0))
    np.testing.assert_allclose(weights["raise_rate"].T @ weights["raise_rate"], 0.01 * np.eye(3), atol=1e-12)
    assert weights["mix_key"] == pytest.approx([1 - (i / 5) ** 0.7 for i in range(5)])
    for n in range(32):
        zigzag = ((n % 8) - 3.5) / 3.5
        expected = -6 + 6 * n / 31 + 0.5 + 2.5 * zigzag * abs(zigzag)
        assert weights["bias_decay"][n] == pytest.approx(expected)
    stacked = {name: torch.from_numpy(value).unsqueeze(0) for name, value in weights.items()}
    decays = unit.eigenvalues(stacked)
    assert decays.shape == (1, 32)
    assert float(decays.min()) > 0.545
