"""The course of a run as metrics of the session's Ray, for Prometheus: its nodes export them beside Ray's own."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

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

    def set(self, values: Mapping[str, float]) -> None:
        """Sets the named gauges."""
        for name, value in values.items():
            self._gauges[name].set(value)
