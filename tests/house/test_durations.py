"""A duration that stands in several places is one: that of docs/speed.md."""

from __future__ import annotations

import re

from paths import ROOT

_WORDS = {1: "a minute", 2: "two minutes", 3: "three minutes", 4: "four minutes", 5: "five minutes"}
_PLACES = {
    "README.md": r"runs the study `quickstart` \(600 models, ([\w ]+) on two cores\)",
    "search_spaces/start/quickstart.yaml": r"memsweep sweep quickstart: 120 trials of 5 seeds, ([\w ]+) on two cores",
}


def test_quickstart_takes_what_was_measured() -> None:
    speed = (ROOT / "docs" / "speed.md").read_text()
    (row,) = re.findall(r"^\| `quickstart` \| (\d+) \| ([\d,]+) \|", speed, re.MULTILINE)
    trials, per_hour_and_core = (int(number.replace(",", "")) for number in row)
    measured = _WORDS[round(60 * trials / (2 * per_hour_and_core))]
    for file, pattern in _PLACES.items():
        (said,) = re.findall(pattern, (ROOT / file).read_text())
        assert said == measured, file
