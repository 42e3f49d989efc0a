"""Our perturbation-error curves, by the published protocol, beside those that the Curse-of-memory code published.

    memsweep sweep published_curves
    python benchmarks/published_curves.py results/published_curves

Prints a row per published curve and draws both to benchmarks/out/published_curves.png. A published curve is one seed's;
ours are the median over the study's seeds, and their range. A point agrees when the published error is within a factor
of 5 of our median, or inside the range of our seeds widened by that factor. Points where either is infinite are left
out.

benchmarks/published/curse_of_memory_curves.csv holds the published figures: read from the repository's own plots and
logs (see its columns source and run), linear activation, targets exp e^-t and pol (1 + 0.1 t)^-1.1, T = 100.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
FACTOR = 5.0
KERNELS = {"exp": "exponential", "pol": "polynomial"}
MODELS = {"diagonalrnn": "diagonal_rnn", "softplusrnn": "dense_rnn"}


def compared(published: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """One row per published point that is finite on both sides: published error, our median and range.

    Args:
        published: columns model, rho, width, beta, error.
        ours: columns model, kernel, width, radius, error; one error per seed.
    """
    seeds = ours.groupby(["model", "kernel", "width", "radius"])["error"].agg(["median", "min", "max", "size"])
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
            rows.append(
                [*key, point.beta, point.error, found["median"], found["min"], found["max"], int(found["size"])]
            )
    names = ["model", "kernel", "width", "radius", "published", "median", "low", "high", "seeds"]
    return pd.DataFrame(rows, columns=names)


def summary(points: pd.DataFrame) -> pd.DataFrame:
    """One row per curve: how many points agree, and where the published curve is farthest from our median."""
    points = points.assign(ratio=points["published"] / points["median"])
    near = points["ratio"].between(1 / FACTOR, FACTOR)
    inside = points["published"].between(points["low"] / FACTOR, points["high"] * FACTOR)
    points = points.assign(near=near, inside=near | inside, distance=np.abs(np.log(points["ratio"])))
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
                "... of the range of seeds": f"{curve['inside'].mean():.0%}",
                "published/median at 0": f"{curve['ratio'].iloc[0]:.2f}",
                "farthest": f"{worst['ratio']:.2g} at {worst['radius']:.3g}",
            }
        )
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
    ours = curves.merge(trials[["identity", "model", "kernel"]], on="identity")
    points = compared(pd.read_csv(HERE / "published" / "curse_of_memory_curves.csv"), ours)
    print(summary(points).to_string(index=False))
    near = (points["published"] / points["median"]).between(1 / FACTOR, FACTOR)
    print(f"\n{near.mean():.0%} of {len(points)} points are within a factor of {FACTOR:g} of our median")
    draw(points, HERE / "out" / "published_curves.png")
    print(f"figure: {HERE / 'out' / 'published_curves.png'}")


if __name__ == "__main__":
    main()
