"""The learning rules of arXiv 2305.15947, and backpropagation through time, under the names of its code.

With delta_t the error of a state at its own step, f the recurrence and theta its weights, the gradient is

    sum_t delta_t e_t,    e_t = df(x_t, h_{t-1})/dtheta + D_t e_{t-1},

and a rule is what it puts for D_t, for which weights: the Jacobian dh_t/dh_{t-1} (exact), its diagonal (SnAp-1) or 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from memsweep.models.deep.unit import OnlineUnit
from memsweep.registry import register_rule
from memsweep.rules.base import Rule


@register_rule("bptt")
class BPTT(Rule):
    """Backpropagation through time: the true gradient; errors travel back through all layers and steps."""

    forward = False


@register_rule("online_full")
class OnlineFull(Rule):
    """Exact sensitivities of every layer (real-time recurrent learning of independent units), spatial errors.

    The true gradient of the last recurrent layer and of all behind it; for the layers below, it leaves out what an
    error of now would have changed in the past of the layers above.
    """

    exact = True

    def traced(self, unit: OnlineUnit) -> frozenset[str]:
        return unit.part_names


@register_rule("online_full_rec")
class OnlineFullRec(Rule):
    """Exact sensitivities of what decides how a unit forgets; what brings it its input learns from single steps."""

    exact = True

    def traced(self, unit: OnlineUnit) -> frozenset[str]:
        return unit.forgetting


@register_rule("online_full_rec_simple_b")
class OnlineFullRecSimpleB(OnlineFullRec):
    """The gradient of ``online_full_rec`` once more: the published code computes it by a trace of one step."""


@register_rule("online_snap1")
class OnlineSnAp1(Rule):
    """SnAp-1 (arXiv 2006.07232): of a step's Jacobian the diagonal alone; exact for elementwise units."""

    def traced(self, unit: OnlineUnit) -> frozenset[str]:
        return unit.part_names


@register_rule("online_truncated")
class OnlineTruncated(Rule):
    """Backpropagation through time over one step: what a step makes of the state before it, and no further."""


@register_rule("online_spatial")
class OnlineSpatial(Rule):
    """Spatial backpropagation: no gradient passes a recurrent connection, so that recurrent weights never learn."""

    recurrent = False


@register_rule("online_reservoir")
class OnlineReservoir(Rule):
    """Only what stands behind the last layer learns: the layers keep their initial weights."""

    recurrent = False
    trains_layers = False

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A trained readout of untrained layers."""
