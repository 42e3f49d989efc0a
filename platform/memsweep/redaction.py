"""Secrets that must not be written down: the values of secret variables, and the credentials in addresses.

The path of a web address may hold a token (``https://host/api/TOKEN``), and nothing tells it from a harmless path. So
no path of a web address that comes from a setting is shown, but for one that is too short for a token (``/mlflow``).

Errors of libraries and of tasks may quote either. What they say goes into records, reports and MLflow, which many
read; so it passes here first.
"""

from __future__ import annotations

import functools
import html
import json
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping

REMOVED = "***"

_SECRET_NAME = re.compile(
    r"""(SECRET|TOKEN(?!IZER)|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|BEARER|COOKIE|CONN(ECTION)?_?STR
    |ACCESS_?KEY|API_?KEY|AUTH(?!_MODE|OR)|SESSION_?(ID|KEY)$
    |(?<!COM)(?<!BY)PASS$|(^|_)PASS_
    |(?<!^)(?<!OLD)PWD$
    |(^|_)(KEY|KEYS|PAT|DSN|JWT|SAS|CREDS?|PW|PIN|SIG|SIGNATURE|SALT|SESSION|WEBHOOK)$|(^|_)(JWT|SAS|OP_SESSION)_)""",
    re.I | re.X,
)
_HARMLESS_NAME = re.compile(r"_(PATH|FILE|DIR|MODE|SOCK|URL|URI)$|^(XDG|DESKTOP|DBUS|GNOME|KDE)_", re.I)
_SHORTEST = 8  # characters; shorter values of secret variables (yes, 1, none) are found in innocent words
_LONG_LINE = 16  # characters of a line of a secret that is a secret itself: those of a private key are shown one by one

# Name and value in a connection string (AccountKey=...;), in a query (sig=...&) and in JSON ("private_key": "...").
_PART = re.compile(
    r"""[\w-]{0,40}(?:key|passw(?:or)?d|pwd|secret|token|sig|signature)["']?\s{0,3}[=:]\s{0,3}["']?([^;&\s"',]{8,})""",
    re.I,
)

# What stands before the host; a password that nobody escaped may hold a slash, as SQLAlchemy takes it, but a number
# and a slash are a port. The lengths are bounded, for so is the time that a text of any kind may take.
_CREDENTIALS = re.compile(r"(?<=://)(?:[^/?#\s'\"]{1,300}|[^:/@\s]{0,100}:(?!\d{1,5}/)[^@\s'\"]{1,300})@")
_PASSWORD = re.compile(r"://[^:/@\s]*:(?!\d{1,5}/)([^@\s]+)@")

_USER_TOKEN = re.compile(r"https?://([^:/@\s]{16,300})@")
"""A token in the place of a user, as hosts of repositories take it."""

_WEB = ("http", "https")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is taken to hold a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def secrets_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable -> secret: the values of secret variables, and the passwords in the addresses that others hold."""
    found = {}
    for name, value in environment.items():
        if is_secret_name(name) and not (value.startswith("/") and os.path.exists(value)):  # where the secret lies
            found[name] = value
        elif password := _PASSWORD.search(value) or _USER_TOKEN.search(value):
            found[name] = password[1]
    return {name: secret for name, secret in found.items() if len(secret) >= _SHORTEST}


def without_secrets(text: str) -> str:
    """A text with ``***`` for every secret of this process's environment, and for the credentials in addresses.

    The paths of the web addresses in this process's environment count as secrets.
    """
    known = _known(tuple(os.environ.items()))
    return _CREDENTIALS.sub(f"{REMOVED}@", known.sub(REMOVED, text) if known is not None else text)


@functools.lru_cache(maxsize=8)
def _known(environment: tuple[tuple[str, str], ...]) -> re.Pattern[str] | None:
    """Finds each secret of an environment in each of its forms; None where there is none."""
    secrets = secrets_in(dict(environment)).values()
    parts = [part for _, value in environment for part in _PART.findall(value)]
    lines = [line.strip() for secret in secrets for line in secret.splitlines() if len(line.strip()) >= _LONG_LINE]
    every = {*secrets, *parts, *lines, *_web_paths(dict(environment))}
    forms = {form for secret in every for form in _forms(secret)}
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.compile("|".join(map(re.escape, longest_first))) if forms else None


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
    """A secret as texts may hold it: plain, with the escapes of URLs, JSON or HTML, and as Python quotes it."""
    yield secret
    yield urllib.parse.quote(secret, safe="")
    yield urllib.parse.unquote(secret)
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield html.escape(secret)
