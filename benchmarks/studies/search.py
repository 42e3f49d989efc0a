"""Search: samplers against chance at equal budget, and what early stopping saves.

*Samplers* meet functions whose optimum is known: Branin in two dimensions and Hartmann in six (Dixon and Szegő 1978).
No training of ours has a known optimum, so these are not trainings. All samplers have the same budget and the same
batches, and are asked as a search asks them; regret is the best value found less the optimum. Repetition r of each has
the same seed, so the ratio to chance is taken pair by pair, on a logarithmic scale.

*Schedulers* meet trainings of ours: a linear model at 27 learning rates is trained to the end once, and its validation
losses are kept; then searches over these curves are replayed in 20 orders. A search's winner is the best of those that
were trained to the end; its loss at the end is compared with the best of all 27, and the steps with those of all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from benchmarks import harness
from benchmarks.harness import Options, Row
from memsweep.config.schema.search import Domain, SchedulerConfig, SearchConfig
from memsweep.search.stopping.schedulers import Report, scheduler
from memsweep.search.suggest.sampler import ask
from memsweep.search.suggestions import Result, Suggestion

REPETITIONS: Final = 20
BATCH: Final = 4
ALGORITHMS: Final = ("random", "tpe", "gp", "cma_es")
RATES: Final = 27
STEPS, VALIDATE, GRACE, REDUCTION, INTERVAL = 2700, 50, 300, 3.0, 300
FLIGHT: Final = 9
"""Rows in flight where schedulers are replayed: as many as the hastiest bracket of HyperBand has members."""


def branin(x: Sequence[float]) -> float:
    """On [-5, 10] x [0, 15]; three minima of 0.397887."""
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (x[1] - b * x[0] ** 2 + c * x[0] - 6) ** 2 + 10 * (1 - t) * math.cos(x[0]) + 10


_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(x: Sequence[float]) -> float:
    """On [0, 1]^6; least value -3.32237."""
    return float(-(_ALPHA * np.exp(-(_A * (np.asarray(x) - _P) ** 2).sum(axis=1))).sum())


@dataclass(frozen=True)
class Problem:
    """A function with a known minimum.

    Attributes:
        function: of the fields in the order of the space.
        space: dotted path -> domain.
        least: its minimum.
        trials: budget of a search.
    """

    function: Callable[[Sequence[float]], float]
    space: Mapping[str, Domain]
    least: float
    trials: int


PROBLEMS: Final = {
    "Branin, 2-d": Problem(
        branin, {"x0": Domain("uniform", -5.0, 10.0), "x1": Domain("uniform", 0.0, 15.0)}, 0.39788735772973816, 40
    ),
    "Hartmann, 6-d": Problem(
        hartmann, {f"x{n}": Domain("uniform", 0.0, 1.0) for n in range(6)}, -3.322368011415515, 60
    ),
}


def regret(problem: Problem, algorithm: str, seed: int, trials: int) -> float:
    """Of a search of so many trials in batches, as a study makes it."""
    search = SearchConfig(algorithm=algorithm, trials=trials, batch=BATCH)
    told: list[tuple[Suggestion, Result]] = []
    for turn in range(-(-trials // BATCH)):
        for one in ask(search, problem.space, {}, ["min"], told, [], BATCH, 10_000 * seed + turn):
            value = problem.function([one.values[path] for path in problem.space])
            told.append((one, Result(one.number, (value,), 1)))
    return min(result.values[0] for _, result in told if result.values) - problem.least


def interval(values: Sequence[float], statistic: Callable[..., Any] = np.median) -> tuple[float, float]:
    """95 % bootstrap interval of a statistic, percentiles of 10,000 resamplings."""
    random = np.random.default_rng(0)
    resampled = random.choice(np.asarray(values), size=(10_000, len(values)))
    low, high = np.percentile(statistic(resampled, axis=1), [2.5, 97.5])
    return float(low), float(high)


def samplers(options: Options) -> list[Row]:
    """Every algorithm on every problem."""
    repetitions = 3 if options.quick else REPETITIONS
    rows: list[Row] = []
    for name, problem in PROBLEMS.items():
        trials = 12 if options.quick else problem.trials
        chance: list[float] = []
        for algorithm in ALGORITHMS:
            row: Row = {"problem": name, "what": algorithm, "trials": trials, "repetitions": repetitions}
            if not options.wants(row) and algorithm != "random":
                continue
            start = time.process_time()
            found = [regret(problem, algorithm, seed, trials) for seed in range(repetitions)]
            seconds = (time.process_time() - start) / (repetitions * trials)
            chance = chance or found
            low, high = interval(found)
            row |= {"regret": float(np.median(found)), "low": low, "high": high}
            logs = np.log([max(a, 1e-12) / max(b, 1e-12) for a, b in zip(found, chance, strict=True)])
            between = [math.exp(end) for end in interval(logs, np.mean)]
            row |= {"ratio_to_random": float(np.exp(logs.mean())), "ratio_low": between[0], "ratio_high": between[1]}
            row |= {"wins": sum(a < b for a, b in zip(found, chance, strict=True))}
            row |= {"milliseconds_a_suggestion": 1e3 * seconds}
            rows.append(row)
            harness.tell(row)
    return rows


Curves = list[dict[int, float]]


def curves(quick: bool) -> tuple[Curves, int]:
    """Trainings of ours at rates between 1e-4 and 1: what a search hears of each at each validation, and all steps.

    That is the median over three seeds of the best validated loss so far; inf where a seed had diverged.
    """
    from benchmarks.steps.product import trial_config
    from memsweep import registry
    from memsweep.trial import run_pack

    steps = STEPS // 9 if quick else STEPS
    base = trial_config(
        "diagonal_rnn", horizon=100, width=8, seeds=3, batch_size=256, parameterization=None, discretization="exact"
    )
    model = replace(base.model, parameterization=registry.get(registry.PARAMETERIZATION, "exp").Config())
    configs = [
        replace(
            base,
            model=model,
            training=replace(base.training, steps=steps, learning_rate=10 ** (-4 * place / (RATES - 1))),
            perturbation=replace(base.perturbation, balls=()),
        )
        for place in range(RATES)
    ]
    found = []
    for result in run_pack(configs):
        history = result.tables["history"].pivot(index="step", columns="seed", values="validation_loss")
        # a replica that has diverged is validated no more
        losses = history.where(np.isfinite(history), np.inf).fillna(np.inf)
        heard = losses.cummin().where(np.isfinite(losses), np.inf).median(axis=1)
        found.append({step: float(heard.get(step, np.inf)) for step in range(VALIDATE, steps + 1, VALIDATE)})
    return found, steps


def replay(config: SchedulerConfig, known: Curves, order: Sequence[int], steps: int) -> tuple[int, float]:
    """Steps that a search over the curves in an order spends, and the loss at the end of its winner."""
    asked = scheduler(config, steps, VALIDATE)
    rows: list[tuple[int, int]] = []
    spent, ended, entered = [0] * len(order), dict[int, float](), 0
    while True:
        reports = [Report(number, step, known[order[number]][step]) for number, step in rows]
        ended |= {one.number: one.value for one in reports if one.steps == steps}
        decided = asked.report(reports, more=entered < len(order))
        rows = [(number, step) for number, step in sorted(decided.items()) if step is not None]
        new = range(entered, min(len(order), entered + max(0, FLIGHT - len(rows))))
        rows += [(number, asked.first(number)) for number in new]
        entered += len(new)
        for number, step in rows:
            spent[number] = step
        if not rows and entered == len(order) and not reports:
            return sum(spent), min(ended.values())


def schedulers(options: Options) -> list[Row]:
    """Every scheduler on the same curves, in the same orders."""
    known, steps = curves(options.quick)
    best = min(curve[steps] for curve in known)
    shrink = STEPS // steps
    rows: list[Row] = []
    for name in ("none", "asha", "hyperband", "median"):
        config = SchedulerConfig(name=name, grace=GRACE // shrink, reduction=REDUCTION, interval=INTERVAL // shrink)
        orders = [np.random.default_rng(seed).permutation(RATES).tolist() for seed in range(REPETITIONS)]
        found = [replay(config, known, order, steps) for order in orders]
        spent = [steps_spent / (RATES * steps) for steps_spent, _ in found]
        loss = [final / best for _, final in found]
        row: Row = {"problem": f"{RATES} learning rates, {steps} steps", "what": name, "repetitions": len(orders)}
        if not options.wants(row):
            continue
        low, high = interval(spent, np.mean)
        row |= {"steps_of_all": float(np.mean(spent)), "steps_low": low, "steps_high": high}
        logs = np.log(loss)  # ratios
        low, high = np.exp(interval(logs, np.mean)).tolist()
        row |= {"loss_to_best": float(np.exp(logs.mean())), "loss_low": low, "loss_high": high}
        row |= {"found_the_best": sum(final == best for _, final in found)}
        rows.append(row)
        harness.tell(row)
    return rows


def run(options: Options) -> None:
    """Measure, print and write ``search.json``."""
    harness.one_thread()
    first = schedulers(options)
    second = samplers(options)
    settings = {
        "samplers": "regret: best value less the known optimum, median over repetitions with a 95 % bootstrap "
        "interval; ratio to random: geometric mean over pairs of repetitions with the same seed",
        "batch": BATCH,
        "schedulers": "validation losses of a diagonal linear model (width 8, horizon 100, 3 seeds) replayed; "
        f"{FLIGHT} rows in flight, looks from step {GRACE} on; steps as a share of training all; loss of the winner "
        "at the end over the best of all; means over the orders with 95 % bootstrap intervals",
    }
    harness.table(first, "schedulers")
    harness.table(second, "samplers")
    if not options.only:
        harness.write("search", settings, [*second, *first], options.out)
