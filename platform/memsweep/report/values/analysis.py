"""Analyses of stored tables: what each of them says of itself to the report.

An analysis is a class with ``@register_analysis(name)``, in a package of its own below ``memsweep.analyses`` or in an
installed distribution (entry-point group ``memsweep.plugins``). A report loops over what is registered, and names none.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep import registry
from memsweep.config.load.foreign import foreign_code
from memsweep.errors import MemsweepError

if TYPE_CHECKING:
    from memsweep.report.analysis.losses import LossRow
    from memsweep.report.naming.conditions import Labels

_PLACE = "module:function"

_log = logging.getLogger(__name__)


class Analysis:
    """What a report finds in the stored tables of a study, beside verdicts and losses.

    The first paragraph of the docstring of a subclass says what is found; ``memsweep describe`` prints it. Example:
    ``memsweep.analyses.growth``.

    Attributes:
        section: ``module:function``, which makes from ``memsweep.report.analysis.contents.Contents`` the
            ``memsweep.report.values.section.Section`` of a study, or several of them. One without rows and charts is
            not shown.
        studies: ``module:function``, which makes from the contents of several studies by name, and the letters by which
            tables name them, the ``memsweep.report.values.side_by_side.Compared`` of a comparison.
    """

    Config: ClassVar[type]
    section: ClassVar[str] = ""
    studies: ClassVar[str] = ""

    @classmethod
    def asks_for_losses(cls, trained: Sequence[LossRow], labels: Labels) -> bool:
        """Whether all final losses are an answer of such a study, those of conditions with a verdict among them.

        Args:
            trained: the losses of all conditions.
            labels: their names.
        """
        return False

    @classmethod
    def registration_problem(cls) -> str | None:
        """What a subclass lacks: the end of a sentence."""
        places = [place for place in (cls.section, cls.studies) if place]
        if places and all(all(place.partition(":")) for place in places):
            return None
        return (
            f"says nothing: write inside the class 'section = \"{_PLACE}\"', which makes a Section from the Contents "
            f"of a study, or 'studies = \"{_PLACE}\"', which compares studies."
        )


def loaded(place: str) -> Any:
    """The function at ``module:function``."""
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(module), function)


@contextmanager
def left_out_where_it_fails(part: type, what: str) -> Iterator[None]:
    """A part's code for reports runs inside: where code of others fails, a report is written without it, and a warning
    says so.

    Args:
        part: the class of the measure or analysis.
        what: it, in words.
    """
    if registry.is_own(part):
        yield
        return
    try:
        with foreign_code(str):
            yield
    except MemsweepError as error:
        said = str(error).rstrip(".")
        _log.warning("%s failed, and is left out of the report: %s. Correct its code.", what, said)
