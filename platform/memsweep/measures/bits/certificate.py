"""An upper bound of the loss of separate real modes over a box of weights: it holds for every rounding to that box.

A linear model of modes has the kernel k_s = sum_i c_i u_i lambda_i^s and the drift d_t = sum_i c_i b_i sum_{s<=t}
lambda_i^s + d. Every weight stands in a term once, so interval arithmetic gives the exact range of a term: a product is
extreme at the ends of its factors, lambda is extreme at the ends of its weight's interval or where the map turns, and
lambda^s at the ends or at 0. Sums of ranges bound k_s and d_t, and the loss of white noise grows with |k_s - rho_s| and
|d_t|. All lags at their worst together may be more than any weights do: a bound, and the exact worst of a single mode
that approximates its own kernel.

Letters: P rows, M modes, T lags.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from memsweep.models.base import Weights
from memsweep.models.modal.base import ModalModel
from memsweep.recurrence.linear.gram import Gram

_ENTRIES = 4_000_000
"""Of ``[P, M, T]`` at a time."""
_FLOATS = 1e-12
"""Of a sum's terms: far more than float64 rounds, so that the bound stands in spite of it."""


class _Range(NamedTuple):
    """Numbers known up to an interval."""

    low: Tensor
    high: Tensor

    def times(self, other: _Range) -> _Range:
        """The range of products of independent numbers."""
        ends = torch.stack([one * another for one in self for another in other])
        return _Range(ends.amin(0), ends.amax(0))

    def size(self) -> Tensor:
        """The largest size in the range."""
        return torch.maximum(self.low.abs(), self.high.abs())


def largest_loss(model: ModalModel, data: Gram, low: Weights, high: Weights, targets_PT: Tensor) -> Tensor:
    """A bound of the loss over all weights between two, ``[P]``; inf or nan where it is not finite.

    Args:
        model: linear, without normalization, one input and one output; its maps from weights to eigenvalues turn at 0
            alone, if anywhere (``problems_of_certificates``).
        data: the statistics of white noise (``Gram.population``).
        low, high: ``[P, *shape]``, the ends of every weight's interval.
        targets_PT: the kernels that are approximated.
    """
    low, high = ({name: value.double() for name, value in ends.items()} for ends in (low, high))
    raw = _Range(low["recurrent_weight"], high["recurrent_weight"])
    turn = torch.minimum(torch.maximum(torch.zeros_like(raw.low), raw.low), raw.high)
    ends = torch.stack([model.modes({"recurrent_weight": each}) for each in (*raw, turn)])
    modes = _Range(ends.amin(0), ends.amax(0))
    encoder = _Range(low["encoder_weight"][..., 0], high["encoder_weight"][..., 0])
    readout = _Range(low["readout_weight"][..., 0, :], high["readout_weight"][..., 0, :])
    bias = _Range(low["encoder_bias"], high["encoder_bias"])
    offset = _Range(low["readout_bias"], high["readout_bias"])
    steps = data.drift.shape[-1]
    rows = max(1, _ENTRIES // (raw.low.shape[-1] * steps))
    losses = []
    for at in range(0, len(targets_PT), rows):
        part = slice(at, at + rows)
        powers = _powers(_part(modes, part), steps)
        sums = _Range(powers.low.cumsum(-1), powers.high.cumsum(-1))
        kernel = _total(_part(readout, part), _part(encoder, part), powers)
        drift = _total(_part(readout, part), _part(bias, part), sums)
        error = _Range(kernel.low - targets_PT[part].double(), kernel.high - targets_PT[part].double())
        moved = _Range(drift.low + offset.low[part], drift.high + offset.high[part])
        losses.append(
            (error.size().square() * data.lags.double()).sum(-1) + (moved.size().square() * data.drift.double()).sum(-1)
        )
    return torch.cat(losses)


def _part(whole: _Range, rows: slice) -> _Range:
    return _Range(whole.low[rows], whole.high[rows])


def _powers(modes: _Range, steps: int) -> _Range:
    """lambda^s, ``[P, M, T]``: monotone for odd s, and for even s least where |lambda| is."""
    lags = torch.arange(steps, dtype=torch.float64, device=modes.low.device)
    ends = torch.stack([end.unsqueeze(-1) ** lags for end in modes])
    through = ((modes.low < 0) & (modes.high > 0)).unsqueeze(-1) & (lags % 2 == 0) & (lags > 0)
    return _Range(torch.where(through, 0.0, ends.amin(0)), ends.amax(0))


def _total(readout: _Range, into: _Range, answers_PMT: _Range) -> _Range:
    """The sum over modes of c u a, ``[P, T]``, wider by what float64 may have rounded."""
    amplitudes = readout.times(into)
    terms = _Range(amplitudes.low.unsqueeze(-1), amplitudes.high.unsqueeze(-1)).times(answers_PMT)
    room = _FLOATS * terms.size().sum(-2)
    return _Range(terms.low.sum(-2) - room, terms.high.sum(-2) + room)
