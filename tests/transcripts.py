"""Transcripts in the pages of docs/, compared with what was really printed."""

from __future__ import annotations

import re
import socket
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def block(page: str, begins: str) -> list[str]:
    """Return the lines of the block of code in a page that begins so."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = [one for one in blocks if one.startswith(begins)]
    return found.splitlines()


def plain(line: str) -> str:
    """Return a line without its numbers, and without the columns that follow from them."""
    return " ".join(re.sub(r"\d+(?:\.\d+)?", "0", line).split())


def is_printed(shown: list[str], printed: str) -> bool:
    """Return whether the lines of a page were printed in this order; "..." stands for others."""
    left = iter([plain(line) for line in printed.splitlines()])
    return all(plain(line) in left for line in shown if line.strip() not in ("", "..."))


def neutral(text: str) -> str:
    """Return what was printed with the host that the pages have."""
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "n01", text)
