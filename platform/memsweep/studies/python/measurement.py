"""The results of a measurement of one model in memory, for Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memsweep.report.naming.numbers import figure, percent
from memsweep.report.rows.verdicts import MOVES, REFERENCES
from memsweep.studies.python.results import Results


class Measurement(Results):
    """The numbers of one model in memory; made by ``memsweep.measure``. Its tables are those of ``Results``.

    Printed, it is the error and the radii: how far the weights of each ball may move before the error changes by each
    threshold, a share of the zero predictor's loss or of another reference. One model has no slope, so that nothing is
    called stable.
    """

    def _heading(self) -> str:
        return f"{self.name}, measured as it is"

    def _text(self) -> str:
        return "\n".join(line for identity in self.replicas["identity"] for line in self._lines(identity))

    def _lines(self, identity: str) -> Iterator[str]:
        """The numbers of one combination of settings."""
        varied = [name for name in self.trials.columns if "." in name and self.trials[name].nunique() > 1]
        row = self.trials.set_index("identity").loc[identity]
        yield from [", ".join(f"{name}={row[name]}" for name in varied)] if varied else []
        replica = self.replicas.query("identity == @identity").iloc[0]
        error, zero = float(replica["error"]), float(replica["zero_loss"])
        yield f"error {figure(error)}: {percent(error / zero)} of the zero predictor's, {figure(zero)}"
        radii = self.radii.query("identity == @identity")
        yield from (f"radii {REFERENCES[name]}" for name in radii["reading"].unique() if name in REFERENCES)
        for ball, own in radii.groupby("ball", sort=False):
            found = ", ".join(f"{_radius(each)} at {percent(each['threshold'])}" for _, each in own.iterrows())
            norm = self.curves.query("identity == @identity and ball == @ball")["norm"].iloc[0]
            yield f"radius when {MOVES[str(ball)]} (ball {ball}, norm {norm}): {found}"


def _radius(row: Any) -> str:
    """The radius at a threshold; a bound where no radius that was tried reaches it."""
    return f"{row['censored']} {figure(row['radius'])}".strip()
