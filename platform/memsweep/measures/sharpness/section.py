"""What a report says of the sharpness: its curves over the training, beside the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import largest
from memsweep.report.values.chart import Chart, chart, over_seeds, size_words
from memsweep.report.values.section import Place, Section
from memsweep.report.values.table import PAGE

_WORDS = (
    "The learning rate that was used, and the largest one that the optimizer would bear at the weights of that step if "
    "the loss were a quadratic: an upper bound, because the largest eigenvalue of the Hessian is found from below, on "
    "one batch, without penalties. Training beyond it is not lost; it leaves such points for flatter ones. Medians "
    "over seeds, bands over all."
)


def section(contents: Contents) -> Section:
    """The curves of each condition at its largest size."""
    return Section("Sharpness", _WORDS, charts=[*_charts(contents)], places={PAGE: Place.TRAINING})


def _charts(contents: Contents) -> Iterator[Chart]:
    for row in largest(contents.trained):
        part = contents.measured.of("sharpness", row.identities)
        if not part.empty:
            title = ", ".join(
                [*contents.labels.names(row.condition), *size_words(row.width, row.horizon, several=True)]
            )
            bounded = part[part["ceiling"].notna() & (part["ceiling"] < math.inf)]
            rates = {
                "at most, by the curvature": over_seeds(bounded.groupby("step")["ceiling"]),
                "used": [point[:2] for point in over_seeds(part.groupby("step")["learning_rate"]) if point[1] > 0],
            }
            yield chart(title, "training step", "learning rate", "y", rates)
            sharpness = {"sharpness": over_seeds(part[part["sharpness"] > 0].groupby("step")["sharpness"])}
            yield chart(title, "training step", "largest curvature of the loss", "y", sharpness)
