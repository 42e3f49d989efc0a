"""The course of a run as metrics of the session's Ray, for Prometheus: its nodes export them beside Ray's own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from memsweep.sweep.driver.progress import Snapshot

GAUGES = {
    "memsweep_packs_running": "packs that workers compute now",
    "memsweep_packs_waiting": "packs that no worker has yet",
    "memsweep_slots": "packs that had room at once, at most so far",
    "memsweep_trials_finished": "trials with a result, those of earlier runs included",
    "memsweep_trials_failed": "trials that failed for good in this run",
    "memsweep_trials_total": "trials of the study, as far as they are known",
    "memsweep_mlflow_waiting": "results and reports that MLflow does not have yet",
}
"""Name of each gauge and what it counts; each has the label ``study``. Ray puts ``ray_`` before the names."""
_READABLE = "".join(chr(code) for code in range(ord(" "), 0x7F) if chr(code) != "%")


class Gauges:
    """The gauges of one study.

    Args:
        study: its name. The label has it percent-encoded outside of ASCII, which is all that Ray takes.
    """

    def __init__(self, study: str) -> None:
        from ray.util.metrics import Gauge

        self._gauges = {name: Gauge(name, words, ("study",)) for name, words in GAUGES.items()}
        for gauge in self._gauges.values():
            gauge.set_default_tags({"study": quote(study, safe=_READABLE, errors="surrogatepass")})

    def show(self, snapshot: Snapshot, mlflow_waiting: int) -> None:
        """Sets the gauges to the state of a run.

        Args:
            snapshot: the state.
            mlflow_waiting: what MLflow does not have yet.
        """
        values = {
            "memsweep_packs_running": snapshot.running,
            "memsweep_packs_waiting": snapshot.waiting,
            "memsweep_slots": snapshot.slots,
            "memsweep_trials_finished": snapshot.finished + snapshot.reused,
            "memsweep_trials_failed": snapshot.failed,
            "memsweep_trials_total": snapshot.total,
            "memsweep_mlflow_waiting": mlflow_waiting,
        }
        for name, value in values.items():
            self._gauges[name].set(value)
