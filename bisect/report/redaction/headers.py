"""Secrets in headers of HTTP and in URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .span import Span
from .values import is_nothing, looks_secret

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
    r"://(?P<user>[^\s/@:'\"<>]{0,400})(?::(?P<password>[^\s/'\"<>]{0,400}?))?@(?=[\w\[.-])"
)
# The same of a proxy or a host written without a scheme.
_BARE = re.compile(
    r"(?<![^\s'\"=,;(])(?P<user>[\w.+%-]{1,100}):(?P<password>[^\s/@:'\"<>]{1,200})@(?=[\w-]+(?:\.[\w.-]+|:[0-9]))"
)
_OF_SSH = ("ssh", "sftp", "rsync", "scp", "svn")
# Of a signed URL what is no name that tells by itself.
_SIGNED = re.compile(
    r"(?i)[?&;](?:amp;)?(?P<name>X-Amz-Signature|X-Amz-Security-Token|X-Amz-Credential|X-Goog-Signature"
    r"|X-Goog-Credential|Signature|sig|Policy|AWSAccessKeyId|Key-Pair-Id|hmac|sv_sig|se_sig|code)"
    r"=(?P<value>[^&\s'\"<>#\\]{6,4096})"
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
        for found in _BARE.finditer(text):
            if not is_nothing(found["password"]):
                yield Span(*found.span("password"), "URL password", by_place=True)
    if "=" in text and ("?" in text or "&" in text):
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
