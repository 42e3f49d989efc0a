"""A run whose folder goes while it computes says so: it neither calls the results kept nor the study unknown."""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import trial
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.errors import BlockedError
from memsweep.studies.locations import Place
from memsweep.studies.run import Run
from memsweep.studies.trials import Request
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.store import lease
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def move(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def forget_root(folder: Path) -> None:
    shutil.rmtree(folder.parent)


def forget_lease(folder: Path) -> None:
    """As another driver does that takes the sweep over."""
    shutil.rmtree(folder / "lease")


def run_and(act: Callable[[Path], object], results: Path, monkeypatch: pytest.MonkeyPatch, said: io.StringIO) -> None:
    """Runs two trials, and acts on the study's folder when the second has its result."""
    rows = tuple(trial(training={"first_seed": 1, "seeds": 1, "steps": steps}) for steps in (20, 21))
    sweep = SweepConfig(name="mine", rows=rows, grid={}, resources=ResourcesConfig())
    commit, done = Store.commit, list[str]()

    def committed(store: Store, identity: str, files: dict[str, bytes]) -> bool:
        stored = commit(store, identity, files)
        done.append(identity)
        if len(done) == 2:
            act(results / "mine")
        return stored

    monkeypatch.setattr(Store, "commit", committed)
    place = Place(Location.at(results), launch=Launch(inline=True))
    Run(Request(sweep, identified(sweep)), place, said).execute()


@pytest.mark.parametrize("act", [shutil.rmtree, empty, move, forget_root])
def test_a_folder_that_goes_is_said_to_be_gone(
    act: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end at the latest; here no heartbeat comes before it."""
    monkeypatch.setattr("memsweep.sweep.store.lease._send_heartbeats", lambda *_: None)
    with pytest.raises(BlockedError, match=r"mine was deleted, moved or emptied .* results of 2 trials\. Put it"):
        run_and(act, tmp_path / "results", monkeypatch, io.StringIO())


@pytest.mark.parametrize(
    ("act", "told"), [(shutil.rmtree, "was deleted, moved or emptied"), (forget_lease, "is stored")]
)
def test_the_next_heartbeat_stops_a_run_whose_folder_or_lease_is_gone(
    act: Callable[[Path], object], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, said, held = lease._send_heartbeats, io.StringIO(), list[lease.Lease]()

    def quickly(own: lease.Lease, ended: threading.Event, on_loss: Callable[[], None], beat: float) -> None:
        held.append(own)
        send(own, ended, on_loss, beat / 50)

    def and_wait(folder: Path) -> None:
        with held[0]._writing:  # a heartbeat at this moment would write the lease again
            act(folder)
        time.sleep(60.0)

    monkeypatch.setattr(lease, "_send_heartbeats", quickly)

    with pytest.raises(BlockedError, match=told):
        run_and(and_wait, tmp_path / "results", monkeypatch, said)
    assert "stopping: the lease of this run is no longer in" in said.getvalue()
    assert "finished is kept" not in said.getvalue()
