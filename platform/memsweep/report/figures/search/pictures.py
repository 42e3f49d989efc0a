"""Every picture of a search, with the words that stand above it on the page."""

from __future__ import annotations

from dataclasses import dataclass

from memsweep.report.analysis.search.searched import Searched
from memsweep.report.figures.panels import Gallery
from memsweep.report.figures.search.stopping import curve_gallery, population_gallery
from memsweep.report.figures.search.suggestions import field_gallery, progress_gallery
from memsweep.report.figures.search.winners import front_gallery, transfer_gallery
from memsweep.report.read.study import Study

_CONFIRMED = " Open marks with bars: medians over fresh seeds, with their 95 % intervals."


@dataclass(frozen=True)
class SearchPicture:
    """A gallery under its heading."""

    title: str
    words: str
    gallery: Gallery


def search_pictures(study: Study, searched: Searched) -> tuple[SearchPicture, ...]:
    """In the order of the page; a gallery without panels has nothing to show."""
    fresh = searched.fresh
    confirmed = _CONFIRMED if fresh else ""
    return (
        SearchPicture(
            "Does the best setting move?",
            "The winners' settings and values by cell. Where a line is flat, the best value transfers. Filled "
            f"marks: the values in the search.{confirmed}",
            transfer_gallery(searched, "search-transfer"),
        ),
        SearchPicture(
            "Objectives against each other",
            "Small marks: every suggestion that was trained to its end. The line joins the Pareto front, whose "
            "suggestions are named by their numbers." + (" Open marks: the winners on fresh seeds." if fresh else ""),
            front_gallery(searched, "search-front"),
        ),
        SearchPicture(
            "Objective against what was searched",
            "Small marks: every suggestion that was trained to its end; crosses at the top diverged. Large marks: the "
            f"winners, by their values in the search.{confirmed}",
            field_gallery(searched, "search-fields"),
        ),
        SearchPicture(
            "Best so far",
            "The best value of the suggestions up to each, in the order in which they were made; steps are those that "
            "were trained for them, early stopping included.",
            progress_gallery(searched, "search-progress"),
        ),
        SearchPicture(
            "Where training was stopped",
            "Validation loss over the steps of every suggestion (median over its seeds); a cross where the scheduler "
            "stopped it.",
            curve_gallery(study, searched, "search-curves"),
        ),
        SearchPicture(
            "The population on its way",
            "Settings of every member over the steps. A dotted step: a member took over the weights of another, and "
            "its setting, changed. The thick line is the winner's lineage.",
            population_gallery(searched, "search-population"),
        ),
    )
