"""A recurrence whose state is a matrix that holds values by their keys.

    S_t = S_{t-1} diag(a_t) + u_t k_t',   u_t = v_t   or, by the delta rule,   u_t = b_t (v_t - S_{t-1} diag(a_t) k_t),
    y_t = s S_t q_t

On a processor compiled code goes through it step by step, with the state in the cache (``kernel``). Elsewhere it is
products over chunks of time (``chunks``). The delta rule is the generalised one with r = a k and e = b k.

Letters: X leading dimension (replicas, sequences and heads), T time, K size of keys and queries, V size of values.
"""

from __future__ import annotations

from torch import Tensor

from memsweep.recurrence.matrix.chunks import generalised_in_chunks, states_in_chunks
from memsweep.recurrence.matrix.kernel import CompiledMatrix


def matrix_states(
    query_XTK: Tensor,
    key_XTK: Tensor,
    value_XTV: Tensor,
    log_decay: Tensor | None = None,
    rate_XT1: Tensor | None = None,
    start_XVK: Tensor | None = None,
    *,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Answers to whole sequences and the state after them, differentiable once.

    Args:
        query_XTK: q.
        key_XTK: k; by the delta rule of length 1, for its eigenvalues to be 1 - b.
        value_XTV: v.
        log_decay: log a, at most zero: ``[X, T, K]``, or ``[X, T, 1]`` for all keys at once; None: a = 1.
        rate_XT1: b of the delta rule; None: no delta rule.
        start_XVK: the state before the first step; None: zero.
        scale: s.

    Returns:
        ``[X, T, V]`` and ``[X, V, K]``.
    """
    compiled = CompiledMatrix.fitting(query_XTK)
    if compiled is None:
        return states_in_chunks(scale * query_XTK, key_XTK, value_XTV, log_decay, rate_XT1, start_XVK)
    decay = None if log_decay is None else log_decay.exp()
    if rate_XT1 is None:
        return compiled.answers(query_XTK, key_XTK, value_XTV, decay, None, None, start_XVK, scale)
    # S_t = S (diag(a) - (a k) (b k)') + v (b k)': erased and written along b k, so that one tensor serves for both
    read_XTK = key_XTK if decay is None else decay * key_XTK
    return compiled.answers(query_XTK, rate_XT1 * key_XTK, value_XTV, decay, read_XTK, None, start_XVK, scale)


def generalised_delta(
    query_XTK: Tensor,
    key_XTK: Tensor,
    value_XTV: Tensor,
    log_decay_XTK: Tensor,
    read_XTK: Tensor,
    erased_XTK: Tensor,
    start_XVK: Tensor | None = None,
    *,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The same of S_t = S_{t-1} (diag(a_t) - r_t e_t') + v_t k_t': what is read along r is erased along e.

    Args:
        query_XTK: q.
        key_XTK: k.
        value_XTV: v.
        log_decay_XTK: log a, at most zero.
        read_XTK: r.
        erased_XTK: e.
        start_XVK: the state before the first step; None: zero.
        scale: s.

    Returns:
        ``[X, T, V]`` and ``[X, V, K]``.
    """
    compiled = CompiledMatrix.fitting(query_XTK)
    if compiled is None:
        return generalised_in_chunks(
            scale * query_XTK, key_XTK, value_XTV, log_decay_XTK, read_XTK, erased_XTK, start_XVK
        )
    # chunks need logarithms, whose sums do not underflow; one step after the other needs the factors themselves
    decay_XTK = log_decay_XTK.exp()
    return compiled.answers(query_XTK, key_XTK, value_XTV, decay_XTK, read_XTK, erased_XTK, start_XVK, scale)
