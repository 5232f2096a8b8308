"""Reads the lists of secrets and of what only looks like one.

Secrets are made when they are read, so that none stands in the repository, where those who host it
look for them.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTS = Path(__file__).resolve().parent.parent / "tests" / "report" / "redaction"
_ALPHABETS = {
    "hex": "0123456789abcdef",
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase + string.digits,
    "digit": string.digits,
    "word": string.ascii_letters + string.digits,
    "id": string.ascii_lowercase + string.digits,
    "wide": string.ascii_letters + string.digits + "_-",
    "base64": string.ascii_letters + string.digits + "+/",
}
_MADE = re.compile(r"\{\{(.+?)\}\}")


@dataclass(frozen=True)
class Planted:
    """A secret in the text that holds it."""

    kind: str
    place: str
    text: str
    secret: str


def planted(seed: int = 1) -> Iterator[Planted]:
    """Yield the secrets of planted.txt, others for another `seed`."""
    chance = random.Random(seed)
    for line in _lines("planted.txt"):
        kind, place, template = line.split("\t", 2)
        found = _MADE.search(template)
        assert found, line
        secret = _made(found[1], chance)
        text = template.replace("\\n", "\n").replace(found[0], secret)
        yield Planted(kind, place, text, secret)


def lookalikes(seed: int = 1) -> Iterator[str]:
    """Yield the harmless texts of lookalikes.txt, others for another `seed`."""
    chance = random.Random(f"harmless {seed}")
    for line in _lines("lookalikes.txt"):
        yield _MADE.sub(lambda found: _made(found[1], chance), line)


def _lines(name: str) -> list[str]:
    lines = (_LISTS / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


def _made(parts: str, chance: random.Random) -> str:
    return "".join(_part(part, chance) for part in parts.split(" "))


def _part(part: str, chance: random.Random) -> str:
    alphabet, _, length = part.partition(":")
    if length.isdecimal() and alphabet in _ALPHABETS:
        return "".join(chance.choices(_ALPHABETS[alphabet], k=int(length)))
    if part == "jwt":
        header = json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": "ada", "exp": 1})
        encoded = [base64.urlsafe_b64encode(one.encode()).decode().rstrip("=") for one in header]
        return ".".join([*encoded, _part("wide:43", chance)])
    if part.startswith("pem"):
        lines = [_part("base64:64", chance) for _ in range(12)]
        whole = "\n".join(
            ["-----BEGIN RSA " + "PRIVATE KEY-----", *lines, "-----END RSA " + "PRIVATE KEY-----"]
        )
        return json.dumps(whole)[1:-1] if part == "pem-in-json" else whole
    return part
