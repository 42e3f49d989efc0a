"""Learning rules: how exact their gradients are, what memory they take, and what time.

Three tables, a row of ``rules.json`` each:

- ``exactness``: relative error of a rule's gradient against backpropagation through time, in all weights and in the
  last layer's unit and all behind it, and against the rule itself by dense forward-mode sensitivities
  (``benchmarks.rules.forward_mode``). Small stacks in float64, sequences of 20 steps.
- ``memory``: bytes that a gradient holds at most, counted exactly, over the length of the sequence: the whole sequence
  at once (``batched``) and step by step (``stepping``).
- ``time``: a full optimizer step of an ensemble under each rule, by turns, as a ratio to backpropagation's; and the
  same gradient step by step, as a ratio to the batched one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.rules.forward_mode import ACCOUNTS, Oracle
from benchmarks.rules.small_stacks import Endless, case, fits, flat, forward_rules, from_unit, relative, unit_config
from benchmarks.steps.matrix_step import MatrixTraining
from benchmarks.steps.product import ENDLESS
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.memory import live_bytes
from memsweep.models.deep.residual_stack import ResidualStack

DEPTHS: Final = (1, 2, 4)
STEPS: Final = 20
LENGTHS: Final = (100, 1000, 10_000)
BPTT: Final = "bptt"


@cache
def _discovered() -> None:
    registry.discover(harness.ROOT)


def exactness(options: Options) -> list[Row]:
    """Errors of every rule, unit and depth."""
    rows = []
    for unit in ACCOUNTS:
        for depth in DEPTHS:
            oracle = Oracle(unit, depth, 4 if options.quick else STEPS)
            stack = oracle.case
            true, last = stack.gradient(BPTT), from_unit(stack, depth - 1)
            for rule in [name for name in [BPTT, *forward_rules()] if fits(name, stack.model.config)]:
                found = stack.gradient(rule)
                rows.append(
                    {"table": "exactness", "rule": rule, "unit": unit, "depth": depth}
                    | {"whole": relative(flat(found), flat(true))}
                    | {"last": relative(flat(found, last), flat(true, last))}
                    | {"forward_mode": relative(flat(found), oracle.gradient(rule))}
                )
    return rows


def memory(options: Options) -> list[Row]:
    """Bytes over lengths."""
    rows = []
    width, lengths = (4, (20, 40)) if options.quick else (16, LENGTHS)
    sizes = {"width": width, "features": width, "layers": 2, "batch": 2}
    for unit, rule in (("lru", "online_full"), ("gru", "online_snap1")):
        config = unit_config(unit)
        models = Endless(case(config, **sizes), rule)
        for steps in lengths:
            models.go(steps - 4 - models.steps)
            *_, stepping = models.bytes()
            stack = case(config, steps=steps, **sizes)
            # torch cannot see what a compiled stack holds, and computes stacks whose inputs have a gradient itself
            seen = replace(stack, inputs=stack.inputs.clone().requires_grad_())
            for name, form, peak in (
                (BPTT, "batched", live_bytes(lambda seen=seen: seen.gradient(BPTT)).peak),
                (rule, "batched", live_bytes(lambda stack=stack, rule=rule: stack.gradient(rule)).peak),
                (rule, "stepping", stepping),
            ):
                rows.append(
                    {"table": "memory", "unit": unit, "rule": name, "form": form, "steps": steps, "bytes": peak}
                )
    return rows


def step_time(options: Options) -> list[Row]:
    """Time of an optimizer step under each rule."""
    rows = []
    pairs, shortest = (2, 0.002) if options.quick else (harness.PAIRS, harness.SHORTEST)
    for unit in ACCOUNTS:
        rules = [name for name in [BPTT, *forward_rules()] if fits(name, _stack(unit, options.quick))]
        trainings = {rule: MatrixTraining(_trial(unit, rule, options.quick)) for rule in rules}
        times = harness.alternate(
            {rule: training.step for rule, training in trainings.items()}, pairs=pairs, shortest=shortest
        )
        for rule, training in trainings.items():
            training.check()
            rows.append(
                {"table": "time", "unit": unit, "rule": rule, "form": "batched", "ratio_to": BPTT}
                | {"milliseconds": 1e3 * harness.median(times[rule]), "ratio": harness.ratio(times[rule], times[BPTT])}
                | {"pairs": pairs}
            )
        rows.append(_stepping_time(unit, pairs, shortest, options.quick))
    return rows


def _stepping_time(unit: str, pairs: int, shortest: float, quick: bool) -> Row:
    """One gradient of SnAp-1, which is exact for an LRU, in both forms."""
    rule, width = "online_snap1", 4 if quick else 64
    stack = case(
        unit_config(unit), replicas=1, batch=4 if quick else 50, steps=5 if quick else 48, width=width, features=width
    )
    times = harness.alternate(
        {"batched": lambda: stack.gradient(rule), "stepping": lambda: stack.stepped(rule)},
        pairs=pairs,
        shortest=shortest,
    )
    return (
        {"table": "time", "unit": unit, "rule": rule, "form": "stepping", "ratio_to": "batched"}
        | {"milliseconds": 1e3 * harness.median(times["stepping"])}
        | {"ratio": harness.ratio(times["stepping"], times["batched"]), "pairs": pairs}
    )


def _stack(unit: str, quick: bool) -> ResidualStack.Config:
    width = 4 if quick else 64
    return ResidualStack.Config(unit=unit_config(unit), width=width, features=width, layers=2)


def _trial(unit: str, rule: str, quick: bool) -> TrialConfig:
    """Copying bits as in arXiv 2305.15947, with two layers."""
    _discovered()
    return TrialConfig(
        task=registry.get(registry.TASK, "copying_bits").Config(pattern_length=2 if quick else 20),
        model=_stack(unit, quick),
        training=TrainingConfig(
            rule=rule,
            seeds=2 if quick else 5,
            steps=ENDLESS,
            batch_size=4 if quick else 50,
            dtype="float32",
            learning_rate=1e-6,
            amplitude_penalty=0.0,
            clip=0.0,
        ),
    )


def run(options: Options) -> None:
    """Measure, print and write ``rules.json``."""
    harness.one_thread()
    rows: list[Row] = []
    for part in (exactness, memory, step_time):
        found = [row for row in part(options) if options.wants(row)]
        for row in found:
            harness.tell(row)
        _markdown(found)
        rows += found
    settings = {
        "exactness": f"float64, width and features 3, 2 sequences of {STEPS} steps, squared error at every step",
        "memory": "float64, width and features 16, 2 layers, full_glu, 2 sequences; without weights and gradient",
        "time": "5 models, 2 layers, width and features 64, full_glu, 50 sequences of 48 steps, float32, one thread",
        "clock": "CPU time of the process, one thread",
    }
    if not options.only:
        harness.write("rules", settings, rows, options.out)


def _markdown(rows: list[Row]) -> None:
    """Print rows as a table of a document."""
    if not rows:
        return
    columns = [name for name in rows[0] if name != "table"]
    print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(_shown(row[name]) for name in columns) + " |")
    print(flush=True)


def _shown(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
