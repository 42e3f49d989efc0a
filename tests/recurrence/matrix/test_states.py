"""Matrix states beside a loop over time: gradients, compiled or in chunks, any start, any forgetting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from memsweep.recurrence.matrix.chunks import states_in_chunks
from memsweep.recurrence.matrix.states import matrix_states

WAYS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"compiled": matrix_states} | {
    f"chunks of {chunk}": functools.partial(states_in_chunks, chunk=chunk) for chunk in (1, 4, 32)
}
DECAYS = {"none": 0, "of heads": 1, "of keys": 3}


def loop(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, rate: Tensor | None, start: Tensor
) -> tuple[Tensor, Tensor]:
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
    return torch.stack(answers, 1), state


def drawn(
    horizon: int, decay: int, delta: bool, speed: float = 0.3, items: int = 4, keys: int = 3, values: int = 2
) -> list[Any]:
    """q, k, v, log a, b and a start, which can all be differentiated by."""
    generator = torch.Generator().manual_seed(horizon)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    unit_keys = torch.nn.functional.normalize(normal(items, horizon, keys), dim=-1)
    given = [normal(items, horizon, keys), unit_keys, normal(items, horizon, values)]
    given += [-speed * normal(items, horizon, decay).abs() if decay else None]
    given += [2.0 * torch.rand(items, horizon, 1, dtype=torch.float64, generator=generator) if delta else None]
    return [part if part is None else part.requires_grad_() for part in (*given, normal(items, values, keys))]


def of_both(given: list[Any], answers: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a number that depends on all answers and on the state at the end."""
    generator = torch.Generator().manual_seed(1)
    outer = [torch.randn(each.shape, dtype=torch.float64, generator=generator) for each in (answers, state)]
    return torch.autograd.grad([answers, state], [part for part in given if part is not None], outer)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])
@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
def test_it_is_the_loop_with_all_gradients(decay: int, delta: bool, way: Callable[..., tuple[Tensor, Tensor]]) -> None:
    given = drawn(19, decay, delta)
    expected, end = loop(*given)
    answers, state = way(*given)
    torch.testing.assert_close((answers, state), (expected, end), rtol=1e-10, atol=1e-10)
    wanted = of_both(given, expected, end)
    torch.testing.assert_close(of_both(given, answers, state), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])
@pytest.mark.parametrize("decay", [0, 1, 17], ids=list(DECAYS))
def test_sizes_that_fill_no_vector_and_several_chunks(decay: int, delta: bool) -> None:
    given = drawn(70, decay, delta, items=11, keys=17, values=7)
    expected, end = loop(*given)
    answers, state = matrix_states(*given, scale=0.5)
    torch.testing.assert_close((answers, state), (0.5 * expected, end), rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        assert all(map(torch.equal, matrix_states(*given, scale=0.5), (answers, state)))
    wanted = of_both(given, 0.5 * expected, end)
    torch.testing.assert_close(of_both(given, answers, state), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("keys", "values"), [(16, 15), (33, 16), (40, 35), (64, 65)])
@pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])
@pytest.mark.parametrize("decay", ["none", "of heads", "of keys"])
def test_few_items_have_the_bits_that_they_have_among_many(decay: str, delta: bool, keys: int, values: int) -> None:
    """A few fill vectors with their own states, many with one another."""
    many = 16  # blocks of whole lanes, and states that would leave some of theirs empty: no way of few
    given = drawn(37, {"none": 0, "of heads": 1, "of keys": keys}[decay], delta, items=many, keys=keys, values=values)
    expected, end = matrix_states(*given, scale=0.5)
    wanted = of_both(given, expected, end)
    generator = torch.Generator().manual_seed(1)  # as of_both draws
    outer = [torch.randn(each.shape, dtype=torch.float64, generator=generator) for each in (expected, end)]
    for items in (slice(0, 1), slice(5, 7)):
        alone = [part if part is None else part.detach()[items].requires_grad_() for part in given]
        answers, state = matrix_states(*alone, scale=0.5)
        assert torch.equal(answers, expected[items])
        assert torch.equal(state, end[items])
        parts = [part for part in alone if part is not None]
        found = torch.autograd.grad([answers, state], parts, [each[items] for each in outer])
        assert all(torch.equal(one, other[items]) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize(("keys", "values"), [(16, 16), (32, 48)])
@pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])
@pytest.mark.parametrize("decay", ["none", "of heads", "of keys"])
def test_states_that_fill_vectors_have_the_bits_of_a_block(decay: str, delta: bool, keys: int, values: int) -> None:
    """With a row of zeros more, a state leaves lanes empty: it goes through a block, with the same sums."""
    decays = {"none": 0, "of heads": 1, "of keys": keys}[decay]
    given = drawn(37, decays, delta, items=16, keys=keys, values=values)
    more = [part if part is None else part.detach().clone() for part in given]
    more[2], more[5] = torch.nn.functional.pad(more[2], (0, 1)), torch.nn.functional.pad(more[5], (0, 0, 0, 1))
    found = []
    for one in (given, more):
        parts = [part.requires_grad_() for part in one if part is not None]
        answers, state = matrix_states(*one)
        rows = answers[..., :values], state[:, :values]
        outer = [each.detach().cos() for each in rows]
        of_query, of_key, of_values, *others, of_start = torch.autograd.grad(rows, parts, outer)
        found.append((*rows, of_query, of_key, of_values[..., :values], *others, of_start[:, :values]))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("decay", [0, 1, 33], ids=list(DECAYS))
def test_few_items_with_the_delta_rule_are_the_loop(decay: int, items: int) -> None:
    given = drawn(70, decay, True, items=items, keys=33, values=18)
    expected, end = loop(*given)
    answers, state = matrix_states(*given)
    torch.testing.assert_close((answers, state), (expected, end), rtol=1e-10, atol=1e-10)
    wanted = of_both(given, expected, end)
    torch.testing.assert_close(of_both(given, answers, state), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_item_does_not_depend_on_its_company(threads: int) -> None:
    given = [part for part in drawn(40, 3, True, items=19) if part is not None]
    alone = [part.detach()[17:18].requires_grad_() for part in given]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together, expected = matrix_states(*given)[0], matrix_states(*alone)[0]
        assert torch.equal(together[17:18], expected)
        found, wanted = (
            torch.autograd.grad(answers.sum(), parts) for answers, parts in ((together, given), (expected, alone))
        )
    finally:
        torch.set_num_threads(before)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one[17:18], other)


@pytest.mark.parametrize("delta", [False, True], ids=["sum", "delta"])
@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
def test_a_sequence_goes_on_from_the_state_in_which_its_first_part_ended(decay: int, delta: bool) -> None:
    *series, start = drawn(19, decay, delta)
    whole, end = matrix_states(*series, start)
    parts, state = [], start
    for steps in (slice(0, 7), slice(7, 8), slice(8, 19)):
        answers, state = matrix_states(*(None if part is None else part[:, steps] for part in series), state)
        parts.append(answers)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, end, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [1, 3], ids=["of heads", "of keys"])
def test_states_that_forget_within_a_step_overflow_nowhere(decay: int, dtype: torch.dtype) -> None:
    """Quotients of cumulated decays, as some implementations take them, would be infinite from the second step on."""
    given = [part if part is None else part.detach().to(dtype) for part in drawn(32, decay, True, speed=1000.0)]
    live = [part.requires_grad_() for part in given if part is not None]
    answers, _ = matrix_states(*given)
    torch.testing.assert_close(answers, loop(*given)[0], rtol=1e-4, atol=1e-5)
    assert all(bool(gradient.isfinite().all()) for gradient in torch.autograd.grad(answers.sum(), live))
