"""Hiding secrets in what is printed, sent or written: by the name, by a URL, by known shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .secret_shapes import is_hexadecimal_key, shapes_in

# The parts of a name between underscores: TOKENIZERS_PARALLELISM holds no token.
_SECRET_PART = re.compile(
    r"(KEY|TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|JWT|COOKIE|SIGNATURE)$"
)
_SECRET_WHOLE = {"PASS", "PWD", "PW", "BEARER", "KEYS"}
# user:password@ of a URL, and of a proxy written without its scheme.
_USER_INFO = re.compile(r"(?<![^\s/'\"=,;])[^\s/@'\"=,;]+:[^\s/@'\"]*@|(?<=://)[^\s/@'\"]+@")
_QUERY = re.compile(
    r"(?i)([?&;](?:[\w-]*(?:key|token|secret|password|signature|credential))=)[^&\s'\"]+"
)
MASK = "***"


def is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    parts = name.upper().replace("-", "_").split("_")
    return any(part in _SECRET_WHOLE or _SECRET_PART.search(part) for part in parts)


def _is_number_of_tokens(name: str, value: str) -> bool:
    """Return whether it says how many tokens a text has: --max-new-tokens 512."""
    return name.lower().endswith("tokens") and value.isdecimal()


def mask(name: str, value: str) -> str:
    """Return the value of the variable `name` as it may be shown; its length stays known."""
    if value and is_secret(name) and not _is_number_of_tokens(name, value):
        return f"{MASK} ({len(value)} characters)"
    return mask_text(value)


def mask_text(text: str) -> str:
    """Return `text` without passwords in URLs and without tokens of well-known shapes."""
    text = _USER_INFO.sub(f"{MASK}@", text)
    text = _QUERY.sub(rf"\g<1>{MASK}", text)
    done, parts = 0, []
    for start, end, _ in sorted(shapes_in(text)):
        if end > done:
            parts += [text[done:start], MASK] if start >= done else []
            done = end
    return "".join([*parts, text[done:]])


def mask_command(words: Iterable[str]) -> list[str]:
    """Return a command line without secrets: NAME=VALUE, --api-key VALUE, and known shapes."""
    masked: list[str] = []
    flag = ""
    before: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and is_secret(name) and not _is_number_of_tokens(name, value):
            masked.append(f"{name}={MASK}")
        elif flag and not word.startswith("-") and is_secret(flag):
            masked.append(word if _is_number_of_tokens(flag, word) else MASK)
        elif is_hexadecimal_key(word, " ".join(before[-4:])):
            masked.append(MASK)
        else:
            masked.append(mask_text(word))
        before.append(word)
        flag = word if word.startswith("--") and not equals else ""
    return masked
