"""Estimates of a study: measured programs, waves of a search, and figures that hold."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from engine import trial
from memsweep.cli import main
from memsweep.commands.console import print_estimate
from memsweep.config.load.study import load_study
from memsweep.config.schema.chain import resolve_chain
from memsweep.config.schema.search import (
    ASHA,
    CHOICE,
    INT,
    LOG_UNIFORM,
    ConfirmConfig,
    Domain,
    SchedulerConfig,
    Search,
    SearchConfig,
)
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.config.schema.trial import ChainConfig, TrialConfig
from memsweep.data.task import Batch
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.streams import Stream
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run
from memsweep.sweep.estimate.benchmark import Benchmark, Measured, benchmark, measure, measure_training
from memsweep.sweep.estimate.estimate import (
    MEASURED_FACTOR,
    Wave,
    estimate,
    kind_of,
    suggestion,
    waves,
)
from memsweep.sweep.estimate.kept import KeptMeasurements
from memsweep.sweep.estimate.nodes import NodeOffer, makespan, uses
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.identity import ON_CPU, identity
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.resources import local_cpus
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import MEASUREMENTS
from memsweep.sweep.worker.gpu_memory import shortened
from memsweep.trial import RunOptions, run_trial
from paths import ROOT
from processes import carriers_of, no_hang
from runner_work import planned, tiny


def small(**changes: Any) -> TrialConfig:
    return trial(training={"seeds": 2, "steps": 40} | changes)


def test_numbers_that_are_no_sizes_make_no_other_kind() -> None:
    one = [small()]
    for other in (
        small(learning_rate=0.5, steps=5000, first_seed=7, data_seed=3, until=0),
        trial(training={"seeds": 2, "steps": 40}, model={"parameterization": "direct"}, task={"rate": 0.3}),
    ):
        assert kind_of([other]) == kind_of(one)
    for other in (
        small(batch_size=8),
        small(validation_size=24),
        small(seeds=200),  # a few models more would fit into the same padded slots
        trial(training={"seeds": 2, "steps": 40}, task={"horizon": 13}),
        trial(training={"seeds": 2, "steps": 40}, model={"width": 40}),
        trial(training={"seeds": 2, "steps": 40}, perturbation={"ascent_steps": 9}),
    ):
        assert kind_of([other]) != kind_of(one)


def test_links_of_a_chain_are_of_one_kind() -> None:
    chain = ChainConfig(along="model.width", first=1.0, earlier=(2, 3))
    link = dataclasses.replace(small(), chain=chain)
    first = dataclasses.replace(link, chain=dataclasses.replace(chain, earlier=()))
    assert kind_of([link]) == kind_of([first])
    assert kind_of([link]) != kind_of([small()])  # it runs at exactly its shapes


def test_later_links_of_a_chain_are_measured_without_their_predecessors(tmp_path: Path) -> None:
    """At the loss that the first link's chain gives it, a training would stop at its first validation."""
    chain = ChainConfig(along="model.width", into="training.stop_below", first=1e9, earlier=(2, 3))
    link = dataclasses.replace(small(validate_every=5), chain=chain)
    assert len(list(measure_training([link], ON_CPU, 1, math.inf))) == 2
    for steps in (4, 20):
        cut = resolve_chain(shortened(link, steps, 2, 1), None)
        assert run_trial(cut).summary["steps"] == steps
    measured = [found.evaluation for found in measure([link], ON_CPU, 1, str(ROOT), tmp_path, 0.0)]
    assert len(measured) == 1
    assert measured[0] is not None


def test_what_a_run_begins_with_is_no_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time was taken for that of two validations, and multiplied by how much larger those of the study are."""
    setup, step, sequence, now = 5.0, 0.25, 1 / 64, 0.0

    def train(configs: list[TrialConfig], options: RunOptions) -> None:
        nonlocal now
        with options.phase("data"):
            now += setup / 2
        with options.phase("training"):
            now += setup / 2 + configs[0].training.end * step + 2 * configs[0].training.validation_size * sequence

    monkeypatch.setattr("memsweep.trial.train_replicas", train)
    config = trial(
        model={"activation": "tanh", "width": 1},
        training={"seeds": 1, "steps": 40, "batch_size": 8, "validation_size": 4096, "validate_every": 10},
    )
    *_, found = measure_training([config], ON_CPU, 1, math.inf, lambda: now)
    assert (found.step, found.validation) == pytest.approx((step, 4096 * sequence))
    assert found.fixed == pytest.approx(setup + 2 * 4096 * sequence)


def test_a_step_is_no_part_of_what_a_run_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of a pack of many models take less than making the models: the first bound was all of that time."""
    making, begin, step, now, runs = 0.5, 0.05, 0.004, 0.0, list[int]()

    def train(configs: list[TrialConfig], options: RunOptions) -> None:
        nonlocal now
        runs.append(configs[0].training.end)
        now += making
        with options.phase("training"):
            now += begin + configs[0].training.end * step

    monkeypatch.setattr("memsweep.trial.train_replicas", train)
    found, *_ = measure_training([small()], ON_CPU, 1, 1.6, lambda: now)
    assert runs == [1, 8]
    assert found.step == pytest.approx(step + begin / 8)
    assert found.fixed == pytest.approx(making)
    now = 0.0
    _found, *_ = measure_training([small()], ON_CPU, 1, 1.4, lambda: now)
    assert runs == [1, 8, 1, 2]


def test_a_training_set_is_drawn_whole_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its drawing would else count as the time of a step."""
    config = trial(
        model={"activation": "tanh"}, training={"seeds": 1, "steps": 40, "train_size": 4096, "validation_size": 64}
    )
    drawn, draw = list[int](), SampledLoss.draw

    def counted(self: SampledLoss, stream: Stream, index: int, size: int) -> Batch:
        drawn.append(size)
        return draw(self, stream, index, size)

    monkeypatch.setattr(SampledLoss, "draw", counted)
    assert len(list(measure_training([config], ON_CPU, 1, math.inf))) == 2
    assert set(drawn) <= {32, 64, 512}
    levels = [found.levels for found in measure([config], ON_CPU, 1, str(ROOT), tmp_path, math.inf)]
    assert levels == [1, 2, 3, 4, 5]
    assert drawn.count(4096) == 1


@pytest.mark.parametrize(("stops", "chained"), [(0.1, None), (0.0, 1.0), (0.0, 0.0), (0.0, None)])
def test_how_long_it_takes_where_trainings_stop_below_a_loss_is_told(
    stops: float, chained: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the third validation, the first one after the smallest steps."""

    def of(first_seed: int, until: int = 0) -> TrialConfig:
        steps = {"steps": 40_000, "until": until, "validate_every": 3, "smallest_steps": 8, "stop_below": stops}
        chain = None if chained is None else ChainConfig(along="model.width", first=chained)
        return dataclasses.replace(small(first_seed=first_seed, **steps), chain=chain)

    made = estimate([Wave(planned([[of(1)], [of(9)]]).packs)], ResourcesConfig(), ROOT, seconds=0.0)
    may = bool(chained or stops)
    assert made.soonest == (pytest.approx(2 * cost.seconds([of(1, until=9)])) if may else None)
    print_estimate(made, (0.0, 0.0), probed=False, inline=True)
    assert ("each training ends as soon as training.stop_below lets it" in capsys.readouterr().out) is may


def test_a_program_costs_the_sum_of_its_parts() -> None:
    measured = Measured(fixed=8.0, step=0.5, evaluation=0.25, disk=100.0, weights=40.0, memory=7)
    config = small(steps=100)
    assert measured.seconds([config]) == pytest.approx(8.0 + 100 * 0.5 + 0.25 * cost.evaluations(config))
    only_trained = dataclasses.replace(measured, evaluation=None)
    after = cost.seconds([config]) * (1.0 - cost.training_share([config]))
    assert only_trained.seconds([config]) == pytest.approx(8.0 + 100 * 0.5 + after)


def test_what_a_plan_measured_is_kept_for_the_same_code_and_machine(tmp_path: Path) -> None:
    results, programs = Location.at(tmp_path), {"small": [small()], "other": [small(batch_size=8)]}
    cost_of_small = Measured(fixed=8.0, step=0.5, evaluation=None, disk=0.0, weights=0.0, memory=0, levels=0)
    made = Benchmark({"small": cost_of_small}, starting=3.0)
    KeptMeasurements.of_folder(results).add(programs, made, ON_CPU, 1, "weights")
    kept = KeptMeasurements.of_folder(results)
    assert kept.starting == 3.0
    assert kept.of(programs, ON_CPU, 1, "weights") == {"small": cost_of_small}
    assert kept.of(programs, ON_CPU, 2, "weights") == {}
    assert kept.of({"small": [small(steps=41)]}, ON_CPU, 1, "weights") == {}
    written = (tmp_path / MEASUREMENTS).read_text()
    for odd in ("null", '"8"', "-8.0", "NaN", "[8.0]"):
        (tmp_path / MEASUREMENTS).write_text(written.replace('"fixed": 8.0', f'"fixed": {odd}'))
        assert KeptMeasurements.of_folder(results).of(programs, ON_CPU, 1, "weights") == {}
    (tmp_path / MEASUREMENTS).write_text("{}")
    assert KeptMeasurements.of_folder(results).of(programs, ON_CPU, 1, "weights") == {}


def test_a_program_whose_shortest_run_is_too_long_is_not_begun_again() -> None:
    long = Measured(fixed=600.0, step=0.5, evaluation=None, disk=0.0, weights=0.0, memory=0, levels=0)
    assert benchmark({"long": [small()]}, ON_CPU, 1, ROOT, 8.0, trained={"long": long}) == Benchmark()


def test_cores_that_a_plan_leaves_idle_are_told() -> None:
    plan = planned([[tiny(0)]])
    cores = local_cpus()
    made = estimate([Wave(plan.packs)], ResourcesConfig(), ROOT, seconds=0.0)
    assert (made.at_once, made.idle) == (1, cores - 1)
    assert estimate([Wave(plan.packs)], ResourcesConfig(cpus=float(cores)), ROOT, seconds=0.0).idle == 0


def test_packs_begin_as_slots_are_free() -> None:
    assert makespan([5.0, 3.0, 3.0, 1.0], 2) == 6.0
    assert makespan([5.0, 3.0, 3.0, 1.0], 1) == 12.0
    assert makespan([], 4) == 0.0


def test_more_nodes_end_sooner_and_cost_what_is_idle() -> None:
    """Four packs of an hour on nodes of two cores, with none of the seconds in which nodes start."""
    lengths = [(ResourcesConfig(), [3600.0] * 4, 1.0)]
    found = [(use.nodes, use.seconds / 3600, use.cost, use.idle) for use in uses(lengths, NodeOffer(2, price=0.5), 0.0)]
    assert found == [(1, 2.0, 1.0, 0.0), (2, 1.0, 1.0, 0.0)]
    three, four = uses([(ResourcesConfig(), [3600.0] * 3, 1.0)], NodeOffer(2, price=0.5), 0.0)
    assert (three.cost, three.idle, four.cost, four.idle) == (1.0, 0.25, 1.0, 0.25)
    full = next(uses([(ResourcesConfig(), [14.9, 14.9, 26.0, 26.0, 7.4, 7.4], 1.0)], NodeOffer(2, price=0.5), 0.0))
    assert f"{full.idle:.0%}" == "0%"  # rounding makes the work longer than its time
    started = next(uses(lengths, NodeOffer(2, price=0.5), 3600.0))
    assert (started.seconds / 3600, started.cost, started.idle) == (3.0, 1.5, pytest.approx(1 / 3))


def test_nodes_that_hold_no_more_packs_at_once_are_not_offered() -> None:
    most_one = ResourcesConfig(max_concurrent=1)
    assert [use.nodes for use in uses([(most_one, [60.0] * 4, 1.0)], NodeOffer(4, price=1.0), 0.0)] == [1]
    both = [(most_one, [60.0] * 4, 1.0), (ResourcesConfig(max_concurrent=6), [60.0] * 8, 1.0)]
    assert [use.nodes for use in uses(both, NodeOffer(2), 0.0)] == [1, 2, 4]


@pytest.mark.parametrize("text", ["cpus=inf", "cpus=nan", "cpus=4,gpus=inf", "cpus=4,price=inf", "cpus=4,price=nan"])
def test_nodes_are_of_finite_size_and_price(text: str) -> None:
    with pytest.raises(ValueError, match="in finite numbers, got"):
        NodeOffer.of(text)


def test_without_a_probe_the_model_stands_in_and_says_so() -> None:
    plan = planned([[tiny(0), tiny(1)], [tiny(2, width=3)]])
    made = estimate([Wave(plan.packs)], ResourcesConfig(max_concurrent=1), ROOT, seconds=0.0)
    packs = [[one.config for one in pack.trials] for pack in plan.packs]
    assert made.work == pytest.approx(sum(cost.seconds(pack) for pack in packs))
    assert made.seconds == pytest.approx(made.work)
    assert (made.slots, made.measured, made.memory, made.disk, made.rows) == (1, 0.0, 0, 0.0, 3.0)
    impossible = estimate([Wave(plan.packs)], ResourcesConfig(cpus=4096.0), ROOT)
    assert (impossible.seconds, impossible.slots, impossible.measured) == (None, 0, 0.0)
    assert "resources.cpus is 4096" in impossible.why_not[0]


@pytest.mark.more
def test_a_program_is_measured_in_parts_one_perturbation_step_included(tmp_path: Path) -> None:
    configs = [small(steps=4000), small(steps=4000, first_seed=5)]
    found = benchmark({"small": configs}, ON_CPU, 1, ROOT, 120.0).measured["small"]  # memory: of a process of its own
    assert found.levels == 5
    assert 0 < found.step < 0.5
    assert 0 < found.evaluation < 0.5
    assert found.fixed > 0
    assert found.memory > 1 << 20
    run(planned([[small()]]), workspace=ROOT, results=tmp_path, launch=Launch(inline=True))
    real = sum(file.stat().st_size for file in (tmp_path / "demo").rglob("*.parquet"))
    real += sum(file.stat().st_size for file in (tmp_path / "demo").rglob("records/*.json"))
    assert found.disk == pytest.approx(real, rel=0.3)


def searching(scheduler: SchedulerConfig | None = None, **settings: Any) -> Search:
    space = {
        "training.learning_rate": Domain(LOG_UNIFORM, 1e-4, 1e-1),
        "model.parameterization": Domain(CHOICE, values=("exp", "direct")),
        "model.width": Domain(INT, 2, 6, when={"model.parameterization": ("direct",)}),
    }
    return Search(SearchConfig(**settings, scheduler=scheduler or SchedulerConfig()), space)


def study(search: Search, confirm: ConfirmConfig | None = None) -> SweepConfig:
    cells = (trial(training={"steps": 900, "validate_every": 50}), trial(task={"horizon": 20}, training={"steps": 900}))
    return SweepConfig(name="s", rows=cells, search=search, confirm=confirm, grid={}, resources=ResourcesConfig())


def test_suggestions_are_spread_over_the_space_and_keep_its_conditions() -> None:
    cell = trial(model={"width": 5, "parameterization": "exp"})
    tried = [suggestion(cell, searching(), place) for place in range(20)]
    rates = [one.training.learning_rate for one in tried]
    assert min(rates) < 5e-4 < 2e-2 < max(rates) < 1e-1
    assert len({identity(one) for one in tried}) == 20
    names = {one.model.parameterization.name for one in tried}
    assert names == {"exp", "direct"}
    assert {one.model.width for one in tried if one.model.parameterization.name == "exp"} == {5}
    assert {one.model.width for one in tried if one.model.parameterization.name == "direct"} >= {2, 6}


def test_a_search_is_waves_of_its_batch_trained_to_the_end_and_then_its_confirmation() -> None:
    search = searching(SchedulerConfig(name=ASHA, grace=100), trials=12, batch=4)
    made = waves(study(search, ConfirmConfig(seeds=10, top=2)), ())
    assert [wave.times for wave in made] == pytest.approx([3, 1])
    rows = [[one.config for pack in wave.packs for one in pack.trials] for wave in made]
    assert [len(found) for found in rows] == [8, 4]  # two cells
    assert {one.training.end for one in rows[0]} == {900}
    assert {one.training.seeds for one in rows[1]} == {10}


STUDY = """
task: {name: linear_functional, kernel: exponential, rate: 0.5, horizon: 60}
model: {name: diagonal_rnn, parameterization: exp}
training: {seeds: 3, steps: 300, batch_size: 128, validation_size: 256}
perturbation: {radii: {count: 16}}
grid: {model.width: [2, 3, 4, 8], task.horizon: [30, 60, 90]}
"""


@pytest.mark.drill
@pytest.mark.long
def test_the_measured_hours_are_the_hours(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(STUDY)
    sweep = load_study(str(tmp_path / "small.yaml"), (), ROOT)
    plan = make_plan(sweep, identified(sweep), ())
    assert len(plan.trials) == 12
    made = estimate(waves(sweep, plan.packs), sweep.resources, ROOT, seconds=240.0)
    assert (made.measured, made.why_not, made.factor) == (1.0, (), MEASURED_FACTOR)
    began = time.process_time()  # of the processor: whatever else this machine does is not counted
    summary = run(plan, workspace=ROOT, results=tmp_path / "results", launch=Launch(inline=True))
    took = time.process_time() - began
    assert len(summary.finished) == 12
    assert took / MEASURED_FACTOR < made.work < took * MEASURED_FACTOR, (made.work, took)


@pytest.mark.long
@pytest.mark.drill
def test_a_probe_ends_in_time_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = f"memsweep-test-{os.getpid()}-{time.time_ns()}"
    resource_tracker.ensure_running()  # Python's own process for spawned ones: it stays, and must not carry the token
    monkeypatch.setenv("MEMSWEEP_TEST_TOKEN", token)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    heavy = trial(
        task={"horizon": 3000}, model={"width": 256, "activation": "tanh"}, training={"seeds": 64, "steps": 10_000}
    )
    with no_hang():
        found = benchmark({"small": [small()], "heavy": [heavy]}, ON_CPU, 1, ROOT, 40.0)
    assert set(found.measured) >= {"small"}
    assert found.starting > 0
    assert list(tmp_path.iterdir()) == []
    assert not carriers_of(token)


@pytest.mark.drill
def test_plan_says_what_a_study_will_take_and_writes_only_what_it_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(STUDY)
    place = ("--results", str(tmp_path / "results"), "--workspace", str(ROOT))
    assert main(["plan", str(tmp_path / "small.yaml"), *place]) == 0
    told = capfd.readouterr().out
    for words in (
        "expected in this process",
        "measured on 3 of 3 kinds",
        "memory: ",
        "disk: ",
        "KiB of them weights (measured",
    ):
        assert words in told
    assert "of work" not in told  # one estimate in one output
    assert [path.name for path in (tmp_path / "results").rglob("*")] == [MEASUREMENTS]
    assert main(["plan", str(tmp_path / "small.yaml"), *place, "--no-probe"]) == 0
    told = capfd.readouterr().out
    assert "measured on 3 of 3 kinds of programs; all by earlier plans" in told
    assert (
        main(["plan", str(tmp_path / "small.yaml"), *place[:1], str(tmp_path / "new"), *place[2:], "--no-probe"]) == 0
    )
    told = capfd.readouterr().out
    assert "nothing was measured (--no-probe)" in told
    assert "memory: not measured" in told
