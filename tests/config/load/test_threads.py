"""Studies are read in several threads of one process at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from memsweep.config.load.study import load_study
from paths import ROOT


def test_threads_read_their_studies_one_after_the_other() -> None:
    """Hydra has one state for the process: the second of two threads met that of the first."""

    def name(number: int) -> str:
        return load_study("quickstart", [f"name=t{number}"], ROOT).name

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(name, range(8))) == [f"t{number}" for number in range(8)]
