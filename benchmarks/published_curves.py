"""Our perturbation-error curves, by the published protocol, beside those that the Curse-of-memory code published.

    memsweep sweep published_curves
    memsweep sweep published_curves_rest
    python benchmarks/published_curves.py results/published_curves results/published_curves_rest

Prints a row per published curve and draws both to benchmarks/out/published_curves.png. ``--table FILE`` writes the rows
as CSV: of the curves that were run these, of the others what the file had (docs/seeds.md is made of it). A published
curve is one seed's. If that seed is one of the same kind as ours, its log error lies, 95 times of 100, inside Student's
interval for one more seed: mean +- t s sqrt(1 + 1/n) over our n seeds. This allows for the spread on both sides. Beside
it stands whether the published error is within a factor of 5 of our median. Points where either side is infinite are
left out.

benchmarks/published/curse_of_memory_curves.csv holds the published figures, 20 sets of curves: read from the
repository's own plots and logs (see its columns source and run). Targets are exp e^-t, pol (1 + 0.1 t)^-1.1, T = 100,
and of Filter a random transformer.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from memsweep.report.read.study import load_study
from memsweep.stability.verdict.radius import of_grid

HERE = Path(__file__).parent
PUBLISHED = HERE / "published" / "curse_of_memory_curves.csv"
FACTOR = 5.0
COVERED = 0.95
SET = ["task", "activation", "model", "rho"]
"""The columns that tell a set of published curves; it has a curve for each width."""
KERNELS = {"exponential": "exp", "polynomial": "pol"}
MODELS = {
    ("diagonal_rnn", "relu"): "diagonalrnn",
    ("diagonal_rnn", "lru"): "lru",
    ("dense_rnn", "relu"): "rnn",
    ("dense_rnn", "softplus"): "softplusrnn",
    ("ssm", "relu"): "ssm",
    ("ssm", "softplus"): "softplusssm",
}
"""Our model and its parameterization -> the published name."""
S4 = "s4"
"""The published name of our stable_ssm. Its name of the activation is that of the layer after the GELU."""


def named_as_published(configs: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Identities of trials, with the columns of ``SET`` as the publication has them.

    Args:
        configs: identity -> whole config of a trial, as a record has it.
    """
    rows = [(identity, *_as_published(config["task"], config["model"])) for identity, config in configs.items()]
    return pd.DataFrame(rows, columns=["identity", *SET])


def _as_published(task: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[str, str, str, str]:
    parameterization = model.get("parameterization") or {}
    name = S4 if model["name"] == "stable_ssm" else MODELS.get((model["name"], parameterization.get("name", "")), "")
    activation = "linear" if name == S4 else model.get("activation", "linear")
    if task["name"] == "filter":
        return "Filter", activation, name, "transformer"
    return "LF", activation, name, KERNELS.get(task.get("kernel", ""), "")


def compared(published: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """One row per published point that is finite on both sides: published error, our median and range.

    Args:
        published: columns of ``SET``, width, beta, error.
        ours: columns of ``SET``, width, radius, error; one error per seed.
    """
    seeds = _seeds(ours)
    rows = []
    for point in published.itertuples():
        key = (*(getattr(point, name) for name in SET), point.width)
        if key not in seeds.index.droplevel("radius"):
            continue
        curve = seeds.loc[key]
        nearest = min(curve.index, key=lambda radius, wanted=point.beta: abs(radius - wanted))
        if abs(nearest - point.beta) > 1e-3 * max(point.beta, 1e-6):
            continue
        found = curve.loc[nearest]
        if np.isfinite([point.error, found["max"]]).all():
            rows.append([*key, point.beta, point.error, *found])
    names = [*SET, "width", "radius", "published", "median", "low", "high", "seeds", "from", "to"]
    return pd.DataFrame(rows, columns=names)


def _seeds(ours: pd.DataFrame) -> pd.DataFrame:
    """Per curve and radius: median, range and number of seeds, and where one more seed would lie."""
    names = [*SET, "width", "radius"]
    seeds = ours.groupby(names)["error"].agg(["median", "min", "max", "size"])
    with np.errstate(divide="ignore", invalid="ignore"):  # infinite errors are left out afterwards
        logs = np.log(ours["error"]).groupby([ours[name] for name in names])
        reach = logs.std() * np.sqrt(1.0 + 1.0 / seeds["size"])
        reach *= scipy.stats.t.ppf(0.5 + COVERED / 2.0, seeds["size"] - 1)
        return seeds.assign(low=np.exp(logs.mean() - reach), high=np.exp(logs.mean() + reach))


def summary(points: pd.DataFrame) -> pd.DataFrame:
    """One row per curve: shares of the points that agree, and where the published one is farthest from our median."""
    points = points.assign(ratio=points["published"] / points["median"])
    near = points["ratio"].between(1 / FACTOR, FACTOR)
    inside = points["published"].between(points["from"], points["to"])
    points = points.assign(near=near, inside=inside, distance=np.abs(np.log(points["ratio"])))
    rows = []
    for key, curve in points.groupby([*SET, "width"]):
        worst, seeds = curve.loc[curve["distance"].idxmax()], int(curve["seeds"].max())
        rows.append(
            {
                **dict(zip([*SET, "width"], key, strict=True)),
                "seeds": seeds,
                "points": len(curve),
                "within 5": round(curve["near"].mean(), 2),
                "one more seed": round(curve["inside"].mean(), 2) if seeds > 1 else np.nan,
                "ratio at 0": float(f"{curve['ratio'].iloc[0]:.2g}"),
                "farthest": float(f"{worst['ratio']:.2g}"),
                "at": float(f"{worst['radius']:.3g}"),
            }
        )
    return pd.DataFrame(rows)


def write_table(rows: pd.DataFrame, path: Path) -> None:
    """Writes a row for each curve that was run; the file keeps its rows of other curves."""
    key = [*SET, "width"]
    kept = [pd.read_csv(path)] if path.exists() else []
    whole = pd.concat([*kept, rows]).drop_duplicates(key, keep="last").sort_values(key)
    whole.to_csv(path, index=False)


def draw(points: pd.DataFrame, path: Path) -> None:
    """Published curves as lines, ours as bands over the seeds with their median: a panel per model and kernel."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(points.groupby(SET))
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.4), sharey=True, squeeze=False)
    for axis, (key, part) in zip(axes[0], panels, strict=True):
        for index, (width, curve) in enumerate(part.groupby("width")):
            at = curve["radius"].clip(lower=7e-4)  # radius 0 at the left edge
            color = plt.cm.viridis(index / 4)
            axis.fill_between(at, curve["low"], curve["high"], color=color, alpha=0.15, linewidth=0)
            axis.plot(at, curve["median"], color=color, linestyle="--", linewidth=1.2)
            axis.plot(at, curve["published"], color=color, marker=".", label=f"width {width}")
        axis.set(xscale="log", yscale="log", xlabel="radius (leftmost: 0)", title=" ".join(key), ylim=(1e-5, 1e7))
        axis.legend(frameon=False, fontsize=8)
    axes[0][0].set_ylabel("perturbation error")
    figure.suptitle("dots: published (one seed); dashes and bands: ours (median and range over seeds)", fontsize=10)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)


def read(folder: Path) -> pd.DataFrame:
    """The errors of a study: columns of ``SET``, width, radius, error; one row for each seed and radius."""
    records = load_study(folder).records
    trials = named_as_published({identity: record["config"] for identity, record in records.items()})
    curves = pd.concat(pd.read_parquet(path) for path in sorted((folder / "curves").glob("*.parquet")))
    return of_grid(curves).merge(trials, on="identity")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="+", help="folders of the studies")
    parser.add_argument("--table", type=Path, help="CSV file for the rows")
    given = parser.parse_args()
    points = compared(pd.read_csv(PUBLISHED), pd.concat(map(read, given.studies)))
    rows = summary(points)
    print(rows.to_string(index=False))
    if given.table is not None:
        write_table(rows, given.table)
    near = (points["published"] / points["median"]).between(1 / FACTOR, FACTOR)
    print(f"\n{near.mean():.0%} of {len(points)} points are within a factor of {FACTOR:g} of our median")
    draw(points, HERE / "out" / "published_curves.png")
    print(f"figure: {HERE / 'out' / 'published_curves.png'}")


if __name__ == "__main__":
    main()
