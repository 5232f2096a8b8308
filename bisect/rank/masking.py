"""Hiding secrets in what is printed, sent or written: by the name, by a URL, by known shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
_SHAPES = re.compile(
    r"""\b(?:
      hf_[A-Za-z0-9]{16,}                      # Hugging Face
    | wandb_v\d_[A-Za-z0-9_-]{20,}             # W&B
    | (?:local-)?[0-9a-f]{40}                  # W&B's older keys
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[A-Za-z0-9_-]{16,} | sk-[A-Za-z0-9_-]{16,} | xox[abprs]-[A-Za-z0-9-]{10,}
    | AKIA[0-9A-Z]{16}                         # AWS
    | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*  # JSON web tokens
    )""",
    re.VERBOSE,
)
MASK = "***"


def is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    parts = name.upper().replace("-", "_").split("_")
    return any(part in _SECRET_WHOLE or _SECRET_PART.search(part) for part in parts)


def mask(name: str, value: str) -> str:
    """Return the value of the variable `name` as it may be shown; its length stays known."""
    if value and is_secret(name):
        return f"{MASK} ({len(value)} characters)"
    return mask_text(value)


def mask_text(text: str) -> str:
    """Return `text` without passwords in URLs and without tokens of well-known shapes."""
    text = _USER_INFO.sub(f"{MASK}@", text)
    text = _QUERY.sub(rf"\g<1>{MASK}", text)
    return _SHAPES.sub(MASK, text)


def mask_command(words: Iterable[str]) -> list[str]:
    """Return a command line without secrets: NAME=VALUE, --api-key VALUE, and known shapes."""
    masked: list[str] = []
    flag = ""
    for word in words:
        name, equals, _ = word.partition("=")
        if equals and is_secret(name):
            masked.append(f"{name}={MASK}")
        elif flag and not word.startswith("-") and is_secret(flag):
            masked.append(MASK)
        else:
            masked.append(mask_text(word))
        flag = word if word.startswith("--") and not equals else ""
    return masked
