"""Matrix states in chunks beside a loop over time: values, gradients, any chunk, any start, any speed of forgetting."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from memsweep.recurrence.matrix_states import matrix_states

DECAYS = {"none": 0, "of heads": 1, "of keys": 3}


def loop(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, rate: Tensor | None, start: Tensor) -> Tensor:
    """S (I - b k k') on the faded state, then b v k', as the papers write it."""
    state, answers = start, []
    for t in range(q.shape[1]):
        if log_decay is not None:
            state = state * torch.exp(log_decay[:, t]).unsqueeze(1)
        key, value = k[:, t].unsqueeze(1), v[:, t].unsqueeze(2)
        if rate is None:
            state = state + value * key
        else:
            b, eye = rate[:, t].unsqueeze(1), torch.eye(k.shape[-1], dtype=k.dtype)
            state = state @ (eye - b * key.mT * key) + b * value * key
        answers.append((state @ q[:, t].unsqueeze(2)).squeeze(2))
    return torch.stack(answers, 1)


def drawn(horizon: int, decay: int, delta: bool, speed: float = 0.3) -> list[Tensor | None]:
    """q, k, v, log a, b and a start, which can all be differentiated by."""
    generator = torch.Generator().manual_seed(horizon)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    keys = torch.nn.functional.normalize(normal(4, horizon, 3), dim=-1)
    given = [normal(4, horizon, 3), keys, normal(4, horizon, 2)]
    given += [-speed * normal(4, horizon, decay).abs() if decay else None]  # type: ignore[list-item]
    given += [2.0 * torch.rand(4, horizon, 1, dtype=torch.float64, generator=generator) if delta else None]  # type: ignore[list-item]
    return [part if part is None else part.requires_grad_() for part in (*given, normal(4, 2, 3))]


@pytest.mark.parametrize("chunk", [1, 4, 32])
@pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])
@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
def test_chunks_are_the_loop_with_all_gradients(decay: int, delta: bool, chunk: int) -> None:
    given = drawn(19, decay, delta)
    answers, state = matrix_states(*given, chunk=chunk)  # type: ignore[arg-type]
    expected = loop(*given)  # type: ignore[arg-type]
    torch.testing.assert_close(answers, expected, rtol=1e-10, atol=1e-10)
    live = [part for part in given if part is not None]
    outer = torch.randn(answers.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad(expected, live, outer)
    for one, other in zip(torch.autograd.grad(answers, live, outer), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    assert state.shape == (4, 2, 3)


@pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])
@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
def test_a_sequence_goes_on_from_the_state_in_which_its_first_part_ended(decay: int, delta: bool) -> None:
    *series, start = drawn(19, decay, delta)
    whole, end = matrix_states(*series, start)  # type: ignore[arg-type]
    parts, state = [], start
    for steps in (slice(0, 7), slice(7, 8), slice(8, 19)):
        answers, state = matrix_states(*(None if part is None else part[:, steps] for part in series), state)  # type: ignore[arg-type]
        parts.append(answers)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, end, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [1, 3], ids=["of heads", "of keys"])
def test_states_that_forget_within_a_step_overflow_nowhere(decay: int, dtype: torch.dtype) -> None:
    """Quotients of cumulated decays, as some implementations take them, would be infinite from the second step on."""
    given = [part if part is None else part.detach().to(dtype) for part in drawn(32, decay, True, speed=1000.0)]
    live = [part.requires_grad_() for part in given if part is not None]
    answers, _ = matrix_states(*given)  # type: ignore[arg-type]
    torch.testing.assert_close(answers, loop(*given), rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    assert all(bool(gradient.isfinite().all()) for gradient in torch.autograd.grad(answers.sum(), live))
