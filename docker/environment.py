"""Makes the file of settings and secrets that docker compose reads: ``environment.py EXAMPLE FILE``, once.

Every ``<secret>`` of the example becomes a random word of its own. A file that is there is left as it is.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

PLACE = "<secret>"
_BYTES = 24


def filled(example: str) -> str:
    """The example with a secret in each place for one."""
    first, *rest = example.split(f"={PLACE}\n")
    return first + "".join(f"={secrets.token_hex(_BYTES)}\n{part}" for part in rest)


def write_once(example: Path, file: Path) -> bool:
    """Write the file for its owner alone; False where there is one already."""
    text = filled(example.read_text(encoding="utf-8"))
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return True


def main(example: Path, file: Path) -> None:
    """Write the file, or say why not; a file that others can read is refused."""
    if write_once(example, file):
        print(f"{file}: made, with new secrets; yours alone")
    elif file.stat().st_mode & 0o077:
        sys.exit(f"{file} holds secrets, and others on this machine can read it: chmod 600 {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
