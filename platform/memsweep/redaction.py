"""What must not be written down: the values of secret variables, and the credentials in addresses.

The path of a web address may hold a token (``https://host/api/TOKEN``), and nothing tells it from a harmless path. So
no path of a web address that comes from a setting is shown, but for one that is too short for a token (``/mlflow``).

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

_WEB = ("http", "https")


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
    """A text with ``***`` for every secret of this process's environment, and for the credentials in addresses.

    The paths of the web addresses in this process's environment count as secrets.
    """
    secrets = [*secrets_in(os.environ).values(), *_web_paths(os.environ)]
    known = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(known, key=len, reverse=True):
        text = text.replace(form, REMOVED)
    return _CREDENTIALS.sub(f"{REMOVED}@", text)


def redacted(uri: str) -> str:
    """An address without user name, password and query, for messages; a web address also without a long path."""
    whole = uri if "://" in uri else f"://{uri}"
    shown = _CREDENTIALS.sub("", whole, count=1).partition("?")[0].removeprefix("://")
    scheme, _, rest = shown.partition("://")
    host, _, path = rest.partition("/")
    secret = scheme.lower() in _WEB and len(path.strip("/")) >= _SHORTEST
    return f"{scheme}://{host}/{REMOVED}" if secret else shown


def _web_paths(environment: Mapping[str, str]) -> list[str]:
    """The paths of the web addresses that variables hold, without the slashes around them."""
    found = []
    for value in environment.values():
        scheme, _, rest = value.strip().partition("://")
        path = re.split(r"[?#]", rest.partition("/")[2])[0].strip("/")
        if scheme.lower() in _WEB and len(path) >= _SHORTEST:
            found.append(path)
    return found


def _forms(secret: str) -> Iterator[str]:
    """A secret as texts may hold it: plain, with a URL's escapes or without them, and as Python quotes it."""
    yield secret
    yield urllib.parse.quote(secret, safe="")
    yield urllib.parse.unquote(secret)
    yield repr(secret)[1:-1]
