"""Common slips of a command line, in words of their own: spaces inside an override, other separators, open brackets.

A shell breaks ``model.width=2, 4`` into two words. Neither is an override, so what was meant is put together again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from memsweep.config.core.problems import show

_PATH = r"[A-Za-z_]\w*(?:\.\w+)*"
_KEY = re.compile(_PATH)
_COLON = re.compile(rf"({_PATH}):\s*(\S.*)")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
FORM = "Write key=value, for example training.steps=100, model.width=2,4,8 or 'name=\"my study\"'"


def given_twice(words: Sequence[str]) -> list[str]:
    """A note for each field that a command line gives several values or axes: the last one counts, as in Hydra.

    None where one value stands behind an axis: of most fields that is refused.
    """
    values: dict[str, list[str]] = {}
    for word in words:
        path, equals, value = word.partition("=")
        if equals and _KEY.fullmatch(path):
            values.setdefault(path.removeprefix("grid."), []).append(value)
    several = {
        path: given
        for path, given in values.items()
        if len({*given}) > 1 and ("," in given[-1] or "," not in "".join(given))
    }
    return [f"{path} is given {len(given)} times: {given[-1]} counts" for path, given in several.items()]


def put_together(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without those that spaces broke apart, and a sentence for each override that was.

    Args:
        words: of a command line, as the shell gives them.
    """
    whole, problems = list[str](), list[str]()
    at = 0
    while at < len(words):
        end = _end(words, at)
        if end - at > 1:
            problems.append(_apart(words[at:end]))
        else:
            whole.append(words[at])
        at = end
    return whole, problems


def _end(words: Sequence[str], start: int) -> int:
    """The index behind the last word of the override that begins at ``start``."""
    end = start + 1
    if not _KEY.match(words[start]):
        return end
    while end < len(words) and _goes_on("".join(words[start:end]), words[end]):
        end += 1
    return end


def _goes_on(before: str, word: str) -> bool:
    """Whether a word is the rest of the override before it, and no override of its own."""
    if re.match(rf"[+~]*{_PATH}=", word) or word.startswith(("~", "+")):
        return False
    if any(before.count(opens) > before.count(closes) for opens, closes in _BRACKETS.items()):
        return True
    if "=" not in before:  # model.width = 8, model.width 8
        return word.startswith("=") or "." in before
    if before.endswith(("=", ",")) or word.startswith(","):
        return True
    is_name = before.startswith("name=") and "." not in word and "=" not in word
    return is_name or re.fullmatch(r"[-.\d]\S*", word) is not None


def _apart(words: Sequence[str]) -> str:
    said, (key, *values) = " ".join(words), _key_and_values(words)
    meant = f'name="{" ".join(values)}"' if key == "name" else f"{key}={','.join(values)}"
    where = "around its =" if not re.match(rf"{_PATH}=[^\s,]", words[0]) else "between its values"
    return f"the override {show(said)} has a space {where}, so that it is several words. Write {shlex.quote(meant)}."


def _key_and_values(words: Sequence[str]) -> list[str]:
    key, _, rest = " ".join(words).partition("=" if "=" in "".join(words) else " ")
    if any(bracket in rest for bracket in _BRACKETS):
        return [key.strip(), " ".join(rest.split())]
    return [key.strip(), *(value for value in re.split(r"[,\s]+", rest) if value)]


def why_not_read(word: str) -> str:
    """Why a word is no override, and what to write instead: the rest of a sentence behind the word."""
    key, equal, value = word.partition("=")
    if colon := _COLON.fullmatch(word):
        return f"has a colon where = belongs. Write {shlex.quote(f'{colon[1]}={colon[2]}')}"
    if not equal:
        named = f"Write {word}=VALUE" if _KEY.fullmatch(word) else FORM
        return f"cannot be read: it has no =. {named}; to add it to a list of values, write a comma and no space"
    if value.endswith(",") or value.startswith(","):
        left = value.strip(",")
        return f"cannot be read: nothing stands on one side of a comma. {f'Write {key}={left}' if left else FORM}"
    if value.count("'") % 2 or value.count('"') % 2:
        return f"cannot be read: a quote is not closed. Write {key}=\"'...'\" around the whole value"
    if (open_ := _unbalanced(value)) != "":
        return f"cannot be read: {open_}. {_instead(key, value)}"
    if re.fullmatch(r"\([^()]*\)|[^;\[{(]*(?:;[^;]*)+", value):
        return f"cannot be read: several values stand between commas, without brackets. {_instead(key, value)}"
    return f"cannot be read. {FORM}"


def _unbalanced(value: str) -> str:
    for opens, closes in _BRACKETS.items():
        if value.count(opens) != value.count(closes):
            more, fewer = (opens, closes) if value.count(opens) > value.count(closes) else (closes, opens)
            return f"it has a {more} without its {fewer}"
    return ""


def _instead(key: str, value: str) -> str:
    opens = [sign for sign in value if sign in _BRACKETS]
    if len(opens) == 1 and value.count(_BRACKETS[opens[0]]) == 0 and re.match(r"\w*[\[({]", value):
        return f"Write {shlex.quote(f'{key}={value}{_BRACKETS[opens[0]]}')}"  # a list or function that is not closed
    values = [one for one in re.split(r"[,;\s\[\](){}]+", value) if one]
    return f"Write {key}={','.join(values)}" if values and not re.search(r"[:{}]", value) else FORM
