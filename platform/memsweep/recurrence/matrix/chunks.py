"""Matrix states in chunks of time, by products of torch: few of them, and none small.

Within a chunk, with G the sum of log a over its steps so far and S the state before it, the answers are

    y_i = S (exp(G_i) q_i) + sum_{j <= i} (q_i' diag(exp(G_i - G_j)) k_j) u_j

and the u of the delta rule solve a triangular system (the WY form: arXiv 2406.06484, equations 8 to 11; with decays
arXiv 2412.06464, section 3.3). No exponent is ever above zero, so that nothing overflows, however fast a state forgets.

Letters: X leading dimension (replicas, sequences and heads), C chunks, T time, L steps of a chunk, K size of keys and
queries, V size of values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK = 32


def states_in_chunks(
    query_XTK: Tensor,
    key_XTK: Tensor,
    value_XTV: Tensor,
    log_decay: Tensor | None,
    rate_XT1: Tensor | None,
    start_XVK: Tensor | None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """``matrix_states``; a chunk is a power of two, and decides roundings alone."""
    horizon = query_XTK.shape[1]
    length = min(chunk, 1 << (horizon - 1).bit_length())

    def cut(series: Tensor) -> Tensor:
        """Chunks ``[X, C, L, ...]``; steps of zeros at the end change no state."""
        padded = torch.nn.functional.pad(series, (0, 0, 0, -horizon % length))
        return padded.unflatten(1, (-1, length))

    # a chunk halves down to single steps in ``_halved``, so its length is a power of two
    query, key, value = cut(query_XTK), cut(key_XTK), cut(value_XTV)
    total = None if log_decay is None else cut(log_decay).cumsum(2)  # G
    # exp(G_i) is left of the state before the chunk at step i; exp(G_L - G_i) of step i's value at the chunk's end
    faded = torch.ones_like(query[..., :1]) if total is None else total.exp()
    left = torch.ones_like(faded) if total is None else (total[:, :, -1:] - total).exp()
    shown, read, kept = _products(query, key, total), query * faded, key * left
    seen = None
    if rate_XT1 is not None:
        rate = cut(rate_XT1)
        # u = known - seen S' is linear in the state S before the chunk, known only later: one solution gives both
        given = torch.cat([value, key * faded], -1) * rate
        # u_i + sum_{j < i} (..) u_j = given_i: ones on the diagonal, so that nothing is divided
        system = _products(key, key, total).tril(-1) * rate
        solved = torch.linalg.solve_triangular(system, given, upper=False, unitriangular=True)
        value, seen = solved.split([value.shape[-1], key.shape[-1]], -1)
    state, answers = start_XVK, []
    removed: Sequence[Tensor | None] = [None] * query.shape[1] if seen is None else seen.unbind(1)
    # unbound, not indexed: in the backward pass every index would make a gradient as large as the series
    series = (each.unbind(1) for each in (value, shown, kept, read, faded[:, :, -1:]))
    for gone, new, show, keep, recall, fade in zip(removed, *series, strict=True):
        if state is not None and gone is not None:
            new = new - gone @ state.mT
        answer, written = show @ new, new.mT @ keep
        answers.append(answer if state is None else answer + recall @ state.mT)
        state = written if state is None else written + state * fade
    assert state is not None
    return torch.cat(answers, 1)[:, :horizon], state


def generalised_in_chunks(
    query_XTK: Tensor,
    key_XTK: Tensor,
    value_XTV: Tensor,
    log_decay_XTK: Tensor,
    read_XTK: Tensor,
    erased_XTK: Tensor,
    start_XVK: Tensor | None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """``generalised_delta``: with H the G of the step before, u_i = -S_{i-1} r_i solve the triangular system

        u_i + sum_{j < i} (r_i' diag(exp(H_i - G_j)) e_j) u_j = -S (exp(H_i) r_i) - sum_{j < i} (.. k_j) v_j

    (arXiv 2503.14456, section 3).
    """
    horizon = query_XTK.shape[1]
    length = min(chunk, 1 << (horizon - 1).bit_length())
    query, key, value, log_decay, read, erased = (
        torch.nn.functional.pad(series, (0, 0, 0, -horizon % length)).unflatten(1, (-1, length))
        for series in (query_XTK, key_XTK, value_XTV, log_decay_XTK, read_XTK, erased_XTK)
    )
    total = log_decay.cumsum(2)
    faded, left = total.exp(), (total[:, :, -1:] - total).exp()
    # r_i reads the state of step i - 1, before step i's decay: shifted by a row, it meets the decays up to there
    earlier = torch.nn.functional.pad(read[:, :, 1:], (0, 0, 0, 1))

    def before(series: Tensor) -> Tensor:
        """A row of zeros, then all rows but the last."""
        return torch.nn.functional.pad(series[:, :, :-1], (0, 0, 1, 0))

    of_erased, of_key = (before(_products(earlier, series, total)) for series in (erased, key))
    given = torch.cat([of_key @ value, read * before(total).exp()], -1)
    solved = torch.linalg.solve_triangular(of_erased, given, upper=False, unitriangular=True)
    known, seen = solved.split([value.shape[-1], key.shape[-1]], -1)
    shown_erased, shown = _products(query, erased, total), _products(query, key, total) @ value
    state = start_XVK if start_XVK is not None else value.new_zeros(len(value), value.shape[-1], key.shape[-1])
    answers = []
    series = (known, seen, query * faded, shown, shown_erased, erased * left, value, key * left, faded[:, :, -1:])
    chunks = zip(*(each.unbind(1) for each in series), strict=True)
    for first, then, recall, own, others, erase, new, keep, fade in chunks:
        # the state before the chunk is known only now; the solutions above are linear in it
        removed = -first - then @ state.mT
        answers.append(recall @ state.mT + own + others @ removed)
        state = state * fade + (removed.mT @ erase + new.mT @ keep)
    return torch.cat(answers, 1)[:, :horizon], state


def _products(query: Tensor, key: Tensor, total: Tensor | None) -> Tensor:
    """q_i' diag(exp(G_i - G_j)) k_j for j <= i, and zero above the diagonal: ``[X, C, L, L]``."""
    if total is None:
        return (query @ key.mT).tril()
    if total.shape[-1] == 1:
        above = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=query.device).triu(1)
        # -inf before the exponential: above the diagonal exponents may be large, and 0 * inf in a gradient is NaN
        return (query @ key.mT) * (total - total.mT).masked_fill(above, -torch.inf).exp()
    return _halved(query, key, total)


def _halved(query: Tensor, key: Tensor, total: Tensor) -> Tensor:
    """The same where every key fades by itself: of each two halves, the second reads the first across their border."""
    steps = query.shape[-2]
    if steps == 1:
        return query @ key.mT
    halves = [series.unflatten(-2, (2, steps // 2)) for series in (query, key, total)]
    within = _halved(*halves)  # [..., 2, L/2, L/2]
    (_, later), (earlier, _), (before, after) = (half.unbind(-3) for half in halves)
    # G_i - G_j is split at the border: neither part is above zero, and no tensor of [L, L, K] is made
    border = before[..., -1:, :]
    across = (later * (after - border).exp()) @ (earlier * (border - before).exp()).mT
    above = torch.cat([within[..., 0, :, :], torch.zeros_like(across)], -1)
    return torch.cat([above, torch.cat([across, within[..., 1, :, :]], -1)], -2)
