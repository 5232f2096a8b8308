"""Secrets by the name in front of them: `password = "..."`, `--api-key X`, `"token": "..."`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .names import Says, kind_by_name, says
from .span import Span
from .values import is_nothing, is_path, is_word_of_a_message, looks_secret

# What a telling name ends with or holds; looked for in lower case, by str.find.
_HINTS = (
    *("key", "token", "pass", "pwd", "secret", "auth", "cred", "jwt", "cookie", "bearer", "sig"),
    *("session", "pin", "salt", "nonce", "netrc", "pw", "sas"),
)
_NAME = re.compile(r"[\w-]*")
_NAME_BACK = re.compile(r"[\w-]{0,60}\Z")
_LONGEST_NAME = 60
# Between a name and its value: quotes may be escaped, for JSON stands in JSON. `:` needs no space
# in `password:x`, but `::` is C++; a flag has its value in the next word, or the next string.
_QUOTE = r"(?:\\{0,7}[\"'])"
_SIGN = re.compile(
    rf"{_QUOTE}?\]?[ \t]*(?P<sign>=>|:=|=(?!=)|:(?!:)|(?:is|was)[ \t]+(?={_QUOTE}))[ \t]*"
    # b'...', and a class around it: SecretStr('...')
    r"(?:(?:[rbuf]{1,2}|[A-Za-z_][\w.]{0,40}\()(?=[\"']))?"
)
_FLAG_SIGN = re.compile(rf"{_QUOTE},[ \t]*(?={_QUOTE})|[ \t]+(?=[^\s-])")
# W&B's config.yaml: the name, and a line below it `value: ...`.
_BELOW = re.compile(r":[ \t]*\r?\n(?:[ \t]+desc:[^\n]{0,200}\n)?[ \t]+value:[ \t]*(?P<sign>)")
_IN_QUOTES = re.compile(r"(?P<quote>\\{0,7}[\"'])")
_LONGEST = 4096  # characters of a value
_BARE = re.compile(rf"[^\s\"',;&<>()\[\]{{}}|\\]{{1,{_LONGEST}}}")
_BARE_LINE = re.compile(rf"[^\s\"',;&|\\]{{1,{_LONGEST}}}")
# Where the name only may tell a secret the value ends at a further `=`: key=a=b.
_BARE_PERHAPS = re.compile(rf"[^\s\"',;&<>()\[\]{{}}|\\=]{{1,{_LONGEST}}}={{0,2}}")
_HEADERS = ("authorization", "cookie")  # headers.py knows where their values end
# Flags of one letter: curl -u ada:..., sshpass -p ..., docker login -p ...
_SHORT_FLAG = re.compile(
    r"(?:(?:sshpass|docker login[^\n]{0,200}) -p[ =]?"
    r"| -u[ =]?(?=[^\s:]{0,64}[A-Za-z])[^\s:]{1,64}:)"
    r"(?P<value>[^\s\"']{4,200})"
)
_NETRC = re.compile(
    r"\b(?:login|machine)\s+\S{1,200}\s+(?:account\s+\S{1,200}\s+)?password\s+(\S{1,500})"
)


def assigned_in(text: str) -> Iterator[Span]:
    """Yield the values that stand behind telling names in `text`."""
    lowered = _lowered(text)
    done = 0
    for start, end in sorted(_names(text, lowered)):
        if start < done:
            continue
        name = text[start:end]
        told = says(name)
        if told is Says.NOTHING or lowered.endswith(_HEADERS, start, end):
            continue
        value = _value(text, start, end, _BARE if told is Says.SECRET else _BARE_PERHAPS)
        if value and _is_secret(text[value[0] : value[1]], told, value[2]):
            done = value[1]
            yield Span(value[0], value[1], kind_by_name(name), by_place=True)
    if "password" in lowered and ("machine" in lowered or "login" in lowered):
        for found in _NETRC.finditer(text):
            yield Span(*found.span(1), "password", by_place=True)
    if " -" in text:
        for found in _SHORT_FLAG.finditer(text):
            yield Span(*found.span("value"), "password", by_place=True)


def _lowered(text: str) -> str:
    lowered = text.lower()
    # One letter of Unicode (İ) becomes two: then the places would not agree.
    return lowered if len(lowered) == len(text) else text


def _names(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield where names stand that hold one of the hints, each once."""
    seen: set[int] = set()
    for hint in _HINTS:
        at = lowered.find(hint)
        while at >= 0:
            rest = _NAME.match(text, at, at + _LONGEST_NAME)
            end = rest.end() if rest else at + len(hint)
            if end not in seen:
                seen.add(end)
                before = _NAME_BACK.search(text, max(0, at - _LONGEST_NAME), at)
                yield (before.start() if before else at), end
            at = lowered.find(hint, end)


def _value(
    text: str, start: int, end: int, pattern: re.Pattern[str]
) -> tuple[int, int, str] | None:
    """Return start, end and the sign in front of the value that belongs to a name, None without."""
    sign = _BELOW.match(text, end, end + 300) or _SIGN.match(text, end, end + 40)
    if sign is None and text[start : start + 1] == "-":
        sign = _FLAG_SIGN.match(text, end, end + 40)
    if sign is None:
        return None
    word = sign.groupdict().get("sign") or "flag"
    at = sign.end()
    if quote := _IN_QUOTES.match(text, at, at + 9):
        at = quote.end()
        stop = _closing(text, at, quote["quote"])
        return at, stop, "quoted"
    bare = (pattern if word != "flag" else _BARE_LINE).match(text, at)
    return (at, bare.end(), word) if bare else None


def _closing(text: str, at: int, quote: str) -> int:
    """Return where a string opened by `quote` before `at` ends: there, or with its line."""
    limit = min(len(text), at + _LONGEST)
    if (line := text.find("\n", at, limit)) >= 0:
        limit = line
    stop = text.find(quote, at, limit)
    while stop > at and len(quote) == 1 and _is_escaped(text, stop, at):
        stop = text.find(quote, stop + 1, limit)
    return limit if stop < 0 else stop


def _is_escaped(text: str, stop: int, at: int) -> bool:
    slashes = 0
    while stop - slashes > at and text[stop - slashes - 1] == "\\":
        slashes += 1
    return slashes % 2 == 1


def _is_secret(value: str, told: Says, sign: str) -> bool:
    if is_nothing(value) or not any(map(str.isalnum, value)):
        return False
    if told is Says.PERHAPS:
        return looks_secret(value)
    return not is_path(value) and not (sign in (":", "flag") and is_word_of_a_message(value))
