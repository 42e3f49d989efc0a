"""Linear functionals with a known memory: y_t = sum_{s<=t} rho(s dt) x_{t-s} of white noise x.

The memory functions are those of ``memsweep.data.functionals``; the task is that of arXiv 2305.19190, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from memsweep.data.api import PARAMETERS, KernelConfig, LinearFunctionalTask
from memsweep.registry import register_task


@register_task("linear_functional")
class LinearFunctional(LinearFunctionalTask):
    """Reproduce a linear functional of white noise whose memory function is given."""

    @dataclass(frozen=True, kw_only=True)
    class Config(KernelConfig):
        """A linear functional of white noise: the target's memory function is the kernel."""

    pack_fields = frozenset({"kernel", *PARAMETERS})
