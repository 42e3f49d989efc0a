"""The checks by name, and the settings of a run. Nothing here imports torch: the parent process starts at once."""

from __future__ import annotations

from dataclasses import dataclass

NUMBERS, TIMES = "numbers", "times"
"""Checks of numbers share the GPU with one another; those of times have it alone."""
UNITS = (
    *("attention", "delta_net", "echo_state", "gated_delta_net", "gla", "gru", "hgrn", "hippo_legs", "kda"),
    *("linear_attention", "lmu", "lru", "lstm", "mamba3", "min_gru", "min_lstm", "mlstm", "retnet", "rg_lru", "rnn"),
    *("rwkv7", "s6", "slstm", "ssd", "ssd_selective"),
)


@dataclass(frozen=True)
class Check:
    """One check: a function ``module.function(setting, *arguments)`` that yields rows.

    Attributes:
        name: what the file calls it.
        module: of ``benchmarks.card``.
        function: its name there.
        arguments: after the setting.
        kind: ``NUMBERS`` or ``TIMES``.
        limit: seconds.
        needs: packages without which it is left out.
    """

    name: str
    module: str
    function: str
    arguments: tuple[str, ...] = ()
    kind: str = NUMBERS
    limit: float = 60.0
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """Where and how large: ``device`` is cuda or cpu, ``quick`` means sizes that show that it runs."""

    device: str
    quick: bool


def checks() -> list[Check]:
    """All of them, in the order in which they start."""
    found = [
        Check(f"{kernel} {kind} {dtype}", "kernels", f"{kernel}s", (kind, dtype), limit=100.0)
        for kernel, kind in KERNELS
        for dtype in ("float64", "float32")
    ]
    found += [Check("compile", "times", "compiled", limit=100.0)]
    found += [Check(f"unit {name}", "units", "unit", (name,)) for name in UNITS]
    found += [Check(f"trial {name}", "trials", "numbers", (name,), limit=FIRST, needs=WORKER) for name in TRIALS]
    found += [
        Check("machine", "times", "ceilings", kind=TIMES, limit=30.0),
        Check("time gated", "times", "gated", kind=TIMES, limit=60.0),
        Check("time linear", "times", "linear", kind=TIMES, limit=50.0),
        Check("time scans", "times", "scans", kind=TIMES, limit=35.0),
        Check("time units", "units", "times", kind=TIMES, limit=40.0),
        Check("shares", "trials", "shares", kind=TIMES, limit=90.0, needs=WORKER),
        Check("time steps", "trials", "steps", kind=TIMES, limit=90.0, needs=WORKER),
    ]
    return found


KERNELS = (
    *(("layer", "dense"), ("layer", "diagonal"), ("scan", "dense"), ("scan", "diagonal"), ("scan", "complex")),
    *(("gate", "gru"), ("gate", "lstm")),
)
"""Kernels, and the kinds of recurrence that they compute."""
FIRST = 240.0
"""Seconds of a whole trial; the first waits for the compiler of the processor's kernels, some two minutes."""
WORKER = ("scipy", "pandas")
"""Packages that whole trials need beside torch and numpy."""
TRIALS = ("linear", "tanh", "dense tanh", "lru", "gru", "s6")
"""Whole trials: see ``trials.MODELS``."""


def names() -> list[str]:
    return [each.name for each in checks()]
