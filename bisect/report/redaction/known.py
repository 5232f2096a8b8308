"""What is known of a run before its texts are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """Names that are found inside other strings; `--anonymous` replaces them, in this order."""

    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()  # absolute paths
