"""Versions of stored files: a reader takes every version that it knows, and refuses a newer one in a sentence.

A record, a plan, a round of a search, a failure and a table each carry the version of their form. A change of a form
adds a migration where the form is defined: a function that makes content of the next version from content of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from memsweep.errors import StoreError

T = TypeVar("T")


class OtherSchemaError(StoreError):
    """A file of a version that this one does not know: nothing is wrong with it, and nothing can be said of it."""


@dataclass(frozen=True)
class Form(Generic[T]):
    """The form of one kind of stored file.

    Attributes:
        version: that is written.
        migrations: version -> function from content of it to content of the next one.
    """

    version: int
    migrations: Mapping[int, Callable[[T], T]] = field(default_factory=dict)

    @property
    def oldest(self) -> int:
        """The oldest version that is read."""
        return min([self.version, *self.migrations])

    def migrated(self, content: T, version: int, where: str) -> T:
        """The content of a file in the form of today.

        Args:
            content: as the file holds it.
            version: of the file.
            where: the file, for the message.

        Raises:
            OtherSchemaError: see ``require_known``.
        """
        self.require_known(version, where)
        for step in range(version, self.version):
            content = self.migrations[step](content)
        return content

    def require_known(self, version: int, where: str) -> None:
        """Refuse a version that cannot be read.

        Raises:
            OtherSchemaError: the version is newer than today's, or older than the oldest migration.
        """
        if self.oldest <= version <= self.version:
            return
        known = f"{self.oldest} to {self.version}" if self.oldest < self.version else f"{self.version} only"
        age = "a newer" if version > self.version else "an older"
        way = "Install that version" if version > self.version else "Read it with the version that wrote it"
        raise OtherSchemaError(
            f"{where} was written by {age} version of memsweep, whose files have schema {version}; this version reads "
            f"schema {known}. {way}, or run the study again in another results folder (--results)."
        )
