"""Every picture of a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import BALLS
from memsweep.report.analysis.gradient_alignment import AlignmentRow
from memsweep.report.figures.alignment import alignment_along, alignment_gallery, varied
from memsweep.report.figures.error import error_gallery
from memsweep.report.figures.gradients import gradient_gallery
from memsweep.report.figures.learning_rates import rate_gallery
from memsweep.report.figures.memory import memory_gallery
from memsweep.report.figures.panels import Gallery
from memsweep.report.figures.radius import radius_gallery
from memsweep.report.figures.search.pictures import SearchPicture, search_pictures
from memsweep.report.figures.training import training_gallery
from memsweep.report.naming.labels import Labels, field_name


@dataclass(frozen=True)
class Section:
    """The galleries of one ball: the error, and the radius."""

    ball: str
    error: Gallery
    radius: Gallery


@dataclass(frozen=True)
class Galleries:
    """The galleries; ``along``: the alignment against each field of the model that the study varies."""

    sections: tuple[Section, ...]
    memory: Gallery
    rates: Gallery
    training: Gallery
    gradients: Gallery
    alignment: Gallery
    along: tuple[tuple[str, Gallery], ...]
    search: tuple[SearchPicture, ...]

    @property
    def all(self) -> tuple[Gallery, ...]:
        """In the order of the page."""
        stability = (gallery for section in self.sections for gallery in (section.error, section.radius))
        single = (self.memory, self.rates, self.training, self.gradients)
        aligned = (*(gallery for _, gallery in self.along), self.alignment)
        return (*stability, *single, *aligned, *(picture.gallery for picture in self.search))


def galleries_of(contents: Contents) -> Galleries:
    """Make the galleries of a report; nothing is drawn yet."""
    labels, tables = contents.labels, contents.measured.tables
    # Where the loss is the answer, and no curve over learning rates tells more, the training is drawn.
    trained = [] if contents.verdicts or contents.rates else contents.losses
    return Galleries(
        sections=tuple(_sections(contents)),
        memory=memory_gallery(contents.findings, labels, "memory"),
        rates=rate_gallery([*contents.rates, *contents.scanned], "learning-rates"),
        training=training_gallery(trained, tables["history"], labels, "training"),
        gradients=gradient_gallery(contents.trained, tables["memory"], labels, "gradients"),
        alignment=alignment_gallery(contents.alignment, labels, "alignment"),
        along=tuple(_along(contents.alignment, labels)),
        search=search_pictures(contents.study, contents.searched) if contents.searched is not None else (),
    )


def _sections(contents: Contents) -> Iterator[Section]:
    for ball in BALLS:
        part = [finding for finding in contents.findings if finding.ball == ball]
        if part:
            error = error_gallery(part, contents.labels, f"error-{ball}")
            judged = [finding for finding in part if finding.needs_verdict]
            yield Section(ball, error, radius_gallery(judged, contents.labels, f"radius-{ball}"))


def _along(rows: Sequence[AlignmentRow], labels: Labels) -> Iterator[tuple[str, Gallery]]:
    """The alignment against each number of the model that the study varies, and the field's name."""
    for field in varied(rows):
        file = re.sub(r"\W+", "-", field.removeprefix("model."))  # a name, whatever a stored config calls its fields
        yield field_name(field), alignment_along(rows, labels, field, f"alignment-{file}")
