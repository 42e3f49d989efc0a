"""Measurements of programs that a plan leaves in the results folder for the plans after it.

A measurement holds for the same code, versions and data, on the same class of processor with as many threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.sweep.estimate.benchmark import Benchmark, Measured
from memsweep.sweep.planning.identity import Arithmetic, identity
from memsweep.sweep.store.filesystem import STAGING, Location
from memsweep.sweep.store.layout import MEASUREMENTS
from memsweep.sweep.worker.provenance import processor

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_MOST = 1000  # the newest ones stay


@dataclass
class KeptMeasurements:
    """The measurements of a results folder. A file that cannot be read holds none, and one that cannot be written is
    left: a plan needs neither.

    Attributes:
        results: the folder.
        starting: seconds until a measuring process was ready, when one was last started; 0 where none was.
    """

    results: Location
    starting: float = 0.0
    _all: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of_folder(cls, results: Location) -> KeptMeasurements:
        """Reads the measurements that are stored there."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            stored = json.loads(results.read(MEASUREMENTS))
            return cls(results, float(stored["starting"]), dict(stored["programs"].items()))
        return cls(results)

    def of(
        self, programs: Mapping[str, Sequence[TrialConfig]], arithmetic: Arithmetic, threads: int, keep: str
    ) -> dict[str, Measured]:
        """Those of these programs: name -> cost."""
        found = {}
        for name, trials in programs.items() if self._all else ():
            if (stored := self._all.get(_key(trials, arithmetic, threads, keep))) is not None:
                with contextlib.suppress(TypeError, ValueError):  # of another version, or edited
                    found[name] = _checked(Measured(**stored))
        return found

    def add(
        self,
        programs: Mapping[str, Sequence[TrialConfig]],
        made: Benchmark,
        arithmetic: Arithmetic,
        threads: int,
        keep: str,
    ) -> None:
        """Stores new measurements beside the others."""
        for name, measured in made.measured.items():
            key = _key(programs[name], arithmetic, threads, keep)
            self._all.pop(key, None)
            self._all[key] = asdict(measured)
        self.starting = made.starting or self.starting
        newest = dict([*self._all.items()][-_MOST:])
        text = json.dumps({"starting": self.starting, "programs": newest}, indent=1)
        with contextlib.suppress(OSError, ValueError):  # what a bucket refuses
            self.results.write(MEASUREMENTS, text.encode(), wait=False)
            if self.results.local is not None:
                (self.results.local / STAGING).rmdir()  # a plan leaves its measurements alone; studies have their own


def _checked(measured: Measured) -> Measured:
    """The measurement, where each of its numbers is one.

    Raises:
        TypeError: something else stands for a number.
        ValueError: a number is negative or not finite.
    """
    for name, value in asdict(measured).items():
        if not (name == "evaluation" and value is None) and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite number from 0, got {value}")
    return measured


def _key(trials: Sequence[TrialConfig], arithmetic: Arithmetic, threads: int, keep: str) -> str:
    about = [[identity(trial, arithmetic) for trial in trials], threads, keep, processor()]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
