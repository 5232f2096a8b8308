"""Secrets that are known by their shape: the one table of them, for the mask inside a rank and for
what is redacted before it leaves. The one place to add another.

A shape is a literal that such a secret starts with, and a regular expression for the rest. So a
text is looked through by `str.find`, and a regular expression is compiled and tried only where a
literal stands: a rank pays nothing for the shapes that it does not meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

# Kind, what it starts with (any of them), the rest. Sources: the issuers' pages, and the rules of
# gitleaks (MIT). Lengths are bounded below what is issued today, so that a key of another length is
# found too, and above, so that a line of a megabyte costs no more than its length.
_WORD = r"[A-Za-z0-9]"
_WIDE = r"[A-Za-z0-9_-]"
SHAPES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("W&B key", ("wandb_v1_", "wandb_v2_", "wandb_v3_"), rf"{_WIDE}{{20,200}}"),
    ("W&B key", ("local-",), r"[0-9a-f]{40}(?![0-9a-zA-Z])"),
    # Letters alone are a name, unless there are very many: `hf_transfer`.
    (
        "Hugging Face token",
        ("hf_",),
        rf"(?:(?={_WORD}{{0,33}}[0-9]){_WORD}{{16,60}}|{_WORD}{{30,60}})",
    ),
    ("Hugging Face token", ("api_org_",), rf"{_WORD}{{20,60}}"),
    ("Anthropic key", ("sk-ant-",), rf"{_WIDE}{{16,200}}"),
    # Digits and capitals, or hexadecimal: `sk-learn-contrib-2` is a package.
    (
        "OpenAI key",
        ("sk-",),
        rf"(?:(?={_WIDE}{{0,90}}[0-9])(?={_WIDE}{{0,90}}[A-Z]){_WIDE}{{20,250}}|[0-9a-f]{{32,64}})",
    ),
    ("AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"[0-9A-Z]{16}(?![0-9A-Za-z])"),
    ("AWS session token", ("IQoJb3JpZ2lu", "FwoGZXIvYXdz"), r"[A-Za-z0-9+/=%]{60,4000}"),
    ("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_WORD}{{20,300}}"),
    ("GitHub token", ("github_pat_",), r"[A-Za-z0-9_]{20,120}"),
    (
        "GitLab token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "gloas-", "glsoat-"),
        r"[A-Za-z0-9_.-]{16,320}",
    ),
    (
        "Slack token",
        ("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"),
        rf"{_WIDE}{{10,250}}",
    ),
    ("Slack token", ("xapp-", "xoxe."), r"[A-Za-z0-9_.-]{10,250}"),
    (
        "Slack webhook",
        ("hooks.slack.com/",),
        r"(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,120}",
    ),
    ("Google key", ("AIza",), rf"{_WIDE}{{35}}"),
    ("Google token", ("ya29.",), r"[A-Za-z0-9_.-]{20,500}"),
    ("Google token", ("GOCSPX-",), rf"{_WIDE}{{20,60}}"),
    ("Stripe key", ("sk_live_", "sk_test_", "rk_live_", "rk_test_"), rf"{_WORD}{{10,250}}"),
    ("Stripe key", ("whsec_",), r"[A-Za-z0-9+/=]{20,100}"),
    ("npm token", ("npm_",), rf"{_WORD}{{30,60}}"),
    # Without a digit it is a name: `pypi-mirror.example`.
    ("PyPI token", ("pypi-",), rf"(?={_WIDE}{{0,60}}[0-9]){_WIDE}{{50,500}}"),
    # {"alg": ...} in base64: header, content and signature of a JSON web token.
    (
        "JSON web token",
        ("eyJ",),
        rf"{_WIDE}{{8,1000}}\.{_WIDE}{{8,8000}}(?:\.{_WIDE}{{0,2000}}){{1,3}}",
    ),
    # The same without dots: Neptune's keys ({"api_address": ...}, {"api_url": ...}).
    ("Neptune token", ("eyJhcGlf",), r"[A-Za-z0-9+/]{40,600}={0,2}"),
    ("Replicate token", ("r8_",), rf"{_WORD}{{30,60}}"),
    ("Databricks token", ("dapi",), r"[0-9a-f]{32}(?:-[0-9])?(?![0-9A-Za-z])"),
    ("NVIDIA key", ("nvapi-",), rf"{_WIDE}{{40,120}}"),
    ("Groq key", ("gsk_",), rf"{_WORD}{{40,80}}"),
    ("xAI key", ("xai-",), rf"{_WORD}{{40,120}}"),
    ("Perplexity key", ("pplx-",), rf"{_WORD}{{40,80}}"),
    ("Docker token", ("dckr_pat_", "dckr_oat_"), rf"{_WIDE}{{20,60}}"),
    ("DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{40,80}"),
    ("Vault token", ("hvs.", "hvb.", "hvr."), rf"{_WIDE}{{24,300}}"),
    ("Grafana token", ("glsa_", "glc_"), r"[A-Za-z0-9_+/=]{32,500}"),
    ("SendGrid key", ("SG.",), rf"{_WIDE}{{16,40}}\.{_WIDE}{{16,64}}"),
    ("Sentry token", ("sntrys_", "sntryu_"), r"[A-Za-z0-9+/=_]{40,400}"),
    ("Linear key", ("lin_api_",), rf"{_WORD}{{30,60}}"),
    ("Notion token", ("ntn_", "secret_"), rf"(?={_WORD}{{0,40}}[0-9]){_WORD}{{40,60}}"),
    ("age key", ("AGE-SECRET-KEY-1",), r"[A-Z0-9]{50,60}"),
    ("Discord webhook", ("discord.com/api/webhooks/",), r"[0-9]{10,25}/[A-Za-z0-9_-]{20,100}"),
)
_SIGNS = "_-./"


def _by_sign() -> dict[str, list[tuple[str, str, str]]]:
    """Return literal, kind and rest of each shape by a character that the literal holds, if it has
    one of `_SIGNS`: most texts lack some of them, and are looked through for the others only.
    """
    found: dict[str, list[tuple[str, str, str]]] = {}
    for kind, literals, rest in SHAPES:
        for literal in literals:
            sign = next((sign for sign in _SIGNS if sign in literal), "")
            found.setdefault(sign, []).append((literal, kind, rest))
    return found


_BY_SIGN = _by_sign()
# An Azure client secret has its mark in its middle: three characters, a digit, Q~.
_AZURE = r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"
_TELEGRAM = r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"

_PRIVATE = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_END = r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
# What a key cut short is made of; the line breaks may be escaped, as in JSON and in repr().
_PRIVATE_LINES = r"(?:[A-Za-z0-9+/=:,. \t\r\n-]|\\[nrt])*"
_ENDS = (_PRIVATE, _PRIVATE_END)
# One of its lines alone: all of it, or behind what a launcher puts in front; or a header.
_KEY_LINE = r"\s*[A-Za-z0-9+/=]*\s*|[A-Z][A-Za-z-]{1,20}: .*|.*\s[A-Za-z0-9+/=]{20,}\s*"
_SHORT_LINE = 16  # characters
# Backwards, from the end of a key whose beginning was cut off: what is no longer part of it.
_NOT_OF_ITS_LINES = r"[^A-Za-z0-9+/=\r\n\t\\]"
_LAST_LINES = 4096  # characters
_LONGEST_PRIVATE = 16384  # characters; RSA with 8192 bits has some 6,400

# W&B's older keys are 40 hexadecimal digits, as are git's commits and the hub's file names: what
# stands nearest in front, on the same line, decides.
_HEXADECIMAL = r"[0-9a-f]{40,}"
_FORTY = 40
_BEFORE = 96  # characters
_LONGEST_MARK = 40
_ABOUT = (
    r"(?i)(?P<mark>\[[a-z& ]{3,30} [0-9]{1,6}\])"  # what stands there instead of another secret
    r"|(?P<key>api[ _-]?key|wandb[ _]?key|login|authoriz|netrc|passw|secret|credential"
    r"|token\b|\bkey\b|_key\b)"
    r"|commit|revision|snapshot|blob|etag|\bsha|hash|digest|checksum|\bgit\b|\bgit[ +]|\brev\b"
    r"|branch|\bHEAD\b|checkout|version|@|/"
)


def shapes_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and kind of each part of `text` that has the shape of a secret.

    They may overlap, and come in no order.
    """
    for sign, shapes in _BY_SIGN.items():
        if sign in text:
            for literal, kind, rest in shapes:
                if literal in text:
                    yield from _starting_with(text, literal, kind, _compiled(rest))
    if "Q~" in text:
        yield from (
            (found.start(), found.end(), "Azure secret")
            for found in _compiled(_AZURE).finditer(text)
        )
    if ":AA" in text:
        yield from (
            (m.start(), m.end(), "Telegram token") for m in _compiled(_TELEGRAM).finditer(text)
        )
    if "PRIVATE KEY" in text:
        yield from _private_keys(text)
    if len(text) >= _FORTY:
        yield from _hexadecimal_keys(text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _starting_with(
    text: str, literal: str, kind: str, rest: re.Pattern[str]
) -> Iterator[tuple[int, int, str]]:
    at = text.find(literal)
    while at >= 0:
        found = rest.match(text, at + len(literal)) if _starts_a_word(text, at) else None
        if found:
            yield at, found.end(), kind
        at = text.find(literal, found.end() if found else at + 1)


def _starts_a_word(text: str, at: int) -> bool:
    """Return whether no word goes on at `at`; an escaped line break ends one too."""
    if at == 0 or not (text[at - 1].isascii() and text[at - 1].isalnum()):
        return True
    return text[at - 1] in "nrt" and text[at - 2 : at - 1] == "\\"


def _private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield private keys in PEM, whole; of one without an end or a beginning its lines."""
    at = 0
    while begin := _compiled(_PRIVATE).search(text, at):
        end = _compiled(_PRIVATE_END).search(text, begin.end(), begin.end() + _LONGEST_PRIVATE)
        lines = _compiled(_PRIVATE_LINES).match(text, begin.end())
        at = end.end() if end else max(begin.end(), lines.end() if lines else 0)
        yield begin.start(), at, "private key"
    for last in _compiled(_PRIVATE_END).finditer(text):
        before = text[max(0, last.start() - _LAST_LINES) : last.start()][::-1]
        stop = _compiled(_NOT_OF_ITS_LINES).search(before)
        cut = before[: stop.start() if stop else None].rstrip()  # the line break before it stays
        yield last.start() - len(cut), last.end(), "private key"


def key_lines_in(texts: Sequence[str]) -> set[int]:
    """Return which of several texts, a line each, are lines of a private key: those between its
    beginning and its end, or next to one of these where the other is missing.
    """
    begins, ends = ({n for n, t in enumerate(texts) if _compiled(p).search(t)} for p in _ENDS)
    found = set[int]()
    for at in begins - ends:
        end = next((n for n in range(at + 1, len(texts)) if n in ends), None)
        last = len(texts) if end is None else end
        found |= _lines_next_to(texts, range(at + 1, last), is_whole=end is not None)
    for at in ends - begins:
        if not any(begin < at and not any(begin < n < at for n in ends) for begin in begins):
            found |= _lines_next_to(texts, range(at - 1, -1, -1), is_whole=False)
    return found


def _lines_next_to(texts: Sequence[str], places: range, is_whole: bool) -> set[int]:
    """Return the lines of a key in these places, up to the first that is none. The last line of a
    key may be short: it stands at its end, and other short words are not taken for lines where that
    end is missing.
    """
    found = set[int]()
    for n in places:
        line = texts[n]
        is_last = places.step < 0 and not found
        is_short = len(line.strip()) < _SHORT_LINE and not (is_whole or is_last)
        if is_short or not _compiled(_KEY_LINE).fullmatch(line):
            break
        if line:
            found.add(n)
    return found


def _hexadecimal_keys(text: str) -> Iterator[tuple[int, int, str]]:
    for found in _compiled(_HEXADECIMAL).finditer(text):
        start, end = found.span()
        if end - start != _FORTY or not _stands_alone(text, start, end):
            continue
        line = text.rfind("\n", 0, start) + 1
        first = max(line, start - _BEFORE)
        about = _compiled(_ABOUT).finditer(text, max(line, first - _LONGEST_MARK), start)
        words = [one for one in about if one.start() >= first and not one["mark"]]
        if words and words[-1]["key"]:
            yield start, end, "W&B key"


def is_hexadecimal_key(word: str, before: str) -> bool:
    """Return whether `word` of a command line is a key of W&B's for what stands `before` it."""
    if len(word) != _FORTY or not _compiled(_HEXADECIMAL).fullmatch(word):
        return False
    line = f"{before[-_BEFORE:]} {word}"
    return any(end == len(line) for _, end, _ in _hexadecimal_keys(line))


def _stands_alone(text: str, start: int, end: int) -> bool:
    return _starts_a_word(text, start) and not text[end : end + 1].isalnum()
