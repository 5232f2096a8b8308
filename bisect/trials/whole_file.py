"""Files that are whole whenever somebody looks: set aside, then renamed."""

from __future__ import annotations

from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a file in place of the one that is there. Raises OSError."""
    aside = file.with_name(f".{file.name}.new")
    aside.write_text(text, encoding="utf-8", errors="replace")
    aside.replace(file)
