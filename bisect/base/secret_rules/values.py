"""Values in a text: where one begins and ends, and what stands before it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..lazy_dataclass import dataclass

SHORTEST = 8  # characters of what is taken for a secret by its looks
_LONGEST = 128  # characters that are looked at
_BITS = 2.8  # a character; the words of a language have less, keys more

_NOTHING = re.compile(
    r"""(?ix) \s* (?: none | null | nil | true | false | yes | no | on | off | \? | -
      | \*{3,}.* | \.{3} | x{3,} | <[^<>]*> | \[[^\[\]]*\]
      | \$\{?\w+\}?(?::-)? | \{\w*\} | %\(?\w+\)?s? | os\.environ\b.* | os\.getenv\b.*
      | getpass\b.* | -?[0-9]{1,3} | object | str | int | bytes | optional | self\.\w+ ) \s*""",
)

# Of a message after `password:` or `token:`, and what such a setting says where it is no secret.
_WORDS = frozenset(
    (
        *("a", "all", "an", "and", "any", "are", "at", "attribute", "auto", "by", "can", "cannot"),
        *(
            "class",
            "could",
            "def",
            "default",
            "disabled",
            "do",
            "does",
            "empty",
            "enabled",
            "error",
        ),
        *("errors", "expired", "failed", "for", "found", "from", "function", "has", "have"),
        *("hidden", "if", "in", "incorrect", "input", "invalid", "is", "it", "local", "masked"),
        *("method", "missing", "must", "need", "needs", "not", "object", "of", "ok", "only", "or"),
        *("please", "prompt", "property", "provided", "read", "redacted", "removed", "required"),
        *("saved", "set", "sha256", "should", "skipped", "stored", "string", "that", "the", "this"),
        *("to", "type", "unknown", "unset", "use", "used", "using", "valid", "value", "via", "was"),
        *("were", "when", "will", "with", "wrong", "your"),
    )
)
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w@%+=:,.~/-]*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:[./:][A-Za-z_]\w*)+")
_WORDY = re.compile(r"[A-Za-z]+(?:[_-][A-Za-z]+)*")
_NUMBER = re.compile(r"[-+]?[0-9][0-9_.,:eE+-]*%?|0[xX][0-9a-fA-F]+|\([^()]*\)")
_SEPARATOR = re.compile(r"[-_.:/=,@+ ]")
_NAME_PART = re.compile(r"[A-Za-z]*|[A-Za-z]{1,12}[0-9]{1,4}|[0-9]{1,6}[A-Za-z]{0,3}")
_NAME_PART_BESIDE_WORDS = re.compile(rf"{_NAME_PART.pattern}|[0-9a-f]{{1,8}}|[0-9]{{1,12}}")
_ON_DISK = re.compile(
    r"(?:~|\.{1,2})/|/(?:home|root|tmp|usr|var|opt|mnt|data|work|run|etc|proc|dev|scratch|lustre|nfs"
    r"|Users|private|srv|gpfs|shared|workspace)/"
)
_PRINTED = re.compile(r"[\x21-\x7e]+")
_HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-f-]+", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def is_nothing(value: str) -> bool:
    """Return whether `value` cannot be a secret: None, a flag, a reference, masked already."""
    return not value.strip() or _NOTHING.fullmatch(value[:200]) is not None


def is_path(value: str) -> bool:
    """Return whether `value` is a path; base64 may begin with a slash as well."""
    return _ON_DISK.match(value) is not None and _PATH.fullmatch(value) is not None


def is_word_of_a_message(value: str) -> bool:
    """Return whether an unquoted value after a colon is the beginning of a sentence."""
    return value.rstrip(".,;:!").lower() in _WORDS


def looks_secret(value: str) -> bool:
    """Return whether `value`, of a variable named `key` or `token`, is one for a service.

    Such a value is one word of 8 characters at least, no path, number, name or special token of a
    vocabulary, and random: 2.8 bits a character (Shannon) at least, with digits, or mixed cases.
    """
    value = value[:_LONGEST]
    if len(value) < SHORTEST or not _PRINTED.fullmatch(value):
        return False
    if is_nothing(value) or value[0] in "<[({" or value.startswith(("//", "0x")):
        return False
    for harmless in (_PATH, _URL, _DOTTED, _WORDY, _NUMBER, _UUID):
        if harmless.fullmatch(value):
            return harmless is _WORDY and _is_mixed(value)
    digits = sum(map(str.isdigit, value))
    letters = sum(map(str.isalpha, value))
    if _HEXADECIMAL.fullmatch(value):
        return len(value) >= 16 and entropy(value) >= _BITS
    return bool(digits and letters) and entropy(value) >= _BITS and not _is_numbered_name(value)


def entropy(text: str) -> float:
    """Return the bits a character of `text` (Shannon), 0.0 for none."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts) if text else 0.0


def _is_mixed(value: str) -> bool:
    """Return whether letters alone change their case as no name does: kQpZwLrT..., 20 or more."""
    changes = sum(a.islower() and b.isupper() for a, b in zip(value, value[1:]))
    return len(value) >= 20 and "_" not in value and changes * 4 >= len(value)


def _is_numbered_name(value: str) -> bool:
    """Return whether words and short numbers alternate, as in layer_12.weight and epoch=3-step=4.

    The parts of such a name are words, numbers, or a word with a number behind it; beside two words
    a short hexadecimal number may stand.
    """
    parts = _SEPARATOR.split(value)
    words = sum(len(part) > 2 and part.isalpha() for part in parts)
    pattern = _NAME_PART if words < 2 else _NAME_PART_BESIDE_WORDS
    return len(parts) > 1 and all(pattern.fullmatch(part) for part in parts)


@dataclass(frozen=True)
class Span:
    """Where in a text a secret stands."""

    start: int
    end: int
    kind: str
    # Found by its name or place. A shape, where there is one as well, tells more of its kind.
    by_place: bool = False


def settled(found: Iterable[Span], marks: Sequence[tuple[int, int]]) -> list[Span]:
    """Return spans in order that neither overlap nor touch `marks` (start and end, in order).

    Of overlapping ones what begins first stands, the longer one if both do; what remains of the
    other stands as a secret of its own, so nothing that was found is shown.
    """
    spans: list[Span] = []
    done = 0
    for span in sorted(found, key=lambda one: (one.start, -one.end, one.by_place)):
        for start, end in _exclude_marks(max(span.start, done), span.end, marks):
            spans.append(Span(start, end, span.kind, span.by_place))
        done = max(done, span.end)
    return spans


def _exclude_marks(
    start: int, end: int, marks: Sequence[tuple[int, int]]
) -> Iterable[tuple[int, int]]:
    """Yield what of `start` to `end` lies outside of all `marks`."""
    for mark_start, mark_end in marks:
        if mark_end <= start or mark_start >= end:
            continue
        if start < mark_start:
            yield start, mark_start
        start = mark_end
    if start < end:
        yield start, end
