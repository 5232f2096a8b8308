"""Hiding secrets in what is printed, sent or written: by the name, by a URL, by known shapes.

A rank masks what it says before it says it, so this is imported in every rank, and what is slow to
import (regular expressions to be compiled) only once a text holds a word that may tell a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from .secret_rules.shapes import is_hexadecimal_key, key_lines_in, shapes_in

MASK = "***"
# One of them stands, in lower case, in every text that a rule other than that of a shape is for.
_HINTS = (
    *("key", "token", "pass", "pwd", "secret", "auth", "cred", "jwt", "cookie", "bearer", "sig"),
    *("session", "pin", "salt", "nonce", "netrc", "pw", "sas", "basic", "policy=", "hmac="),
    *("code=", "@", " -u"),
)
# One of them, or white space, stands between a name and its value.
_SIGNS = frozenset("=:@'\"")
_LONGEST = 400  # characters of a text that is remembered
_MOST = 20_000


def mask(name: str, value: str) -> str:
    """Return the value of the variable `name` as it may be shown; its length stays known."""
    if value and _is_told_secret(name, value):
        return f"{MASK} ({len(value)} characters)"
    return mask_text(value)


def mask_text(text: str) -> str:
    """Return `text` without passwords in URLs, without what stands behind a name that tells a
    secret, and without tokens of well-known shapes.
    """
    if len(text) < _LONGEST:
        return _masked_and_remembered(text)
    return _masked(text)


def mask_ends(text: str, most: int) -> str:
    """Return the same of a text of any length in at most about `most` characters: its beginning and
    its end. To look through megabytes would keep a rank that ends.
    """
    if len(text) <= most:
        return mask_text(text)
    first, last = text[: most // 2], text[-most // 2 :]
    # A secret that is cut in two is not known by its second half: whole words alone.
    first, last = first.rpartition(" ")[0] or first, last.partition(" ")[2]
    left_out = len(text) - len(first) - len(last)
    return f"{mask_text(first)} ... ({left_out} characters) ... {mask_text(last)}"


def mask_lines(text: str) -> str:
    """Return the same of a long text of many lines, most of which come again and again."""
    if any(sign in text for sign in ("PRIVATE KEY", "  value:", "machine")):
        return _masked(text)  # a secret may be longer than a line
    return "\n".join(map(mask_text, text.split("\n")))


def mask_values(value: Any) -> Any:
    """Return JSON with each of its texts masked; a list of texts may be a command, and the name of
    a text may tell that it is a secret.
    """
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {mask_values(name): _mask_named(name, item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return _mask_items(value)
    return value


def _mask_items(items: Sequence[Any]) -> list[Any]:
    if any(isinstance(item, str) and "PRIVATE KEY" in item for item in items):
        hidden = key_lines_in([item if isinstance(item, str) else "?" for item in items])
        return [MASK if n in hidden else mask_values(item) for n, item in enumerate(items)]
    is_command = len(items) > 1 and all(isinstance(item, str) for item in items)
    return mask_command(items) if is_command else [mask_values(item) for item in items]


def _mask_named(name: Any, value: Any) -> Any:
    is_secret = isinstance(name, str) and isinstance(value, str) and _is_told_secret(name, value)
    return MASK if is_secret else mask_values(value)


def mask_command(words: Iterable[str]) -> list[str]:
    """Return a command line without secrets: NAME=VALUE, --api-key VALUE, and known shapes."""
    masked: list[str] = []
    flag = ""
    before: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and not any(map(str.isspace, name + value)) and _is_told_secret(name, value):
            masked.append(f"{name}={MASK}")
        elif (
            flag and not word.startswith("-") and _is_told_secret(flag, word)
        ) or is_hexadecimal_key(word, " ".join(before[-4:])):
            masked.append(MASK)
        else:
            masked.append(mask_text(word))
        before.append(word)
        flag = word if word.startswith("--") and not equals else ""
    return masked


def _is_told_secret(name: str, value: str) -> bool:
    """Return whether its name, or its name and its looks, tell that a value is a secret."""
    if not any(hint in name.lower() for hint in _HINTS):
        return False
    from .secret_rules.names import Says, says

    name_says = says(name)
    if name_says is Says.NOTHING:
        return False
    from .secret_rules.values import is_nothing, looks_secret

    if name_says is Says.PERHAPS:
        return looks_secret(value)
    # How many tokens a text has: --max-new-tokens 512.
    counts = name.lower().endswith("tokens") and value.isdecimal()
    return name_says is Says.SECRET and not counts and not is_nothing(value)


@lru_cache(_MOST)
def _masked_and_remembered(text: str) -> str:
    return _masked(text)


def _masked(text: str) -> str:
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS) or _is_word(lowered):
        found = [(start, end) for start, end, _ in shapes_in(text)]
        return _without(text, sorted(found)) if found else text
    from .secret_rules.finding import told_secrets_in
    from .secret_rules.values import settled

    secrets = list(told_secrets_in(text))
    if not secrets:
        return text
    spans = settled(secrets, list(_marks_in(text)))
    return _without(text, [(one.start, one.end) for one in spans])


def _is_word(text: str) -> bool:
    """Return whether nothing stands behind a name in `text`: tokenizer, sigterm,sigint. Behind the
    name of a header a comma may stand.
    """
    return (
        _SIGNS.isdisjoint(text) and not any(map(str.isspace, text)) and "authorization" not in text
    )


def _marks_in(text: str) -> Iterable[tuple[int, int]]:
    at = text.find(MASK)
    while at >= 0:
        yield at, at + len(MASK)
        at = text.find(MASK, at + len(MASK))


def _without(text: str, places: Iterable[tuple[int, int]]) -> str:
    done, parts = 0, []
    for start, end in places:
        if end > done:
            parts += [text[done:start], MASK] if start >= done else []
            done = end
    return "".join([*parts, text[done:]])
