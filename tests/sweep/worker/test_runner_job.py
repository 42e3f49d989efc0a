"""A pack in a worker: results are stored once, faults come back as data, memory is told from other faults."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import trial
from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.api import Batch, Task
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, PackReport, execute_pack, failure_of, is_memory
from memsweep.trial import RunOptions, TrialResult, run_pack
from paths import ROOT
from runner_work import planned, tiny


def job_for(folder: Path, *configs: object) -> PackJob:
    (pack,) = planned([configs]).packs  # type: ignore[list-item]
    members = tuple((trial.identity, to_dict(trial.config)) for trial in pack.trials)
    return PackJob(pack.identity, "demo", str(folder), str(ROOT), members, revision="abc-dirty")


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (TRAIN, "inputs with 1 of 160 numbers that are not finite in batch 1 of the stream 'train'"),
        (VALIDATION, "in batch 0 of the stream 'validation'"),
        (TEST, "in batch 0 of the stream 'test'"),
        ("", ""),
    ],
)
def test_a_fault_in_the_data_is_no_divergence_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str, words: str
) -> None:
    registry.discover(ROOT)
    kind = registry.get(registry.TASK, "mackey_glass")
    config = replace(
        trial(training={"seeds": 1, "steps": 4, "batch_size": 4, "validation_size": 4, "validate_every": 2}),
        task=kind.Config(horizon=40),
    )
    draw = kind.draw

    def faulty(self: Task, given: Stream, index: int, size: int) -> Batch:
        batch = draw(self, given, index, size)
        if given.name == stream and index == (stream == TRAIN):
            batch.inputs[-1, -1] = math.nan
        return batch

    job = job_for(tmp_path, config)
    monkeypatch.setattr(kind, "draw", faulty)
    monkeypatch.setattr("memsweep.sweep.worker.execute.identity", lambda config, arithmetic: job.members[0][0])
    report = execute_pack(job, lambda *words: None)
    name = job.members[0][0]
    if not stream:
        assert report.finished == {name: "done"}
        return
    assert not report.finished
    assert report.culprits == (name,)
    failure = report.failed[name]
    assert failure["outcome"] == "failed"
    assert failure["error"].startswith("DataFaultError: the task 'mackey_glass' gave inputs with 1 of ")
    assert words in failure["error"]
    assert failure["error"].endswith("1 of 1 seeds have no finite loss. All must be finite: correct its draw")


@pytest.mark.more
def test_results_are_stored_with_where_they_come_from(tmp_path: Path) -> None:
    job = job_for(tmp_path, tiny(0), tiny(1))
    told: list[tuple[float, str]] = []
    report = execute_pack(job, lambda *words: told.append(words))
    fractions = [fraction for fraction, _ in told]
    names = [name for name, _ in job.members]
    assert report == PackReport(finished=dict.fromkeys(names, "done"))
    assert fractions[-1] == 1.0
    assert fractions == sorted(fractions)
    steps = job.members[0][1]["training"]["steps"]
    every = job.members[0][1]["training"]["validate_every"]
    doing = [f"step {done:,} of {steps:,}" for done in range(every, steps, every)]
    assert [words for _, words in told] == [*doing, *["measuring"] * (len(told) - len(doing))]
    store = Store(tmp_path)
    for name, data in job.members:
        record = store.record(name)
        assert record["config"] == json.loads(json.dumps(data))
        origin = record["provenance"]
        # the two widths are alike: one program, of which each record names the whole by one hash
        assert (origin["pack"], origin["members"]) == (job.pack, 2)
        assert origin["code_revision"] == "abc-dirty"
        assert origin["versions"]["torch"] == importlib.metadata.version("torch")
        assert origin["device"].startswith("cpu (")
        assert set(origin["phases"]) == {"data", "training", "perturbation", "tables"}
        assert 0 < sum(origin["phases"].values()) == pytest.approx(origin["seconds"])
        assert set(store.tables(name)["curves"]["seed"]) == {data["training"]["first_seed"]}
    assert not list((tmp_path / "checkpoints").glob("*.pt"))
    assert set(report.seconds) == {"starting", *origin["phases"], "storing"}
    assert sum(report.seconds.values()) >= origin["seconds"]


def test_a_training_that_ends_early_is_told_before_its_measurement_ends(tmp_path: Path) -> None:
    """Its last report of a step would stand, for minutes perhaps, while its weights are moved."""
    early = trial(training={"seeds": 1, "steps": 5000, "validate_every": 5, "stop_below": 1e9})
    told: list[tuple[float, str]] = []
    execute_pack(job_for(tmp_path, early), lambda *words: told.append(words))
    before = [words for fraction, words in told if fraction < 1.0]
    assert before == ["step 5 of 5,000", "measuring"]


@pytest.mark.more
def test_a_member_with_a_result_is_not_computed_again(tmp_path: Path) -> None:
    execute_pack(job_for(tmp_path, tiny(0)), lambda *_: None)
    store = Store(tmp_path)
    before = {name: store.record(name) for name in store.identities()}
    report = execute_pack(job_for(tmp_path, tiny(0), tiny(1)), lambda *_: None)
    assert len(report.finished) == 2
    assert all(store.record(name) == record for name, record in before.items())


def test_other_code_in_a_worker_is_refused_and_the_others_of_the_pack_run(tmp_path: Path) -> None:
    job = job_for(tmp_path, tiny(0), tiny(1))
    (name, data), other = job.members
    report = execute_pack(replace(job, members=(("0" * 32, data), other)), lambda *_: None)
    assert list(report.finished) == [other[0]]
    assert report.culprits == ("0" * 32,)
    assert "different code" in report.failed["0" * 32]["error"]
    assert name in report.failed["0" * 32]["error"]


def test_a_task_that_raises_or_exits_is_a_failure_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "runner_faulty.py").write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass
            from memsweep.config.core.fields import setting
            from memsweep.data.api import Task
            from memsweep.registry import register_task

            @register_task("runner_faulty")
            class Faulty(Task):
                horizon = draw = loss = chance = oracle = None
                @dataclass(frozen=True, kw_only=True)
                class Config:
                    exits: bool = setting(False, "leave by sys.exit")
                def __init__(self, config):
                    raise SystemExit(3) if config.exits else ZeroDivisionError("mind the kernel")
            """
        )
    )
    from memsweep import registry

    registry.discover(tmp_path)
    for exits, words in ((False, "ZeroDivisionError: mind the kernel"), (True, "SystemExit: 3")):
        task = registry.get(registry.TASK, "runner_faulty").Config(exits=exits)
        job = job_for(tmp_path / "results", replace(tiny(0), task=task))
        report = execute_pack(replace(job, workspace=str(tmp_path)), lambda *_: None)
        (failure,) = report.failed.values()
        assert (failure["outcome"], failure["error"]) == ("failed", words)
        assert "runner_faulty.py" in failure["traceback"]
        assert report.culprits == tuple(report.failed)  # it had its program for itself
    assert not Store(tmp_path / "results").identities()


@pytest.mark.more
def test_a_program_that_raises_costs_the_other_programs_of_its_pack_nothing(tmp_path: Path) -> None:
    """Programs share a pack for Ray's sake only: a fault, and the numbers, stay where they belong."""
    alone = {name: dict(data) for name, data in job_for(tmp_path / "a", tiny(0), tiny(1)).members}
    others = [replace(tiny(seed), task=replace(tiny(seed).task, horizon=9)) for seed in (2, 3)]
    job = job_for(tmp_path / "b", tiny(0), others[0], tiny(1), others[1])

    def run(configs: list[TrialConfig], options: RunOptions) -> list[TrialResult]:
        if configs[0].task.horizon == 9:
            raise ZeroDivisionError("mind the horizon")
        return run_pack(configs, options)

    fractions: list[float] = []
    report = execute_pack(job, lambda fraction, doing: fractions.append(fraction), run)
    assert set(report.finished) == set(alone)
    assert set(report.failed) == {job.members[1][0], job.members[3][0]}
    assert report.culprits == ()  # two that failed together: each is tried alone
    assert fractions == sorted(fractions)
    execute_pack(job_for(tmp_path / "a", tiny(0), tiny(1)), lambda *_: None)
    for name in alone:
        ours, theirs = Store(tmp_path / "b").tables(name), Store(tmp_path / "a").tables(name)
        assert all(ours[table].equals(theirs[table]) for table in ours)


def test_a_task_file_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "runner_broken.py").write_text("import a_module_that_is_not_there\n")
    job = job_for(tmp_path / "results", tiny(0))
    ((name, data),) = job.members
    missing = {**data, "task": {**data["task"], "name": "only_in_the_broken_file"}}
    report = execute_pack(replace(job, workspace=str(tmp_path), members=((name, missing),)), lambda *_: None)
    assert "only_in_the_broken_file" in report.failed[name]["error"]
    assert "a_module_that_is_not_there" in report.failed[name]["error"]


def test_lack_of_memory_is_told_from_other_faults() -> None:
    with pytest.raises(RuntimeError) as cpu:
        torch.empty(2**60)  # torch's own CPU allocator refuses
    assert is_memory(cpu.value)
    assert is_memory(MemoryError())
    assert is_memory(torch.cuda.OutOfMemoryError("CUDA out of memory"))
    assert not is_memory(RuntimeError("shapes do not match"))
    assert failure_of(MemoryError("x"))["outcome"] == "out_of_memory"


def test_a_node_that_lacks_the_code_of_a_trial_is_named(tmp_path: Path) -> None:
    """The command could make the trial: here is what its author must not mend."""
    lacking = trial(training={"seeds": 1, "steps": 5})
    job = job_for(tmp_path, lacking)
    ((name, data),) = job.members
    job = replace(job, members=((name, data | {"task": data["task"] | {"name": "only_elsewhere"}}),))
    for inline in (False, True):
        (failure,) = execute_pack(replace(job, inline=inline), lambda *_: None).failed.values()
        assert (f"the node {platform.node()} could not" in failure["error"]) is not inline
        assert ("memsweep submit" in failure["error"]) is not inline
