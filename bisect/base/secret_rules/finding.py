"""Secrets in a text: by their shape, in headers, and as values of names that say so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .names import Says, kind_by_name, says
from .shapes import shapes_in
from .values import Span, is_nothing, is_path, is_word_of_a_message, looks_secret

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
_HEADERS = ("authorization", "cookie")  # headers_in() knows where their values end
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
    for start, end in sorted(_find_names(text, lowered)):
        if start < done:
            continue
        name = text[start:end]
        name_says = says(name)
        if name_says is Says.NOTHING or lowered.endswith(_HEADERS, start, end):
            continue
        value = _value(text, start, end, _BARE if name_says is Says.SECRET else _BARE_PERHAPS)
        if value and _is_secret(text[value[0] : value[1]], name_says, value[2]):
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


def _find_names(text: str, lowered: str) -> Iterator[tuple[int, int]]:
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


def _is_secret(value: str, name_says: Says, sign: str) -> bool:
    if is_nothing(value) or not any(map(str.isalnum, value)):
        return False
    if name_says is Says.PERHAPS:
        return looks_secret(value)
    return not is_path(value) and not (sign in (":", "flag") and is_word_of_a_message(value))


_AUTHORIZATION = re.compile(
    r"(?i)(?P<name>(?:proxy-)?authorization)(?P<sign>\\*[\"']?\s*[:=,]\s*(?:[bu](?=\\*[\"']))?\\*[\"']?)"
    r"(?P<scheme>(?:bearer|basic|token|digest|negotiate|aws4-hmac-sha256|apikey)\s+)?"
    r"(?P<value>[^\s\"'\\,)}\]]+)"
)
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<value>[\w.~+/=-]{8,4096})")
_COOKIE = re.compile(
    r"(?i)\b(?:set-)?cookie\\*[\"']?\s*[:=]\s*\\*[\"']?(?P<value>[^\r\n\"'\\]{3,4096})"
)
_X_KEY = re.compile(
    r"(?i)\bx-[\w-]{0,40}(?:key|token|auth|secret)\\*[\"']?\s*:\s*\\*[\"']?(?P<value>[^\s\"'\\,]{4,4096})"
)

# user:password@ of a URL. The user is a plain name, and stays; a key in its place goes.
_USER_INFO = re.compile(
    r"://(?P<user>[^\s/@:'\"<>]{0,400})(?::(?P<password>[^\s/'\"<>]{0,400}))?@(?=[\w\[.-])"
)
# The same of a proxy or a host written without a scheme.
_HEADER_VALUE = re.compile(
    r"(?<![^\s'\"=,;(])(?P<user>[\w.+%-]{1,100}):(?P<password>[^\s/:'\"<>]{1,200})@(?=[\w-]+(?:\.[\w.-]+|:[0-9]))"
)
_OF_SSH = ("ssh", "sftp", "rsync", "scp", "svn")
# Of a signed URL what is no name that tells by itself.
_SIGNED = re.compile(
    r"(?i)[?&;](?:amp;)?(?P<name>X-Amz-Signature|X-Amz-Security-Token|X-Amz-Credential|X-Goog-Signature"
    r"|X-Goog-Credential|Signature|sig|Policy|AWSAccessKeyId|Key-Pair-Id|hmac|sv_sig|se_sig|code)"
    r"=(?P<value>[^&\s'\"<>#\\]{6,4096})"
)

# Of a query what its name tells, however short it is.
_QUERY = re.compile(
    r"(?i)[?&;](?:[\w-]{0,40}(?:key|token|secret|password|signature|credential))"
    r"=(?P<value>[^&\s'\"<>#\\]{1,4096})"
)


def headers_in(text: str) -> Iterator[Span]:
    """Yield what stands in authorization headers and cookies of `text`."""
    lowered = text.lower()
    if "authorization" in lowered:
        for found in _AUTHORIZATION.finditer(text):
            value = found["value"]
            if not is_nothing(value) and (found["scheme"] or looks_secret(value)):
                yield Span(*found.span("value"), "authorization", by_place=True)
    if "bearer" in lowered or "basic" in lowered:
        for found in _SCHEME.finditer(text):
            if looks_secret(found["value"].rstrip(".=")):
                yield Span(*found.span("value"), "authorization", by_place=True)
    if "cookie" in lowered:
        for found in _COOKIE.finditer(text):
            if "=" in found["value"]:
                yield Span(*found.span("value"), "cookie", by_place=True)
    if "x-" in lowered:
        for found in _X_KEY.finditer(text):
            if not is_nothing(found["value"]):
                yield Span(*found.span("value"), "API key", by_place=True)


def urls_in(text: str) -> Iterator[Span]:
    """Yield passwords, keys in their place, and signatures in the URLs of `text`."""
    if "@" in text:
        for found in _USER_INFO.finditer(text):
            yield from _of_user_info(text, found)
        for found in _HEADER_VALUE.finditer(text):
            if not is_nothing(found["password"]):
                yield Span(*found.span("password"), "URL password", by_place=True)
    if "=" in text and ("?" in text or "&" in text):
        for found in _QUERY.finditer(text):
            if not is_nothing(found["value"]):
                yield Span(*found.span("value"), "token", by_place=True)
        for found in _SIGNED.finditer(text):
            kind = "AWS access key" if "credential" in found["name"].lower() else "URL signature"
            yield Span(*found.span("value"), kind, by_place=True)


def _of_user_info(text: str, found: re.Match[str]) -> Iterator[Span]:
    user, password = found["user"], found["password"]
    if password and not is_nothing(password):
        yield Span(*found.span("password"), "URL password", by_place=True)
        if looks_secret(user):
            yield Span(*found.span("user"), "URL password", by_place=True)
        return
    scheme = re.search(r"[a-z+]*\Z", text[max(0, found.start() - 12) : found.start()])
    if user and not is_nothing(user) and not (scheme and scheme[0].split("+")[-1] in _OF_SSH):
        yield Span(*found.span("user"), "URL password", by_place=True)


# AWS's secret key has no mark of its own: 40 characters of base64 near the key that it belongs to.
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=_.-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_.-])")
_NEAR = 200  # characters


def told_secrets_in(text: str) -> Iterator[Span]:
    """Yield the secrets in `text`."""
    for start, end, kind in shapes_in(text):
        yield Span(start, end, kind)
        if kind == "AWS access key":
            for found in _AWS_SECRET.finditer(text, max(0, start - _NEAR), end + _NEAR):
                if any(map(str.isdigit, found[0])) and not found[0].islower():
                    yield Span(*found.span(), "AWS secret key", by_place=True)
    yield from assigned_in(text)
    yield from headers_in(text)
    yield from urls_in(text)


def spans_lines(text: str) -> bool:
    """Return whether a secret in `text` may be longer than a line, or stand in the next one."""
    return "PRIVATE KEY" in text or "  value:" in text or ("machine" in text and "password" in text)
