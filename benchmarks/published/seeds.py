"""Writes docs/seeds.md: the five works that this project continues, part by part, published beside ours.

    python -m benchmarks.published.seeds
    python -m benchmarks.published.seeds --add results/psmnist_small

The page is made of docs/evidence/seeds.yaml (the parts of the works, and which study answers each), of the study files
(what each asks), of docs/evidence/published_curves.csv and of docs/evidence/seeds_results.csv. ``--add`` first puts
the metrics or the verdicts of a study's folder into the last one, in the place of those of the same conditions.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks.published_curves import PUBLISHED, SET
from memsweep.config.load.study_files import description
from memsweep.errors import counted

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
PAGE = ROOT / "docs" / "seeds.md"
RESULTS = EVIDENCE / "seeds_results.csv"
CURVES = EVIDENCE / "published_curves.csv"
COLUMNS = ["study", "condition", "measured", "value", "low", "high", "seeds"]
SLOPE = ("", "_low", "_high")
ROOMS = ("published", "cluster")
METRICS = {"accuracy": "test accuracy", "bits_per_character": "bits a character"}
"""A metric of a task -> the page's words for it."""
RUNS = {"whole": "whole", "smaller": "smaller", "no": "not run"}
"""How far a study was run -> as the page says it."""
HEAD = """# The five works, part by part

This page lists the figures, tables, commands, options and data of the works that this project continues. \
Beside each stands the study that answers it. Published numbers stand beside ours, where there are any. \
[seeds.bib](seeds.bib) cites the works.

*Whole*: run at its own size. *Smaller*: run at a size or in a part that the row says. *Not run*: there is a study or \
not, and no result of it. Brackets hold the least and the most over seeds, or a 95 % interval where the row is of a \
slope. `python -m benchmarks.published.seeds` writes this page."""


def page() -> str:
    """The text of docs/seeds.md."""
    told = yaml.safe_load((EVIDENCE / "seeds.yaml").read_text(encoding="utf-8"))
    works = [*told["works"], *told["others"]]
    sections = [HEAD, _counts(works), *map(_work, works), _curves(told["curves"]), *_results(), _studies(works)]
    return "\n\n".join(sections) + "\n"


def _counts(works: Sequence[dict[str, Any]]) -> str:
    rows = []
    for work in works:
        runs = Counter(part["run"] for part in work["parts"])
        rows.append([work["title"], len(work["parts"]), *(runs[run] for run in RUNS)])
    return _table(["work", "parts", *RUNS.values()], rows)


def _work(work: dict[str, Any]) -> str:
    columns = ["part", "study", "run", "published", "ours", "what differs, or what it takes"]
    rows = []
    for part in work["parts"]:
        answer = part.get("study", part.get("script"))
        study = f"`{answer}`" if answer else "none"
        rest = [part.get(name, "") for name in ("published", "ours", "differs")]
        rows.append([part["name"], study, RUNS[part["run"]], *rest])
    return f"## {work['title']}\n\n{_table(columns, rows)}"


def _curves(told: dict[str, list[str]]) -> str:
    """The table of the published curves, a row for each set."""
    published = pd.read_csv(PUBLISHED)
    ours = pd.read_csv(CURVES)
    columns = [
        "task",
        "activation",
        "model",
        "memory",
        "points",
        "study",
        "compared",
        "within 5",
        "at 0",
        "why we part",
    ]
    rows = []
    for key, points in published.groupby(SET):
        study, why = told[" ".join(key)]
        found = ours[(ours[SET] == list(key)).all(axis=1)]
        rows.append([*key, len(points), f"`{study}`", *_agreement(found), why])
    compared = int(ours["points"].sum())
    text = (
        f"The Curse-of-memory code published {len(rows)} sets of perturbation-error curves, {len(published):,} points. "
        f"Each set has a row in a study; {compared:,} points are compared. *Within 5*: share of these where published "
        "and our median differ by a factor of at most 5. *At 0*: published over ours without perturbation, by width. "
        "*Compared* names the seeds of ours. The publication has one seed."
    )
    return f"## Published curves, factor by factor\n\n{text}\n\n{_table(columns, rows)}"


def _agreement(found: pd.DataFrame) -> list[str]:
    """The cells of the columns compared, within 5 and at 0, of one set."""
    if found.empty:
        return ["not run", "", ""]
    count = int(found["points"].sum())
    near = (found["within 5"] * found["points"]).sum() / count
    factors = [f"{row['width']}: {row['ratio at 0']:g}" for _, row in found.sort_values("width").iterrows()]
    return [f"{count}, {_span(found['seeds'])}", f"{near:.0%}", "; ".join(factors)]


def _span(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return counted(low, "seed") if low == high else f"{low} to {high} seeds"


def _results() -> Iterator[str]:
    """A table for each study whose results are stored in ``RESULTS``."""
    for study, rows in pd.read_csv(RESULTS).groupby("study"):
        told = [[row.condition, row.measured, _value(row), row.seeds] for row in rows.itertuples()]
        yield f"## Results of {study}\n\n" + _table(["condition", "measured", "ours", "seeds"], told)


def _value(row: Any) -> str:
    return "none" if pd.isna(row.value) else f"{row.value:.3g} [{row.low:.3g}, {row.high:.3g}]".replace("-", "−")


def add(folder: Path) -> None:
    """Puts the results of a study's folder in ``RESULTS``, in the place of those of the same conditions."""
    found = pd.DataFrame(_metrics(folder) or _verdicts(folder), columns=COLUMNS)
    kept = [pd.read_csv(RESULTS)] if RESULTS.exists() else []
    key = ["study", "condition", "measured"]
    if (twice := found.duplicated(key)).any():
        sys.exit(
            f"{folder}: several trials are called {found['condition'][twice].iloc[0]!r}. Tell them apart in _metrics"
        )
    whole = pd.concat([*kept, found]).drop_duplicates(key, keep="last").sort_values(key)
    whole.astype(dict.fromkeys(COLUMNS[3:6], float)).to_csv(RESULTS, index=False, float_format="%.4g")


def _metrics(folder: Path) -> list[list[object]]:
    """Rows of ``COLUMNS``: the metric of each condition, median, least and most; none where a seed has none.

    Seeds of one condition may lie in several trials, as after ``extend``.
    Of a study that searches settings they are of the winners, on fresh seeds.
    """
    found: dict[str, tuple[tuple[str, ...], str, list[pd.Series]]] = {}
    winners = folder / "report" / "winners.csv"
    confirmed = set(pd.read_csv(winners)["confirmed_as"]) if winners.exists() else None
    for path in sorted((folder / "replicas").glob("*.parquet")):
        seeds = pd.read_parquet(path)
        if not seeds["metric"].isin(METRICS).all() or (confirmed is not None and path.stem not in confirmed):
            continue
        config = json.loads((folder / "records" / f"{path.stem}.json").read_text(encoding="utf-8"))["config"]
        training, values = config["training"], seeds["test_metric"]
        measured = f"{METRICS[seeds['metric'].iloc[0]]} after {training['steps']} steps"
        unit = config["model"].get("unit") or {}
        least = f"r_min {unit['r_min']:g}" if "r_min" in unit else ""
        sizes = f"T = {config['task']['horizon']}" if "horizon" in config["task"] else ""
        depth = counted(config["model"]["layers"], "layer") if "layers" in config["model"] else ""
        names = (
            _model(config["model"]),
            config["task"]["name"],
            depth,
            sizes,
            f"width {config['model']['width']}" if "width" in config["model"] else "",
            training.get("rule", ""),
            least,
            f"rate {training['learning_rate']:g}",
        )
        alike = json.dumps(config | {"training": training | {"seeds": 0, "first_seed": 0}}, sort_keys=True)
        found.setdefault(alike, (names, measured, []))[2].append(values)
    every = [names for names, *_ in found.values()]
    told = [(_condition(names, every), measured, _spread(values)) for names, measured, values in found.values()]
    return [[folder.name, condition, measured, *rest] for condition, measured, rest in told]


def _spread(values: Sequence[pd.Series]) -> list[object]:
    """Median, least, most and number of the values of all seeds."""
    whole = pd.concat([*values])
    return [*(whole.agg(of, skipna=False) for of in ("median", "min", "max")), len(whole)]


def _condition(names: tuple[str, ...], every: Sequence[tuple[str, ...]]) -> str:
    """The model, and of the rest what differs among the trials of one model."""
    alike = [other for other in every if other[0] == names[0]]
    rest = [name for place, name in enumerate(names) if place and name and len({other[place] for other in alike}) > 1]
    return " · ".join([names[0], *rest])


def _model(model: dict[str, Any]) -> str:
    """A model's name, or its unit's, with its gains and its parameterization, as far as it has them."""
    name = model["unit"]["name"] if model.get("unit") else model["name"]
    gains = model.get("stair", "none")
    of_rates = [model["parameterization"]["name"]] if model.get("parameterization") else []
    return " · ".join([name, *([] if gains == "none" else [gains]), *of_rates])


def _verdicts(folder: Path) -> list[list[object]]:
    """Rows of ``COLUMNS``: the verdict of each condition and ball, with the slope that decides and its interval."""
    seeds = max(len(pd.read_parquet(path)) for path in (folder / "replicas").glob("*.parquet"))
    rows: list[list[object]] = []
    for row in pd.read_csv(folder / "report" / "verdicts.csv").to_dict("records"):
        named = ("task.kernel", "model.activation", "model.parameterization")
        condition = " · ".join(str(row[name]) for name in named if name in row)
        axis = row["deciding"]
        measured = f"{row['ball']} weights move: {row['verdict']}; slope in {axis}"
        rows.append([folder.name, condition, measured, *(row[f"slope_{axis}{end}"] for end in SLOPE), seeds])
    return rows


def _studies(works: Iterable[dict[str, Any]]) -> str:
    """The table of all studies of the rooms ``ROOMS``: what each asks, and of which parts."""
    asked = Counter(part["study"] for work in works for part in work["parts"] if "study" in part)
    rows = []
    for room in ROOMS:
        for path in sorted((ROOT / "search_spaces" / room).glob("*.yaml")):
            question = description(path.read_text(encoding="utf-8")).partition("\n")[0]
            question = re.split(r"(?<=[.?]) ", question)[0]
            rows.append([f"`{path.stem}`", room, question, asked[path.stem]])
    return "## The studies\n\n" + _table(["study", "room", "what it asks", "parts"], rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, metavar="STUDY", help="folder of a study with a report")
    folder = parser.parse_args().add
    for stored in (RESULTS, CURVES):
        if not stored.is_file() or pd.read_csv(stored).empty:
            sys.exit(f"{stored} is missing or empty: {PAGE.name} stays as it is. Restore the file (git checkout).")
    if folder is not None:
        add(folder)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
