"""Our perturbation-error curves, by the published protocol, beside those that the Curse-of-memory code published.

    memsweep sweep published_curves
    python benchmarks/published_curves.py results/published_curves

Prints a row per published curve and draws both to benchmarks/out/published_curves.png. A published curve is one seed's.
If that seed is one of the same kind as ours, its log error lies, 95 times of 100, inside Student's interval for one
more seed: mean +- t s sqrt(1 + 1/n) over our n seeds. This allows for the spread on both sides. Beside it stands
whether the published error is within a factor of 5 of our median. Points where either side is infinite are left out.

A second table is of the models that have no published curve here: our errors at radius 0 and beyond.

benchmarks/published/curse_of_memory_curves.csv holds the published figures: read from the repository's own plots and
logs (see its columns source and run), linear activation, targets exp e^-t and pol (1 + 0.1 t)^-1.1, T = 100.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats

from memsweep.stability.verdict.radius import of_grid

HERE = Path(__file__).parent
FACTOR = 5.0
COVERED = 0.95
KERNELS = {"exp": "exponential", "pol": "polynomial"}
MODELS = {"diagonalrnn": "diagonal_rnn relu", "softplusrnn": "dense_rnn softplus"}
SHOWN = (0.0, 0.004, 0.016, 0.064, 0.256)
"""Radii of the table of the other models."""


def compared(published: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """One row per published point that is finite on both sides: published error, our median and range.

    Args:
        published: columns model, rho, width, beta, error.
        ours: columns model, kernel, width, radius, error; one error per seed.
    """
    seeds = _seeds(ours)
    rows = []
    for point in published.itertuples():
        key = (MODELS[point.model], KERNELS[point.rho], point.width)
        if key not in seeds.index.droplevel("radius"):
            continue
        curve = seeds.loc[key]
        nearest = min(curve.index, key=lambda radius, wanted=point.beta: abs(radius - wanted))
        if abs(nearest - point.beta) > 1e-3 * max(point.beta, 1e-6):
            continue
        found = curve.loc[nearest]
        if np.isfinite([point.error, found["max"]]).all():
            rows.append([*key, point.beta, point.error, *found])
    names = ["model", "kernel", "width", "radius", "published", "median", "low", "high", "seeds", "from", "to"]
    return pd.DataFrame(rows, columns=names)


def _seeds(ours: pd.DataFrame) -> pd.DataFrame:
    """Per model, kernel, width and radius: median, range and number of seeds, and where one more seed would lie."""
    errors = ours.groupby(["model", "kernel", "width", "radius"])["error"]
    seeds = errors.agg(["median", "min", "max", "size"])
    with np.errstate(divide="ignore", invalid="ignore"):  # infinite errors are left out afterwards
        logs = np.log(ours["error"]).groupby([ours[name] for name in ["model", "kernel", "width", "radius"]])
        reach = logs.std() * np.sqrt(1.0 + 1.0 / seeds["size"])
        reach *= scipy.stats.t.ppf(0.5 + COVERED / 2.0, seeds["size"] - 1)
        return seeds.assign(low=np.exp(logs.mean() - reach), high=np.exp(logs.mean() + reach))


def summary(points: pd.DataFrame) -> pd.DataFrame:
    """One row per curve: how many points agree, and where the published curve is farthest from our median."""
    points = points.assign(ratio=points["published"] / points["median"])
    near = points["ratio"].between(1 / FACTOR, FACTOR)
    inside = points["published"].between(points["from"], points["to"])
    points = points.assign(near=near, inside=inside, distance=np.abs(np.log(points["ratio"])))
    rows = []
    for (model, kernel, width), curve in points.groupby(["model", "kernel", "width"]):
        worst = curve.loc[curve["distance"].idxmax()]
        rows.append(
            {
                "model": model,
                "kernel": kernel,
                "width": width,
                "seeds": int(curve["seeds"].max()),
                "points": len(curve),
                "within a factor of 5 of the median": f"{curve['near'].mean():.0%}",
                "where one more seed would lie": f"{curve['inside'].mean():.0%}" if curve["seeds"].max() > 1 else "",
                "published/median at 0": f"{curve['ratio'].iloc[0]:.2f}",
                "farthest": f"{worst['ratio']:.2g} at {worst['radius']:.3g}",
            }
        )
    return pd.DataFrame(rows)


def others(ours: pd.DataFrame) -> pd.DataFrame:
    """Median [smallest, largest] over seeds at some radii, of the models without a published curve."""
    rows = []
    for (model, kernel, width), part in _seeds(ours[~ours["model"].isin(MODELS.values())]).groupby(level=[0, 1, 2]):
        curve = part.droplevel([0, 1, 2])
        row = {"model": model, "kernel": kernel, "width": width, "seeds": int(curve["size"].max())}
        for radius in SHOWN:
            found = curve.loc[min(curve.index, key=lambda each, wanted=radius: abs(each - wanted))]
            row[f"at {radius:g}"] = f"{found['median']:.2g} [{found['min']:.2g}, {found['max']:.2g}]"
        rows.append(row)
    return pd.DataFrame(rows)


def draw(points: pd.DataFrame, path: Path) -> None:
    """Published curves as lines, ours as bands over the seeds with their median: a panel per model and kernel."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(points.groupby(["model", "kernel"]))
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.4), sharey=True, squeeze=False)
    for axis, ((model, kernel), part) in zip(axes[0], panels, strict=True):
        for index, (width, curve) in enumerate(part.groupby("width")):
            at = curve["radius"].clip(lower=7e-4)  # radius 0 at the left edge
            color = plt.cm.viridis(index / 4)
            axis.fill_between(at, curve["low"], curve["high"], color=color, alpha=0.15, linewidth=0)
            axis.plot(at, curve["median"], color=color, linestyle="--", linewidth=1.2)
            axis.plot(at, curve["published"], color=color, marker=".", label=f"width {width}")
        axis.set(
            xscale="log", yscale="log", xlabel="radius (leftmost: 0)", title=f"{model}, {kernel}", ylim=(1e-5, 1e7)
        )
        axis.legend(frameon=False, fontsize=8)
    axes[0][0].set_ylabel("perturbation error")
    figure.suptitle("dots: published (one seed); dashes and bands: ours (median and range over seeds)", fontsize=10)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "study", type=Path, help="folder of the study published_curves, with its curves/ and its report/"
    )
    folder = parser.parse_args().study
    trials = pd.read_csv(folder / "report" / "trials.csv").rename(columns={"task.kernel": "kernel"})
    curves = pd.concat(pd.read_parquet(path) for path in sorted((folder / "curves").glob("*.parquet")))
    trials["model"] = trials["model"] + " " + trials["model.parameterization"]
    curves = of_grid(curves)
    ours = curves.merge(trials[["identity", "model", "kernel"]], on="identity")
    points = compared(pd.read_csv(HERE / "published" / "curse_of_memory_curves.csv"), ours)
    print(summary(points).to_string(index=False))
    if not (rest := others(ours)).empty:
        print("", rest.to_string(index=False), sep="\n")
    near = (points["published"] / points["median"]).between(1 / FACTOR, FACTOR)
    print(f"\n{near.mean():.0%} of {len(points)} points are within a factor of {FACTOR:g} of our median")
    draw(points, HERE / "out" / "published_curves.png")
    print(f"figure: {HERE / 'out' / 'published_curves.png'}")


if __name__ == "__main__":
    main()
