"""What must not be written down: the values of secret variables, and the credentials in addresses.

Errors of libraries and of tasks may quote either. What they say goes into records, reports and MLflow, which many
read; so it passes here first.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping

REMOVED = "***"

_SECRET_NAME = re.compile(
    r"(SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|ACCESS_?KEY|API_?KEY|AUTH(?!_MODE|OR)|_KEY$|_PAT$|_DSN$)", re.I
)
_HARMLESS_NAME = re.compile(r"_(PATH|FILE|DIR|MODE|SOCK|URL|URI)$", re.I)
_SHORTEST = 8  # characters; shorter values of secret variables (yes, 1, none) are found in innocent words

# What stands before the host; a password that nobody escaped may hold a slash, as SQLAlchemy takes it, but a number
# and a slash are a port. The lengths are bounded, for so is the time that a text of any kind may take.
_CREDENTIALS = re.compile(r"(?<=://)(?:[^/?#\s'\"]{1,300}|[^:/@\s]{0,100}:(?!\d{1,5}/)[^@\s'\"]{1,300})@")
_PASSWORD = re.compile(r"://[^:/@\s]*:(?!\d{1,5}/)([^@\s]+)@")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is taken to hold a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def secrets_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable -> secret: the values of secret variables, and the passwords in the addresses that others hold."""
    found = {}
    for name, value in environment.items():
        if is_secret_name(name):
            found[name] = value
        elif password := _PASSWORD.search(value):
            found[name] = password[1]
    return {name: secret for name, secret in found.items() if len(secret) >= _SHORTEST}


def without_secrets(text: str) -> str:
    """A text with ``***`` for every secret of this process's environment, and for the credentials in addresses."""
    known = {form for secret in secrets_in(os.environ).values() for form in _forms(secret)}
    for form in sorted(known, key=len, reverse=True):
        text = text.replace(form, REMOVED)
    return _CREDENTIALS.sub(f"{REMOVED}@", text)


def redacted(uri: str) -> str:
    """An address without user name, password and query, for messages."""
    whole = uri if "://" in uri else f"://{uri}"
    return _CREDENTIALS.sub("", whole, count=1).partition("?")[0].removeprefix("://")


def _forms(secret: str) -> Iterator[str]:
    """A secret as texts may hold it: plain, with a URL's escapes or without them, and as Python quotes it."""
    yield secret
    yield urllib.parse.quote(secret, safe="")
    yield urllib.parse.unquote(secret)
    yield repr(secret)[1:-1]
