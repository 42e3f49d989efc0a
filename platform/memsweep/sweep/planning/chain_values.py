"""The value of a chained trial: a number of the summary of the trial before it in the chain, read from the store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memsweep.config.schema.chain import predecessor, value_at
from memsweep.errors import BrokenChainError
from memsweep.outcome import Outcome
from memsweep.sweep.planning.identity import ON_CPU, Arithmetic, identity

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.store.record import Failure
    from memsweep.sweep.store.results import Store

_MEND = (
    "Mend what made that trial fail (its own entry says why), then run the same command again: the chain goes on "
    "from there."
)


def never_reached(first: str) -> Failure:
    """The failure of a trial that was not reached, because its worker died at the earlier trial ``first``."""
    text = f"the chain broke at the trial {first}, whose worker died, and this one was not reached. {_MEND}"
    return {"outcome": str(Outcome.FAILED), "error": f"{BrokenChainError.__name__}: {text}", "traceback": ""}


def carried_value(store: Store, config: TrialConfig, arithmetic: Arithmetic = ON_CPU) -> float | None:
    """Reads the number that a chained trial takes from its predecessor's result, unscaled; None for a first trial.

    Raises:
        BrokenChainError: the predecessor has no result, diverged, or its number is not finite.
        StoreError: the predecessor's record is damaged.
    """
    before = predecessor(config)
    if before is None or config.chain is None:
        return None
    name, along, carry = identity(before, arithmetic), config.chain.along, config.chain.carry
    which = f"the trial before it in its chain, {name} ({along}={value_at(before, along)}),"
    if not store.has(name):
        raise BrokenChainError(f"{which} has no result, and so there is no {carry} to carry on. {_MEND}")
    record = store.record(name)
    if record["outcome"] == Outcome.DIVERGED:
        raise BrokenChainError(
            f"{which} diverged, and its {carry} is not carried on. {Outcome.DIVERGED.explanation} To go on without "
            f"it, take its value out of the axis {along}, or take the chain out (chain=null)."
        )
    value = record["summary"].get(carry)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise BrokenChainError(
            f"{which} has the {carry} {value}, and only a finite number can be carried on. Carry another number "
            f"(chain.carry), take its value out of the axis {along}, or take the chain out (chain=null)."
        )
    return float(value)
