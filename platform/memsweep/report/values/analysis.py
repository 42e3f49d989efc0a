"""Analyses of stored tables: what each of them says of itself to the report.

An analysis is a class with ``@register_analysis(name)``, in a package of its own below ``memsweep.analyses`` or in an
installed distribution (entry-point group ``memsweep.plugins``). A report loops over what is registered, and names none.
"""

from __future__ import annotations

from typing import ClassVar

_PLACE = "module:function"


class Analysis:
    """What a report finds in the stored tables of a study, beside verdicts and losses.

    The first paragraph of the docstring of a subclass says what is found; ``memsweep describe`` prints it. Example:
    ``memsweep.analyses.growth``.

    Attributes:
        section: ``module:function``, which makes from ``memsweep.report.analysis.contents.Contents`` the
            ``memsweep.report.values.section.Section`` of a study, or several of them. One without rows and charts is
            not shown.
    """

    Config: ClassVar[type]
    section: ClassVar[str]

    @classmethod
    def registration_problem(cls) -> str | None:
        """What a subclass lacks: the end of a sentence."""
        module, _, function = getattr(cls, "section", "").partition(":")
        if module and function:
            return None
        return f"has no section: write inside the class 'section = \"{_PLACE}\"', which makes a Section from Contents."
