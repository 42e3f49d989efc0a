"""Packs that share a GPU: by the memory that was measured, with a margin, and never more than the GPU has."""

from __future__ import annotations

import dataclasses
import json
import logging

import pytest
import torch

from engine import trial
from memsweep import registry
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.errors import BlockedError, ConfigError
from memsweep.models.module.in_memory import drop, held, put
from memsweep.sweep.driver.node_memory import footprint, with_node_memory
from memsweep.sweep.planning.plan import identified, make_packs
from memsweep.sweep.planning.resources import on_card
from memsweep.sweep.ray.session import ray_session
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.worker import gpu_memory
from memsweep.sweep.worker.gpu_memory import (
    MARGIN,
    PROGRAMS,
    STEPS,
    Need,
    fitted,
    hold_to,
    one_process,
    probe,
    programs,
)
from memsweep.trial import RunOptions, program, run_pack
from paths import ROOT

GIB = 2**30


def packs_of(*configs):
    study = SweepConfig(name="s", rows=configs, grid={}, resources=ResourcesConfig())
    return make_packs(identified(study))


@pytest.mark.parametrize(
    ("need", "asked", "at_once"),
    [
        (Need(1 * GIB, GIB // 2, 80 * GIB), 0.25, 4),  # what was asked is enough
        (Need(20 * GIB, GIB // 2, 80 * GIB), 0.25, 3),  # 25.5 GiB with the margin
        (Need(20 * GIB, GIB // 2, 80 * GIB), 0.1, 3),
        (Need(40 * GIB, GIB // 2, 80 * GIB), 0.25, 1),
        (Need(1, 0, 80 * GIB), 0.9, 1),  # nobody gets less than he asked for
    ],
)
def test_a_share_is_what_was_asked_or_more(need: Need, asked: float, at_once: int) -> None:
    share = need.share(asked)
    assert share.card >= asked
    assert on_card(share.card) == at_once


@pytest.mark.parametrize("tensors", [GIB // 100, 3 * GIB, 7 * GIB, 20 * GIB, 60 * GIB])
@pytest.mark.parametrize("asked", [0.01, 0.1, 0.3, 0.5, 0.99])
def test_all_that_share_a_card_fit_on_it_with_their_margin(tensors: int, asked: float) -> None:
    need = Need(tensors, GIB // 2, 80 * GIB)
    share = need.share(asked)
    assert share.tensors >= MARGIN * tensors
    assert on_card(share.card) * (share.tensors + need.process) <= need.card


def test_a_pack_larger_than_the_card_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs 88\.0 GiB .* has 80\.0 GiB: lower training\.batch_size"):
        Need(70 * GIB, GIB // 2, 80 * GIB).share(0.25)


def test_a_probe_runs_the_largest_programs_at_their_own_shapes() -> None:
    configs = [trial(task={"horizon": 8 * n}, training={"steps": 4000}) for n in range(1, PROGRAMS + 3)]
    packs = packs_of(*configs, trial(task={"horizon": 8}, model={"width": 5}, training={"steps": 4000}))
    found = [[trial_from_dict(data) for data in group] for group in programs(packs)]
    assert [group[0].task.horizon for group in found] == [8 * n for n in range(PROGRAMS + 2, 2, -1)]
    for group in found:
        assert len({program(config) for config in group}) == 1
        assert {config.training.steps for config in group} == {STEPS}
        assert group[0].training.batch_size == configs[0].training.batch_size


def test_trials_that_run_together_are_probed_together() -> None:
    together = [trial(model={"width": width}) for width in (2, 3, 5)]
    assert [len(group) for group in programs(packs_of(*together))] == [3]


def test_a_probe_is_sent_nothing_that_only_the_workspace_knows() -> None:
    """Its process reads its arguments before it imports the workspace's tasks."""
    assert json.loads(json.dumps(programs(packs_of(trial())))) == programs(packs_of(trial()))


@pytest.mark.more
def test_what_a_probe_runs_is_a_trial() -> None:
    (group,) = programs(packs_of(trial()))
    (result,) = run_pack([trial_from_dict(data) for data in group])
    assert not result.tables["curves"].empty


@pytest.mark.parametrize("asked", [{}, {"gpus": 1.0}, {"workers": 2, "gpus_per_worker": 1.0}])
def test_whole_cards_are_not_probed(asked) -> None:
    resources = ResourcesConfig(**asked)
    assert fitted(resources, packs_of(trial()), ROOT) == (resources, 0)


def test_a_measurement_asks_for_a_node_on_which_such_packs_run() -> None:
    asked = ResourcesConfig(gpus=0.25, cpus=2, accelerator="H100", labels=("zone=a",), node_memory=3)
    got = one_process(asked, card=1.0)
    assert (got["num_cpus"], got["num_gpus"], got["resources"]) == (2, 1.0, {"accelerator_type:H100": 0.001})
    assert (got["label_selector"], one_process(asked)["num_gpus"]) == ({"zone": "a"}, 0.25)
    assert one_process(ResourcesConfig())["label_selector"] is None


def test_the_probe_of_memory_knows_the_classes_that_no_file_holds() -> None:
    target = put("Net@probed", torch.nn.Identity)
    code = held([target])
    drop(target)
    footprint([], ROOT, "cpu", 1, code)
    assert held([target]) == code
    drop(target)


def test_the_probe_of_memory_refuses_a_node_that_cannot_store_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver may have variables that the nodes lack: its own look at the bucket tells nothing of theirs."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(BlockedError, match=r"the node \S+ of the cluster cannot store results: .* does not answer"):
        footprint([], ROOT, "cpu", 1, results=Location.at("s3://studies/results"))


def in_memory() -> str:
    """The target of a class that goes to other processes by value, as one of a notebook's cell."""

    class Net(torch.nn.Module):
        def __init__(self, inputs: int = 1, outputs: int = 1, width: int = 2) -> None:
            super().__init__()
            self.rnn, self.out = torch.nn.RNN(inputs, width, batch_first=True), torch.nn.Linear(width, outputs)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.out(self.rnn(inputs)[0])

    return put("Net@measured", Net)


@pytest.mark.more
def test_what_is_measured_on_ray_and_for_how_long_it_waits_for_a_card(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = registry.get(registry.MODEL, "module").Config(factory=in_memory(), width=2)
    small = dataclasses.replace(trial(task={"horizon": 4}, training={"seeds": 1}), model=model)
    packs, shared = packs_of(small), ResourcesConfig(gpus=0.25)
    with ray_session(None), caplog.at_level(logging.INFO, "memsweep"):
        assert 0.05 < (with_node_memory(ResourcesConfig(), packs, ROOT).node_memory or 0.0) < 8.0
        monkeypatch.setattr(gpu_memory, "PATIENCE", 1.0)  # this Ray has no card
        assert fitted(shared, packs, ROOT) == (shared, 0)
        assert with_node_memory(shared, packs, ROOT) == shared
    assert "no node measured within 1 s what a pack takes of a card: 4 share it as asked" in caplog.text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_pack_runs_within_what_the_probe_measured() -> None:
    config = trial(model={"width": 16, "activation": "tanh"}, training={"steps": 200})
    need = probe(programs(packs_of(config)), ROOT)
    hold_to(need.share(0.01).tensors)
    try:
        run_pack([config], RunOptions(device="cuda"))
        assert torch.cuda.max_memory_reserved() <= MARGIN * need.tensors
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(need.card // 2, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
